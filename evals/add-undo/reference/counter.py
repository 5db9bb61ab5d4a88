class Counter:
    def __init__(self):
        self.value = 0
        self._before = []

    def add(self, number=1):
        self._before.append(self.value)
        self.value += number

    def reset(self):
        self._before.append(self.value)
        self.value = 0

    def undo(self):
        if self._before:
            self.value = self._before.pop()
