"""get_diagnostics (T-06): what real tools say about a file."""
