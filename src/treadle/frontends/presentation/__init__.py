"""Texts and projections for front ends: events to blocks (`conversation`) and to facts (`overview`), the line of a
call, notices, the open actions of a chat. Each front end draws them in its own way; nothing here knows a screen."""
