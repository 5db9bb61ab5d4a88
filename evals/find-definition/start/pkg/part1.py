# Part 1
VALUE_1 = 11


def step_1(x):
    return x + VALUE_1
