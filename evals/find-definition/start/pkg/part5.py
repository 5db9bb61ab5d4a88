# Part 5
VALUE_5 = 55


def step_5(x):
    return x + VALUE_5
