"""Where a model's calls go and what opens the door there. Most models have one address and one key for good; some must
fetch a token first, and fetch another when it is refused (M-11)."""

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from treadle.errors import ModelError
from treadle.models.keys import Secret
from treadle.ports.model import ModelRequest


class Access(NamedTuple):
    base_url: str
    key: Secret
    headers: Mapping[str, str] = {}
    key_header: str = ""
    """Where the key stands; empty: it is a bearer token."""


class Door(Protocol):
    async def open(self, request: ModelRequest) -> Access:
        """Where this request goes. ModelError when the door cannot be opened."""
        ...

    def shut(self, access: Access, error: ModelError) -> bool:
        """Told that an access was refused; whether another one may be had. Asked once in a call."""
        ...


class FixedDoor:
    """One address and one key, as configured."""

    def __init__(self, base_url: str, key: Secret, headers: Mapping[str, str], key_header: str = "") -> None:
        self._access = Access(base_url, key, headers, key_header)

    def __repr__(self) -> str:
        return repr(self._access.base_url)

    async def open(self, request: ModelRequest) -> Access:
        return self._access

    def shut(self, access: Access, error: ModelError) -> bool:
        return False
