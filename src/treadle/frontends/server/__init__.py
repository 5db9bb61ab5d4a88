"""The HTTP API: commands in, events out. Decides nothing: `treadle.chat.transitions` says which commands are allowed,
and the store lets one of several concurrent commands win."""
