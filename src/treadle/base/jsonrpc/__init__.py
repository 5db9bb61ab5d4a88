"""JSON-RPC 2.0 both ways on a stream, with the header that language servers use. Knows nothing of chats."""
