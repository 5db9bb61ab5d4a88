"""Splitting a list into numbered pages; the first page is 1."""


def page(items, number, size):
    """The items of one page; an empty list behind the last."""
    begin = (number - 1) * size
    return items[begin : begin + size]


def count(items, size):
    """How many pages there are; an empty list has one, which is empty."""
    return max(1, -(-len(items) // size))
