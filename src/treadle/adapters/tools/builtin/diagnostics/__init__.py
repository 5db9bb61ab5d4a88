"""get_diagnostics (T-06): the findings of real tools about a file."""
