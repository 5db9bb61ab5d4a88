FREE_FROM = 50
SHIPPING = 5


def discounted(price, percent):
    return price - price * percent / 100


def shipping(total):
    return SHIPPING if total > 0 else 0
