from shop.prices import discounted, shipping


def line_total(line, percent):
    return discounted(line["price"], percent) * line["count"]


def order_total(lines, percent=0):
    total = sum(line_total(line, percent) for line in lines)
    total = discounted(total, percent)
    return total + shipping(total)
