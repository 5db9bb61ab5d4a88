def clean(text):
    """One space between words, none at the ends, all letters small."""
    return " ".join(text.split()).lower()

