"""`treadle import`: a chat from JSON lines (D-08)."""

import asyncio
import sys
from pathlib import Path

from treadle.cli.session import configured, open_agent
from treadle.cli.terminal import Terminal
from treadle.config import Config
from treadle.errors import InvalidInput
from treadle.transfer import import_chat


def import_file(file: str, new_id: bool) -> int:
    return asyncio.run(_import(configured(), _lines(file), new_id))


def _lines(file: str) -> list[bytes]:
    try:
        data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise InvalidInput(f"{file} cannot be read: {error.strerror or error}") from error
    return data.split(b"\n")


async def _import(config: Config, lines: list[bytes], new_id: bool) -> int:
    async with open_agent(config) as agent:
        chat = await import_chat(agent.deps.store, lines, new_id)
    Terminal().line(chat)
    return 0
