"""`treadle gc`: remove what is kept for undoing changes and needed no more."""

import asyncio
import sys

import msgspec

from treadle.cli.drive import EXIT_OK
from treadle.cli.session import configured
from treadle.cli.terminal import Terminal
from treadle.config import Config
from treadle.housekeeping.collecting import collect
from treadle.housekeeping.retention import Collected, retention_of
from treadle.stores import open_store
from treadle.stores.sqlite import SqliteStore


def gc(days: float | None, dry: bool, as_json: bool) -> int:
    return asyncio.run(_gc(configured(), days, dry, as_json))


async def _gc(config: Config, days: float | None, dry: bool, as_json: bool) -> int:
    found = Collected()
    store = open_store(config.store)  # the one whose chats may need what is here, and no other
    if not isinstance(store, SqliteStore) or store.path.exists():
        try:
            found = await collect(store, config.home, retention_of(config.settings, days), dry=dry)
        finally:
            await store.close()
    if as_json:
        told = msgspec.to_builtins(found) | {"dry_run": dry}
        del told["line"]
        sys.stdout.buffer.write(msgspec.json.encode(told) + b"\n")
        return EXIT_OK
    terminal = Terminal()
    done = "would be removed" if dry else "removed"
    terminal.line(f"{done}: {_counted(found.images, 'kept file')} ({_size(found.bytes)})")
    rest = (
        (found.commands, "output of a command", "outputs of commands"),
        (found.captures, "snapshot of a project", "snapshots of projects"),
        (found.trees, "list of a project's files", "lists of projects' files"),
        (found.decisions, "journal", "journals"),
    )
    for number, one, many in rest:
        if number:
            terminal.line(f"{done}: {_counted(number, one, many)}")
    terminal.note(f"{_counted(found.kept_images, 'kept file')} left ({_size(found.kept_bytes)})", "dim")
    return EXIT_OK


def _counted(number: int, one: str, many: str = "") -> str:
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"


def _size(number: float) -> str:
    for unit in ("bytes", "kB", "MB"):
        if number < 1000:
            return f"{number:.0f} {unit}" if unit == "bytes" else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:.1f} GB"
