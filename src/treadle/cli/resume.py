"""`treadle resume`: go on with a chat that was cut off."""

import asyncio

import click

from treadle.cli.drive import drive
from treadle.cli.output import JsonLines
from treadle.cli.screen import Screen
from treadle.cli.session import configured, find_chat, open_agent
from treadle.config import Config


@click.command("resume")
@click.argument("chat", metavar="ID")
@click.option("--json", "as_json", is_flag=True, help="Print every event as one line of JSON.")
def command(chat: str, as_json: bool) -> int:
    """Go on with a chat that was cut off or waits for someone.

    ID is a chat's id, the beginning of it, or last.
    """
    return asyncio.run(_resume(configured(), chat, as_json))


async def _resume(config: Config, named: str, as_json: bool) -> int:
    async with open_agent(config) as agent:
        store = agent.deps.store
        found = await find_chat(store, named)
        chat = agent.chat(found)
        head = await store.head(found)
        return await drive(chat, chat.resume(), JsonLines() if as_json else Screen(), head)
