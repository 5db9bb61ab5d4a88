# Part 12
VALUE_12 = 132


def step_12(x):
    return x + VALUE_12
