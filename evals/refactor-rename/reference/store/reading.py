def find_value(key, rows):
    """The value of the first row of this key."""
    return next((value for name, value in rows if name == key), None)
