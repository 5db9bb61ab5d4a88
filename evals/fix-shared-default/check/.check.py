from basket import Basket

a, b = Basket("a").add(1), Basket("b").add(2)
assert (a.items, b.items) == ([1], [2])
given = [3]
assert Basket("c", given).add(4).items == [3, 4]
