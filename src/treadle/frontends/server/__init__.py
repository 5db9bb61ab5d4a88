"""The HTTP API: commands in, events out. Decides nothing: `treadle.chat.transitions` does."""
