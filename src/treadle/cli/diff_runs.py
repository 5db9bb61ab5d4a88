"""`treadle diff-runs`: where two chats begin to differ (D-07)."""

import asyncio

import click

from treadle.chat.divergence import first_divergence
from treadle.cli.drive import EXIT_ERROR, EXIT_OK
from treadle.cli.inert import inert
from treadle.cli.session import configured, find_chat, open_agent
from treadle.cli.terminal import Terminal
from treadle.config import Config
from treadle.transfer import read_chat


@click.command("diff-runs")
@click.argument("left", metavar="A")
@click.argument("right", metavar="B")
def command(left: str, right: str) -> int:
    """Find the first difference between two chats.

    A and B are chats' ids, the beginnings of them, or last. Times, ids and folders do not count. The exit code is 0
    when there is no difference, and 1 when there is one.
    """
    return asyncio.run(_diff(configured(), left, right))


async def _diff(config: Config, left: str, right: str) -> int:
    async with open_agent(config) as agent:
        store = agent.deps.store
        chats = [await find_chat(store, named) for named in (left, right)]
        logs = [await read_chat(store, chat) for chat in chats]
    found = first_divergence(logs[0], logs[1], (chats[0], chats[1]))
    terminal = Terminal()
    if found is None:
        terminal.line(f"no difference in {len(logs[0])} events")
        return EXIT_OK
    terminal.line(inert(found.text))
    return EXIT_ERROR
