"""Titles as parts of addresses."""


def slug(title, longest=40):
    """Small letters and digits, words joined by single hyphens, none at the ends; cut after whole words so that it is
    not longer than `longest`, unless the first word is. Anything else parts words. Nothing left gives "untitled"."""
    words = "".join(char.lower() if char.isalnum() else " " for char in title).split()
    if not words:
        return "untitled"
    made = words[0]
    for word in words[1:]:
        if len(made) + 1 + len(word) > longest:
            break
        made += "-" + word
    return made
