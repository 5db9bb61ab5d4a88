FREE_FROM = 50
SHIPPING = 5


def discounted(price, percent):
    return price - price * percent / 100


def shipping(total):
    return SHIPPING if 0 < total < FREE_FROM else 0
