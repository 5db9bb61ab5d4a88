# Part 3
VALUE_3 = 33


def step_3(x):
    return x + VALUE_3


def limit():
    from pkg.part8 import RETRY_LIMIT as limit

    return limit
