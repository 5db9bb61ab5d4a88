"""The terminal app. Events and live text become blocks (`conversation`), blocks become lines (`drawing`), and widgets
show them; what people do goes through a `Connection`, to a chat of this process or of a server. The only room that
knows Textual, and nothing loads it but `treadle` without a command."""
