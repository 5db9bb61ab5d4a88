"""`treadle config`: every setting, its value, and where that came from (E-06)."""

import os
import sys
from urllib.parse import urlsplit

import msgspec

from treadle.cli.inert import inert_line
from treadle.cli.session import configured
from treadle.cli.terminal import Terminal
from treadle.config import FILE_NAME, HOME_VARIABLE, Config
from treadle.models.providers import ADDRESSES, KEYS
from treadle.stores.address import shown as shown_address


def show_config(as_json: bool) -> int:
    config = configured()
    if as_json:
        sys.stdout.buffer.write(msgspec.json.encode(_object(config)) + b"\n")
    else:
        _print(config)
    return 0


def _object(config: Config) -> dict[str, object]:
    values = msgspec.to_builtins(config.settings) | {"store": shown_address(config.settings.store)}
    return {
        "home": str(config.home),
        "home_source": _home_source(),
        "file": str(config.home / FILE_NAME),
        "settings": {name: {"value": values[name], "source": config.sources[name]} for name in config.sources},
        "environment": {name: _address(name) for name in ADDRESSES},
        "keys": {key: _key(key) for key in KEYS},
    }


def _print(config: Config) -> None:
    terminal = Terminal()
    rows = [("home", str(config.home), _home_source())]
    for name, source in config.sources.items():
        value = shown_address(config.settings.store) if name == "store" else getattr(config.settings, name)
        rows.append((name, "(none)" if value in ("", None, ()) else str(value), source))
    for name in ADDRESSES:
        address = _address(name)
        rows.append((name, address or "(none)", "environment" if address else "default"))
    rows += [(key, _key(key), "environment") for key in KEYS]
    name_width = max(len(name) for name, _, _ in rows)
    value_width = max(min(len(value), 30) for _, value, _ in rows)
    for name, value, source in rows:
        shown = terminal.paint(inert_line(source), "dim")
        terminal.line(f"{name:{name_width}}  {inert_line(value):{value_width}}  {shown}")


def _home_source() -> str:
    return f"environment {HOME_VARIABLE}" if os.environ.get(HOME_VARIABLE) else "default"


def _key(name: str) -> str:
    return "set" if os.environ.get(name, "").strip() else "not set"


def _address(name: str) -> str:
    """An address without a password that might be in it."""
    url = os.environ.get(name, "").strip()
    try:
        parts = urlsplit(url)
    except ValueError:
        return "(not a URL)"
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="").geturl()
