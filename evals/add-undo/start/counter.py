class Counter:
    def __init__(self):
        self.value = 0

    def add(self, number=1):
        self.value += number

    def reset(self):
        self.value = 0
