# Part 7
VALUE_7 = 77


def step_7(x):
    return x + VALUE_7
