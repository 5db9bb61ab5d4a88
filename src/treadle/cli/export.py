"""`treadle export`: a chat as JSON lines (D-08)."""

import asyncio
import sys

import click

from treadle.cli.session import configured, find_chat, open_agent
from treadle.config import Config
from treadle.transfer import export_chat


@click.command("export")
@click.argument("chat", metavar="ID")
def command(chat: str) -> int:
    """Write a chat to standard output as JSON lines.

    ID is a chat's id, the beginning of it, or last. Every line is an event with its seq and type; what lies outside
    the log travels with the event that names it, so that the file is complete.
    """
    return asyncio.run(_export(configured(), chat))


async def _export(config: Config, named: str) -> int:
    async with open_agent(config) as agent:
        store = agent.deps.store
        async for line in export_chat(store, await find_chat(store, named)):
            sys.stdout.buffer.write(line)
    sys.stdout.buffer.flush()
    return 0
