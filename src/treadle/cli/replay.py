"""`treadle replay`: drive a recorded chat again, offline, and compare (D-07)."""

import asyncio

from treadle.cli.drive import EXIT_ERROR, EXIT_OK
from treadle.cli.inert import inert
from treadle.cli.session import configured, find_chat, open_agent
from treadle.cli.terminal import Terminal
from treadle.config import Config
from treadle.replay import replay


def replay_chat(chat: str) -> int:
    return asyncio.run(_replay(configured(), chat))


async def _replay(config: Config, named: str) -> int:
    async with open_agent(config) as agent:
        store = agent.deps.store
        chat = await find_chat(store, named)
        result = await replay(store, chat)
    terminal = Terminal()
    if result.divergence is None and result.matches:
        terminal.line(f"{chat}: the same {len(result.events)} events")
        return EXIT_OK
    terminal.line(inert(result.divergence.text) if result.divergence is not None else f"{chat}: other events")
    return EXIT_ERROR
