"""MCP (Model Context Protocol) servers as tools (E-01). Contains all code that needs the protocol or its SDK; the SDK
is imported only when a server is started. Decides nothing about chats."""
