from text import clean


def title_key(title):
    return clean(title).removeprefix("the ")
