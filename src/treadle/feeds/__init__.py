"""Reading a chat for as long as somebody looks: from the log, from what happens in this process, and from what others
do to it. For every front end that shows chats of a store."""
