"""The SQLite store; `SqliteStore` is all that others need."""

from treadle.stores.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
