"""`treadle chats`: the chats of the database."""

import asyncio
import sys
import time
from typing import Any

import msgspec

from treadle.cli.inert import inert_line
from treadle.cli.session import configured, open_agent
from treadle.cli.terminal import Colour, Terminal
from treadle.config import Config
from treadle.ports.store import Listed
from treadle.protocol import wire
from treadle.protocol.views import Status

MOST = 200
"""So many chats are listed for people, the newest."""


def list_chats(everything: bool, as_json: bool) -> int:
    return asyncio.run(_chats(configured(), everything, as_json))


async def _chats(config: Config, everything: bool, as_json: bool) -> int:
    async with open_agent(config) as agent:
        limit = 0 if everything or as_json else MOST + 1
        chats = await agent.chats(archived=None if everything else False, limit=limit)
    if as_json:
        for listed in chats:
            sys.stdout.buffer.write(msgspec.json.encode(as_dict(listed)) + b"\n")
        return 0
    terminal = Terminal()
    if not chats:
        terminal.note("no chats yet; begin one with: treadle run PROMPT", "dim")
    shown = chats if everything else chats[:MOST]
    for listed in shown:
        terminal.line(_line(terminal, listed))
    if len(shown) < len(chats):
        terminal.note(f"these are the {MOST} newest; all of them: treadle chats --all", "dim")
    return 0


def shown_status(listed: Listed) -> Status:
    """A chat whose worker died is pending, not running (A-08)."""
    status = listed.summary.status
    return "pending" if status == "running" and not listed.leased else status


def as_dict(listed: Listed) -> dict[str, Any]:
    summary = listed.summary
    shown: dict[str, Any] = wire.whole(summary)
    shown["status"] = shown_status(listed)
    shown["created"] = wire.iso_time(shown.pop("created_ms"))
    shown["updated"] = wire.iso_time(shown.pop("updated_ms"))
    del shown["runnable"], shown["wake_ms"]
    return shown | {"leased": listed.leased}


def _line(terminal: Terminal, listed: Listed) -> str:
    summary, status = listed.summary, shown_status(listed)
    title = inert_line(summary.title or "(no title)", max(20, terminal.width - 60))
    colour: Colour = "red" if status == "error" else "dim" if status == "idle" else "yellow"
    aged = terminal.paint(f"{_age(summary.updated_ms):>8}", "dim")
    turns = f"{summary.turns} {'turn' if summary.turns == 1 else 'turns'}"
    archived = " (archived)" if summary.archived else ""
    line = f"{summary.chat} {aged}  {terminal.paint(f'{status:15}', colour)} {turns:>9}  {title}{archived}"
    if summary.last_error is None:
        return line
    why = f"{summary.last_error.error_class}: {summary.last_error.message}"
    return f"{line}\n{terminal.paint('    ' + inert_line(why, max(20, terminal.width - 4)), 'red')}"


def _age(time_ms: int) -> str:
    seconds = max(0, time.time() - time_ms / 1000)
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= length:
            return f"{int(seconds // length)} {unit}"
    return f"{int(seconds)} s"
