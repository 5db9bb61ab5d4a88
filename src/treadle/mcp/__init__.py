"""Servers of the Model Context Protocol as tools (E-01). What the protocol and its SDK need lies in this room; the SDK
is loaded only when a server is started. Decides nothing about chats."""
