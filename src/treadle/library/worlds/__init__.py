"""Worlds (W-11 to W-13): a long-lived copy-on-write view of a project in which whole chats work. Files, searches,
commands and undo see it; the project does not change until the world is committed, as one transaction.
Its chats call paths as in the project. A commit is a call in a chat's log, and undoable like any other. See
docs/guide/worlds.md.

A world of a world has a `parent`, and is committed into that one. `Worlds.bring_in(name, id)` is the commit alone, for
a tool that records the effect as its own outcome; called again with the same name it completes what was begun.

`record` is what is known of a world and where it lies; `home` how its files are reached; `worlds` what can be done."""
