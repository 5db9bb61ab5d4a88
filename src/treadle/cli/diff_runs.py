"""`treadle diff-runs`: where two chats begin to differ (D-07)."""

import asyncio

from treadle.chat.divergence import first_divergence
from treadle.cli.drive import EXIT_ERROR, EXIT_OK
from treadle.cli.inert import inert
from treadle.cli.session import configured, find_chat, open_agent
from treadle.cli.terminal import Terminal
from treadle.config import Config
from treadle.transfer import read_chat


def diff_runs(left: str, right: str) -> int:
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
