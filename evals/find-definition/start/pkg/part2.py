# Part 2
VALUE_2 = 22


def step_2(x):
    return x + VALUE_2
