"""Where keys come from: the environment, else the system's key store if `keyring` is installed, else a file in the home
of Treadle that only its owner can read (M-13). A key is wrapped at once, so that no repr, log or error can show it. The
file and the key store hold only keys that a person entered in the first-run dialog."""

import importlib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec.structs import replace

from treadle.base.home_file import HomeFile

SERVICE = "treadle"  # the service name of keys in the key store; the user name is that of the variable
FILE_NAME = "access.json"  # the file in Treadle's home with the keys and addresses that a person entered
KEY_STORE = "the key store of this system"
CUSTOM_KEY, CUSTOM_ADDRESS = "CUSTOM_API_KEY", "CUSTOM_BASE_URL"


class StoredAccess(msgspec.Struct, frozen=True):
    """Keys and addresses by the names of their variables."""

    keys: dict[str, str] = {}
    addresses: dict[str, str] = {}
    version: int = 1


class Secret:
    """A key that shows itself only when asked."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value.strip()

    def __bool__(self) -> bool:
        return bool(self._value)

    def __repr__(self) -> str:
        return "Secret(***)" if self._value else "Secret()"

    def __reduce__(self) -> str:
        raise TypeError("a secret is not written anywhere")

    def reveal(self) -> str:
        return self._value

    def redact(self, text: str) -> str:
        """The text without the key, in case a server echoed it. Values shorter than any real key stay: placeholders."""
        return text.replace(self._value, "***") if len(self._value) >= 8 else text


def find_key(env: Mapping[str, str], variable: str, *, keyring: bool = True, home: Path | None = None) -> Secret:
    """The key, or an empty secret. `keyring`: look also for stored keys, in the key store and in the file of `home`."""
    value = env.get(variable, "")
    if not value and keyring:
        value = _read_keyring(variable) or read_stored_access(home).keys.get(variable, "")
    return Secret(value)


def read_stored_access(home: Path | None) -> StoredAccess:
    return StoredAccess() if home is None else _make_file(home).read()


def store_key(home: Path, variable: str, value: str) -> str:
    """Keep a key in the system's key store if it has one, else in the file. Returns the place in words."""
    in_keyring = False
    with suppress(Exception):  # not installed, or no usable backend
        importlib.import_module("keyring").set_password(SERVICE, variable, value)
        in_keyring = _read_keyring(variable) == value
    if in_keyring and not (home / FILE_NAME).exists():
        return KEY_STORE

    def put_key(access: StoredAccess) -> StoredAccess:
        """Without an older key, which must not outlive the new one."""
        other_keys = {name: key for name, key in access.keys.items() if name != variable}
        return replace(access, keys=other_keys if in_keyring or not value else {**other_keys, variable: value})

    _make_file(home).change(put_key)
    return KEY_STORE if in_keyring else str(home / FILE_NAME)


def store_server(home: Path, url: str, key: str) -> None:
    """Keep the address and the key of the server `custom`. The key of an earlier server must never go to this one: it
    is removed first, and the new one comes last."""
    store_key(home, CUSTOM_KEY, "")
    _make_file(home).change(lambda access: replace(access, addresses={**access.addresses, CUSTOM_ADDRESS: url}))
    if key:
        store_key(home, CUSTOM_KEY, key)


def _make_file(home: Path) -> HomeFile[StoredAccess]:
    return HomeFile(home / FILE_NAME, StoredAccess)


def _read_keyring(variable: str) -> str:
    try:
        return str(importlib.import_module("keyring").get_password(SERVICE, variable) or "")
    except Exception:  # not installed; a locked or missing key store raises any error of its backend
        return ""
