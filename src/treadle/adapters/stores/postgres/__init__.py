"""The PostgreSQL store; `PostgresStore` is all that others need."""

from treadle.adapters.stores.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
