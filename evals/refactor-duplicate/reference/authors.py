from text import clean


def author_key(name):
    return " ".join(reversed(clean(name).split(" ")))
