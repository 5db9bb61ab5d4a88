"""Treadle as an MCP server (`treadle mcp serve`): another agent hands over work, follows it, answers what it asks, and
takes it back. A thin face of the library; decides nothing about chats."""
