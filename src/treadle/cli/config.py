"""`treadle config`: every setting, its value, and where that came from (E-06)."""

import asyncio
import os
import sys
from collections.abc import Sequence
from urllib.parse import urlsplit

import msgspec

from treadle.cli.inert import inert_line
from treadle.cli.session import configured, find_chat, open_agent
from treadle.cli.terminal import Terminal
from treadle.config import FILE_NAME, HOME_VARIABLE, Config
from treadle.models.providers import ADDRESSES, KEYS
from treadle.stores.address import shown as shown_address


def show_config(as_json: bool, chat: str = "") -> int:
    config = configured()
    if chat:
        return asyncio.run(_show_chat(config, chat, as_json))
    if as_json:
        sys.stdout.buffer.write(msgspec.json.encode(_object(config)) + b"\n")
    else:
        _print(config)
    return 0


async def _show_chat(config: Config, named: str, as_json: bool) -> int:
    """The options of a chat: from the chat, where they are not what the settings say."""
    async with open_agent(config) as agent:
        chat = await find_chat(agent.deps.store, named)
        options = (await agent.chat(chat).state()).options
    usual = config.settings.chat_options(options.root)
    rows = {}
    for name in options.__struct_fields__:
        value = getattr(options, name)
        same = value == getattr(usual, name) and name != "root"
        rows[name] = (msgspec.to_builtins(value), config.sources.get(name, "default") if same else f"chat {chat}")
    if as_json:
        shown = {name: {"value": value, "source": source} for name, (value, source) in rows.items()}
        sys.stdout.buffer.write(msgspec.json.encode({"chat": chat, "options": shown}) + b"\n")
    else:
        _table([(name, _word(value), source) for name, (value, source) in rows.items()])
    return 0


def _word(value: object) -> str:
    return "(none)" if value in ("", None, (), [], {}) else str(value)


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
    rows = [("home", str(config.home), _home_source())]
    for name, source in config.sources.items():
        value = shown_address(config.settings.store) if name == "store" else getattr(config.settings, name)
        rows.append((name, _word(value), source))
    for name in ADDRESSES:
        address = _address(name)
        rows.append((name, address or "(none)", "environment" if address else "default"))
    rows += [(key, _key(key), "environment") for key in KEYS]
    _table(rows)


def _table(rows: Sequence[tuple[str, str, str]]) -> None:
    terminal = Terminal()
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
