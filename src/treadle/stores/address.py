"""Where chats are kept, as a person writes it: the path of an SQLite file, or `postgresql://…`. Opens the store that is
meant; what a store needs is imported only then."""

from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from treadle.errors import ConfigError
from treadle.ports.store import LEASE_S

if TYPE_CHECKING:
    from treadle.stores.postgres import PostgresStore
    from treadle.stores.sqlite import SqliteStore

_POSTGRES = ("postgres", "postgresql")


def open_store(
    address: str | Path, *, most: int | None = None, lease_s: float = LEASE_S
) -> "SqliteStore | PostgresStore":
    """The store at an address; nothing is connected or made before its first use. `most` is how many connections it may
    have, where it has any; `lease_s` is how long leases last that are taken here."""
    scheme, separator, _ = str(address).partition("://")
    if isinstance(address, str) and separator and scheme in _POSTGRES:
        return _open_postgres(address, most, lease_s)
    if isinstance(address, str) and separator and scheme.isalpha():
        raise ConfigError(f"chats cannot be kept in {shown(address)!r}: name a file, or postgresql://USER@HOST/NAME")
    from treadle.stores.sqlite import SqliteStore

    return SqliteStore(Path(address).expanduser(), lease_s=lease_s)


def shown(address: str | Path) -> str:
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


def _open_postgres(url: str, most: int | None, lease_s: float) -> "PostgresStore":
    try:
        from treadle.stores.postgres import PostgresStore
        from treadle.stores.postgres.connections import CONNECTIONS
    except ModuleNotFoundError as error:
        if error.name != "asyncpg":
            raise
        raise ConfigError(
            f"chats in {shown(url)} need the package asyncpg; install it with: pip install 'treadle[postgres]'"
        ) from error
    return PostgresStore(url, lease_s=lease_s, connections=CONNECTIONS if most is None else most)
