"""The MCP servers of an agent (E-01): which a project has, when they start, and what of them models are told. What is
said to a server, and how, is the business of `treadle.mcp`, which is loaded when one is started."""
