from store.reading import find_value


def describe(key, rows):
    found = find_value(key, rows)
    return f"{key}: {'nothing' if found is None else found}"
