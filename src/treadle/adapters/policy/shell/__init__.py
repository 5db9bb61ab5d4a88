"""The effects of a shell command, derived from its text alone: nothing is run, no file is read."""
