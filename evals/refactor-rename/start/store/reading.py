def get_data(key, rows):
    """The value of the first row of this key."""
    return next((value for name, value in rows if name == key), None)
