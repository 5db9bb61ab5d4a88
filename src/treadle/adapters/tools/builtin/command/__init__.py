"""run_command, and the tools for what it left: background commands and outputs that were cut."""
