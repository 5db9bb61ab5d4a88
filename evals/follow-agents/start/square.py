# module: square


def area(a):
    """The area of a square."""
    return a * a
