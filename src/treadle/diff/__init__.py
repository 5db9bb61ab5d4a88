"""Texts compared line by line: differences, hunks, three-way merges. Pure functions; knows no disk."""
