from counter import Counter

counter = Counter()
counter.undo()
assert counter.value == 0
counter.add(5)
counter.add()
counter.reset()
counter.undo()
assert counter.value == 6
counter.undo()
assert counter.value == 5
counter.add(2)
counter.undo()
counter.undo()
counter.undo()
assert counter.value == 0
