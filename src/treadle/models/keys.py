"""Where keys come from: the environment, else the system's key store if `keyring` is installed (M-13). A key is
wrapped at once, so that no repr, log or error can show it; it is never written anywhere."""

import importlib
from collections.abc import Mapping

SERVICE = "treadle"
"""Under this service name keys are looked up in the key store; the user name is that of the variable."""


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
        """The text without the key, should a server have echoed it. What is shorter than any real key is none:
        local servers are given a word."""
        return text.replace(self._value, "***") if len(self._value) >= 8 else text


def find_key(env: Mapping[str, str], variable: str, *, keyring: bool = True) -> Secret:
    """The key, or an empty secret when there is none."""
    value = env.get(variable, "")
    if not value and keyring:
        value = _from_keyring(variable)
    return Secret(value)


def _from_keyring(variable: str) -> str:
    try:
        keyring = importlib.import_module("keyring")
    except ImportError:
        return ""
    try:
        return str(keyring.get_password(SERVICE, variable) or "")
    except Exception:  # a key store that is locked or missing raises whatever its backend likes: then there is no key
        return ""
