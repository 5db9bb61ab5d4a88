from pages import count, page

items = list(range(10))
assert page(items, 1, 4) == [0, 1, 2, 3]
assert page(items, 3, 4) == [8, 9]
assert page(items, 4, 4) == []
assert [count(list(range(n)), 4) for n in (0, 1, 4, 5, 8, 9)] == [1, 1, 1, 2, 2, 3]
