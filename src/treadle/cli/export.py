"""`treadle export`: a chat as JSON lines (D-08)."""

import asyncio
import sys

from treadle.cli.session import configured, find_chat, open_agent
from treadle.config import Config
from treadle.transfer import export_chat


def export(chat: str) -> int:
    return asyncio.run(_export(configured(), chat))


async def _export(config: Config, named: str) -> int:
    async with open_agent(config) as agent:
        store = agent.deps.store
        async for line in export_chat(store, await find_chat(store, named)):
            sys.stdout.buffer.write(line)
    sys.stdout.buffer.flush()
    return 0
