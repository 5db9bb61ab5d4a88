"""Where chats are kept, as a person writes it: the path of an SQLite file, or `postgresql://…`."""

from pathlib import Path
from urllib.parse import urlsplit

from treadle.errors import ConfigError

_POSTGRES = ("postgres", "postgresql")


def is_postgres(address: str | Path) -> bool:
    """True if the address is a PostgreSQL URL rather than a file. ConfigError for any other URL."""
    scheme, separator, _ = str(address).partition("://")
    if isinstance(address, Path) or not separator:
        return False
    if scheme not in _POSTGRES and scheme.isalpha():
        raise ConfigError(
            f"chats cannot be kept in {redact_address(address)!r}: name a file, or postgresql://USER@HOST/NAME"
        )
    return scheme in _POSTGRES


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
