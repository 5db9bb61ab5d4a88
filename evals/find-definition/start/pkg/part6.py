# Part 6
VALUE_6 = 66


def step_6(x):
    return x + VALUE_6
