def clean(text):
    """One space between words, none at the ends, all letters small."""
    return " ".join(text.split()).lower()


def author_key(name):
    return " ".join(reversed(clean(name).split(" ")))
