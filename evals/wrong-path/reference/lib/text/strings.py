def shorten(text, longest):
    """The text, cut to `longest` characters."""
    if len(text) <= longest:
        return text
    return text[: max(0, longest - 1)] + "…" if longest > 0 else ""
