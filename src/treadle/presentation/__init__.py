"""What front ends say about events: the line of a call, notices, what a chat waits for. The command line and the
terminal app draw it each in its own way; nothing here knows a screen."""
