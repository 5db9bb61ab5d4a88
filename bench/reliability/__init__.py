"""What becomes of chats when the processes that drive them are killed and paused, and their database is restarted."""
