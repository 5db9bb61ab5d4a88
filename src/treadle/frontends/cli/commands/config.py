"""`treadle config`: every setting, its value, and where that came from (E-06)."""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import click

from treadle.base.inert import inert_line
from treadle.frontends.cli.options import json_option
from treadle.frontends.cli.terminal import Terminal, write_json
from treadle.frontends.presentation.styled import Span, spans

if TYPE_CHECKING:
    from treadle.library.config import Config


@click.command("config")
@click.option("--chat", metavar="ID", help="Show the options of this chat, and which ones differ from the settings.")
@json_option("Print one JSON object.")
def config(chat: str | None, as_json: bool) -> None:
    """Show every setting and where its value comes from.

    Of keys it is only told whether they are set. A chat keeps the options with which it was made or to which it was
    changed: with --chat those are shown, and where each comes from that is as the settings have it.
    """
    from treadle.frontends.cli.session import configured

    if chat:
        import asyncio

        asyncio.run(_show_chat(configured(), chat, as_json))
    else:
        _show_settings(configured(), as_json)


async def _show_chat(config: "Config", chat_ref: str, as_json: bool) -> None:
    """The options of a chat: from the chat, where they are not what the settings say."""
    import msgspec

    from treadle.frontends.cli.session import find_chat, open_agent

    async with open_agent(config) as agent:
        chat = await find_chat(agent.deps.store, chat_ref)
        options = (await agent.chat(chat).state()).options
    usual = config.settings.chat_options(options.root)
    rows = {}
    for name in options.__struct_fields__:
        value = getattr(options, name)
        is_default = value == getattr(usual, name) and name != "root"
        rows[name] = (msgspec.to_builtins(value), config.sources.get(name, "default") if is_default else f"chat {chat}")
    if as_json:
        entries = {name: {"value": value, "source": source} for name, (value, source) in rows.items()}
        write_json({"chat": chat, "options": entries})
    else:
        _table([(name, _word(value), source) for name, (value, source) in rows.items()])


def _show_settings(config: "Config", as_json: bool) -> None:
    import msgspec

    from treadle.adapters.models.providers import ADDRESSES, KEYS
    from treadle.adapters.stores import redact_address as shown_address
    from treadle.base.types import HOME_VARIABLE
    from treadle.library.config import FILE_NAME

    home = f"environment {HOME_VARIABLE}" if os.environ.get(HOME_VARIABLE) else "default"
    addresses = {name: _address(name) for name in ADDRESSES}
    keys = {key: "set" if os.environ.get(key, "").strip() else "not set" for key in KEYS}
    store = shown_address(config.settings.store)
    if as_json:
        values = msgspec.to_builtins(config.settings) | {"store": store}
        write_json(
            {
                "home": str(config.home),
                "home_source": home,
                "file": str(config.home / FILE_NAME),
                "settings": {name: {"value": values[name], "source": config.sources[name]} for name in config.sources},
                "environment": addresses,
                "keys": keys,
            }
        )
        return
    rows = [("home", str(config.home), home)]
    for name, source in config.sources.items():
        rows.append((name, _word(store if name == "store" else getattr(config.settings, name)), source))
    for name, address in addresses.items():
        rows.append((name, address or "(none)", "environment" if address else "default"))
    _table([*rows, *((key, state, "environment") for key, state in keys.items())])


def _word(value: object) -> str:
    return "(none)" if value in ("", None, (), [], {}) else str(value)


def _table(rows: Sequence[tuple[str, str, str]]) -> None:
    terminal = Terminal()
    name_width = max(len(name) for name, _, _ in rows)
    value_width = max(min(len(value), 30) for _, value, _ in rows)
    for name, value, source in rows:
        columns = f"{name:{name_width}}  {inert_line(value):{value_width}}  "
        terminal.line(spans(columns, Span(inert_line(source), ("dim",))))


def _address(name: str) -> str:
    """An address without a password that might be in it."""
    url = os.environ.get(name, "").strip()
    try:
        parts = urlsplit(url)
    except ValueError:
        return "(not a URL)"
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="").geturl()
