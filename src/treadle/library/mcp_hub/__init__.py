"""The MCP servers of an agent (E-01): which servers a project has, when they start, and which of their tools models
see. The protocol itself is in `treadle.adapters.mcp`, which is imported when a server is started."""
