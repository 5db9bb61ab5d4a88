"""Texts about events for front ends: the line of a call, notices, the open actions of a chat. The command line and the
terminal app draw them each in its own way; nothing here knows a screen."""
