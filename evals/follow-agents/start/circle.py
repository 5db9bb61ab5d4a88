# module: circle
from math import pi


def area(r):
    """The area of a circle."""
    return pi * r * r
