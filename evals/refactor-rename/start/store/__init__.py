from store.reading import get_data

__all__ = ["get_data"]
