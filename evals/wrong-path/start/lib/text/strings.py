def shorten(text, longest):
    """The text, cut to `longest` characters."""
    return text[:longest]
