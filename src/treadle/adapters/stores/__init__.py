"""The stores. `open_store` imports and opens the one at an address: an SQLite file, or `postgresql://…`."""

from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from treadle.errors import ConfigError, StoreError
from treadle.ports.store import LEASE_S, Store

if TYPE_CHECKING:
    from treadle.adapters.stores.postgres import PostgresStore
    from treadle.adapters.stores.sqlite import SqliteStore


def as_store(source: Store | Path | str | None) -> Store:
    """A store as it is, the one at an address, or for None one in memory."""
    if source is None:
        from treadle.adapters.stores.memory import MemoryStore

        return MemoryStore()
    return open_store(source) if isinstance(source, str | Path) else source


def open_store(address: str | Path, *, lease_s: float = LEASE_S) -> "SqliteStore | PostgresStore":
    """The store at an address, without connecting to it or making it. `lease_s`: how long leases taken here last."""
    if not _is_postgres(address):
        from treadle.adapters.stores.sqlite import SqliteStore

        return SqliteStore(Path(address).expanduser(), lease_s=lease_s)
    try:
        from treadle.adapters.stores.postgres import PostgresStore
    except ModuleNotFoundError as error:
        if error.name != "asyncpg":
            raise
        raise ConfigError(
            f"chats in {redact_address(address)} need the package asyncpg; install it with: "
            "pip install 'treadle[postgres]'"
        ) from error
    return PostgresStore(str(address), lease_s=lease_s)


def _is_postgres(address: str | Path) -> bool:
    """True if the address is a PostgreSQL URL rather than a file. ConfigError for any other URL."""
    scheme, separator, _ = str(address).partition("://")
    if isinstance(address, Path) or not separator:
        return False
    is_postgres = scheme in ("postgres", "postgresql")
    if not is_postgres and scheme.isalpha():
        raise ConfigError(
            f"chats cannot be kept in {redact_address(address)!r}: name a file, or postgresql://USER@HOST/NAME"
        )
    return is_postgres


def redact_address(address: str | Path) -> str:
    """An address as it may be shown: no password, no options."""
    if "://" not in str(address):
        return str(address)
    try:
        parts = urlsplit(str(address))
        user, _, place = parts.netloc.rpartition("@")
    except ValueError:
        return "(not a URL)"
    name = user.partition(":")[0]
    return parts._replace(netloc=f"{name}@{place}" if name else place, query="", fragment="").geturl()


def number_migrations(folder: Path) -> dict[int, Path]:
    """The migrations by number: 1, 2, 3 … without a gap."""
    steps = {int(file.name.split("_")[0]): file for file in sorted(folder.glob("[0-9]*.sql"))}
    if list(steps) != list(range(1, len(steps) + 1)):
        raise StoreError(f"the migrations in {folder} are not numbered without a gap; reinstall Treadle")
    return steps
