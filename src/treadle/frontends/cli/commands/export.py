"""`treadle export`: a chat as JSON lines (D-08)."""

import sys
from typing import TYPE_CHECKING

import click

from treadle.base.inert import inert_json
from treadle.frontends.cli.group import in_agent

if TYPE_CHECKING:
    from treadle.library.agent import Agent


@click.command("export")
@click.argument("chat_ref", metavar="ID")
@in_agent()
async def export(agent: "Agent", chat_ref: str) -> None:
    """Write a chat to standard output as JSON lines.

    ID is a chat's id, the beginning of it, or last. Every line is an event with its seq and type; data outside the log
    is included in the event that names it, so that the file is complete.
    """
    from treadle.frontends.cli.session import find_chat
    from treadle.library.transfer import export_chat

    store, is_terminal = agent.deps.store, sys.stdout.isatty()
    async for line in export_chat(store, await find_chat(store, chat_ref)):
        sys.stdout.buffer.write(inert_json(line) if is_terminal else line)
    sys.stdout.buffer.flush()
