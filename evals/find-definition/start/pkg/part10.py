# Part 10
VALUE_10 = 110


def step_10(x):
    return x + VALUE_10
