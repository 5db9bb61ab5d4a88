# module: triangle
from math import sqrt


def area(a, b, c):
    """The area of a triangle by the lengths of its sides."""
    if min(a, b, c) <= 0 or a + b <= c or b + c <= a or c + a <= b:
        raise ValueError("there is no such triangle")
    half = (a + b + c) / 2
    return sqrt(half * (half - a) * (half - b) * (half - c))
