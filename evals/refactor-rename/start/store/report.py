from store.reading import get_data


def describe(key, rows):
    found = get_data(key, rows)
    return f"{key}: {'nothing' if found is None else found}"
