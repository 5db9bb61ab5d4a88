"""The terminal app in a real pseudo-terminal, beside the apps of others."""
