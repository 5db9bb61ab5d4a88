"""What a shell command would do, read from its text alone: nothing is run, no file is looked at."""
