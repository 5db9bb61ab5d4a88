from store.reading import find_value

__all__ = ["find_value"]
