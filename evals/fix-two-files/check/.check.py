from shop.orders import order_total

assert order_total([]) == 0
assert order_total([{"price": 10, "count": 2}]) == 25
assert order_total([{"price": 10, "count": 2}], 50) == 15
assert order_total([{"price": 25, "count": 2}]) == 50
assert order_total([{"price": 49, "count": 1}]) == 54
