"""`treadle import`: a chat from JSON lines (D-08)."""

import asyncio
import sys
from pathlib import Path

from treadle.cli.inert import inert_line
from treadle.cli.project import project_root
from treadle.cli.session import configured, open_agent
from treadle.cli.terminal import Terminal
from treadle.config import Config
from treadle.errors import InvalidInput
from treadle.transfer import import_chat


def import_file(file: str, new_id: bool, owner: str) -> int:
    return asyncio.run(_import(configured(), _lines(file), new_id, owner))


def _lines(file: str) -> list[bytes]:
    try:
        data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise InvalidInput(f"{file} cannot be read: {error.strerror or error}") from error
    return data.split(b"\n")


async def _import(config: Config, lines: list[bytes], new_id: bool, owner: str) -> int:
    """Model, mode, project and all else that gives it power are those of a new chat here (S-09)."""
    async with open_agent(config) as agent:
        try:
            root = str(project_root(None))
        except InvalidInput:
            root = ""
        local = agent.prepare(config.settings.chat_options(root)).options
        chat = await import_chat(agent.deps.store, lines, new_id, local=local, owner=owner)
    terminal = Terminal()
    terminal.line(chat)
    model = local.model or "no model yet"
    terminal.note(inert_line(f"{model}, mode {local.mode}, in {root or 'no project'}, as for a new chat here"), "dim")
    return 0
