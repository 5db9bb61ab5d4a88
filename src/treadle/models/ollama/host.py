"""Where Ollama listens, from `OLLAMA_HOST` as Ollama itself reads it: with or without scheme, port and path. Pure."""

import re

from treadle.errors import ConfigError

VARIABLE = "OLLAMA_HOST"
CLOUD = "ollama.com"
_PORTS = {"http": "80", "https": "443"}
_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}
"""A server may listen on all addresses; a client must choose one."""
_HOST_AND_PORT = re.compile(r"(?P<host>\[[0-9A-Fa-f:.%]+\]|[^:\[\]@\s?#]*)(?::(?P<port>\d{1,5})?)?")
_BARE_IPV6 = re.compile(r"[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*")


def base_url(given: str) -> str:
    """The address, with scheme and port. ConfigError when it is none."""
    given = given.strip()
    scheme, found, rest = given.partition("://")
    if not found:
        scheme, rest = ("https", f"{given}:443") if given == CLOUD else ("http", given)
    place, _, path = rest.partition("/")
    if _BARE_IPV6.fullmatch(place):
        place = f"[{place}]"
    parts = _HOST_AND_PORT.fullmatch(place)
    if scheme not in _PORTS or parts is None or int(parts["port"] or 0) > 65_535:
        raise ConfigError(f"{VARIABLE} is {given!r}; write an address such as 127.0.0.1:11434 or https://example.org")
    host = parts["host"] or "127.0.0.1"
    port = parts["port"] or (_PORTS[scheme] if found else "11434")
    return f"{scheme}://{_EVERYWHERE.get(host, host)}:{port}/{path}".rstrip("/")
