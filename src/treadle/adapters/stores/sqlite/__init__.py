"""The SQLite store; `SqliteStore` is all that others need."""

from treadle.adapters.stores.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
