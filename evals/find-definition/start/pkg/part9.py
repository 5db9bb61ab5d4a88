# Part 9
VALUE_9 = 99


def step_9(x):
    return x + VALUE_9
