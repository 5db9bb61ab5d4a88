class Basket:
    def __init__(self, owner, items=[]):
        self.owner = owner
        self.items = items

    def add(self, item):
        self.items.append(item)
        return self
