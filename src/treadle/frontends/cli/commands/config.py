"""`treadle config`: every setting, its value, and where that came from (E-06). `treadle completion`: a script by which
a shell asks this program to complete commands, options, their values and chats."""

import os
from collections.abc import Sequence
from urllib.parse import urlsplit

import click

from treadle.base.inert import make_inert_line, print_line
from treadle.base.types import HOME_VARIABLE
from treadle.frontends.cli.lazy import Config, asyncio, library_config, msgspec, session, stores
from treadle.frontends.cli.options import CHAT, add_json_option
from treadle.frontends.cli.terminal import Terminal, write_json
from treadle.frontends.presentation.styled import Span, join_spans


@click.command("config")
@click.option("--chat", type=CHAT, help="Show the options of this chat, and which ones differ from the settings.")
@add_json_option("Print one JSON object.")
def config(chat: str | None, as_json: bool) -> None:
    """Show every setting and where its value comes from.

    Of keys it is only told whether they are set. A chat keeps the options with which it was made or to which it was
    changed: with --chat those are shown, and where each comes from that is as the settings have it."""
    if chat:
        asyncio.run(_show_chat(session.load_config(), chat, as_json))
    else:
        _show_settings(session.load_config(), as_json)


async def _show_chat(config: "Config", chat_ref: str, as_json: bool) -> None:
    """The options of a chat: from the chat, where they are not what the settings say."""
    async with session.open_agent(config) as agent:
        chat = await session.find_chat(agent.deps.store, chat_ref)
        options = (await agent.chat(chat).state()).options
    usual = config.settings.make_chat_options(options.root)
    rows = {}
    for name in options.__struct_fields__:
        value = getattr(options, name)
        is_default = value == getattr(usual, name) and name != "root"
        rows[name] = (msgspec.to_builtins(value), config.sources.get(name, "default") if is_default else f"chat {chat}")
    if as_json:
        entries = {name: {"value": value, "source": source} for name, (value, source) in rows.items()}
        write_json({"chat": chat, "options": entries})
    else:
        _print_table([(name, _format_value(value), source) for name, (value, source) in rows.items()])


def _show_settings(config: "Config", as_json: bool) -> None:
    from treadle.adapters.models.providers import ADDRESSES, KEYS

    home, home_source = str(config.home), f"environment {HOME_VARIABLE}" if os.environ.get(HOME_VARIABLE) else "default"
    addresses = {name: _redact_address(name) for name in ADDRESSES}
    keys = {key: "set" if os.environ.get(key, "").strip() else "not set" for key in KEYS}
    values = {**msgspec.structs.asdict(config.settings), "store": stores.redact_address(config.settings.store)}
    if as_json:
        plain = msgspec.to_builtins(values)
        settings = {name: {"value": plain[name], "source": source} for name, source in config.sources.items()}
        file = str(config.home / library_config.FILE_NAME)
        report = {"home": home, "home_source": home_source, "file": file, "settings": settings}
        return write_json({**report, "environment": addresses, "keys": keys})
    rows = [("home", home, home_source)]
    rows += [(name, _format_value(values[name]), source) for name, source in config.sources.items()]
    rows += [(name, each or "(none)", "environment" if each else "default") for name, each in addresses.items()]
    _print_table([*rows, *((key, state, "environment") for key, state in keys.items())])


def _format_value(value: object) -> str:
    return "(none)" if value in ("", None, (), [], {}) else str(value)


def _print_table(rows: Sequence[tuple[str, str, str]]) -> None:
    terminal = Terminal()
    name_width = max(len(name) for name, _, _ in rows)
    value_width = max(min(len(value), 30) for _, value, _ in rows)
    for name, value, source in rows:
        columns = f"{name:{name_width}}  {make_inert_line(value):{value_width}}  "
        terminal.write_line(join_spans(columns, Span(make_inert_line(source), ("dim",))))


def _redact_address(name: str) -> str:
    """An address without a password that might be in it."""
    url = os.environ.get(name, "").strip()
    try:
        parts = urlsplit(url)
    except ValueError:
        return "(not a URL)"
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="").geturl()


@click.command("completion")
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
def completion(shell: str) -> None:
    """Print a script that completes commands, options and chats in a shell.

    For bash: eval "$(treadle completion bash)" in ~/.bashrc. For zsh: the same with zsh in ~/.zshrc, below compinit.
    For fish: treadle completion fish > ~/.config/fish/completions/treadle.fish, once."""
    from click.shell_completion import get_completion_class

    from treadle.frontends.cli.group import cli

    completer = get_completion_class(shell)
    assert completer is not None
    print_line(completer(cli, {}, "treadle", "_TREADLE_COMPLETE").source().rstrip("\n"))
