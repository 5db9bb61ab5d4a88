"""The HTTP API: commands in, events out. Decides nothing: what is allowed is said by `treadle.chat.transitions`, and of
many that race the store lets one win."""
