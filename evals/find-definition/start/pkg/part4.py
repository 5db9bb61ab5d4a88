# Part 4
VALUE_4 = 44


def step_4(x):
    return x + VALUE_4
