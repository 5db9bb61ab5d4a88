"""`treadle fork`: a copy of a chat up to a point, which goes its own way from there (D-07)."""

import asyncio

from treadle.cli.session import configured, find_chat, open_agent
from treadle.cli.terminal import Terminal
from treadle.config import Config
from treadle.errors import InvalidInput
from treadle.transfer import fork


def fork_chat(point: str, model: str | None) -> int:
    chat, at, seq = point.partition("@")
    if at and not seq.isdecimal():
        raise InvalidInput(f"{point!r} names no event; write ID@SEQ with a number, as in last@12")
    return asyncio.run(_fork(configured(), chat, int(seq) if at else None, model))


async def _fork(config: Config, named: str, seq: int | None, model: str | None) -> int:
    async with open_agent(config) as agent:
        store = agent.deps.store
        chat = await find_chat(store, named)
        if model is not None:
            agent.deps.models.get(model)
        upto = await store.head(chat) if seq is None else seq
        copy = await fork(store, chat, upto, {} if model is None else {"model": model})
    terminal = Terminal()
    terminal.line(copy)
    terminal.note(f"a copy of {chat} up to event {upto} · go on: treadle run --chat {copy} PROMPT", "dim")
    return 0
