class Basket:
    def __init__(self, owner, items=None):
        self.owner = owner
        self.items = [] if items is None else list(items)

    def add(self, item):
        self.items.append(item)
        return self
