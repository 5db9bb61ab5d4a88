# Part 8
VALUE_8 = 88


def step_8(x):
    return x + VALUE_8


RETRY_LIMIT = 7
