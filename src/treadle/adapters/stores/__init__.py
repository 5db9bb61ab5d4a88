"""Where chats are kept. `open_store` opens the store that an address means, and imports what it needs only then."""

from pathlib import Path
from typing import TYPE_CHECKING

from treadle.adapters.stores.address import is_postgres, redact_address
from treadle.errors import ConfigError
from treadle.ports.store import LEASE_S, Store

if TYPE_CHECKING:
    from treadle.adapters.stores.postgres import PostgresStore
    from treadle.adapters.stores.sqlite import SqliteStore


def store_of(source: Store | Path | str | None) -> Store:
    """A store as it is, the one at an address, or for None one in memory."""
    if source is None:
        from treadle.adapters.stores.memory import MemoryStore

        return MemoryStore()
    return open_store(source) if isinstance(source, str | Path) else source


def open_store(address: str | Path, *, lease_s: float = LEASE_S) -> "SqliteStore | PostgresStore":
    """The store at an address; nothing is connected or made before its first use. `lease_s` is how long leases last
    that are taken here."""
    if is_postgres(address):
        return _open_postgres(str(address), lease_s)
    from treadle.adapters.stores.sqlite import SqliteStore

    return SqliteStore(Path(address).expanduser(), lease_s=lease_s)


def _open_postgres(url: str, lease_s: float) -> "PostgresStore":
    try:
        from treadle.adapters.stores.postgres import PostgresStore
    except ModuleNotFoundError as error:
        if error.name != "asyncpg":
            raise
        raise ConfigError(
            f"chats in {redact_address(url)} need the package asyncpg; install it with: pip install 'treadle[postgres]'"
        ) from error
    return PostgresStore(url, lease_s=lease_s)
