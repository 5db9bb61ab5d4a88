"""Streams a chat to a reader: from the log, from events in this process, and from the writes of other processes. For
every front end that shows chats of a store."""
