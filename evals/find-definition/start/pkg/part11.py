# Part 11
VALUE_11 = 121


def step_11(x):
    return x + VALUE_11
