"""`treadle fsck`: look for damage, and mend what can be mended (D-06)."""

import asyncio

from treadle.cli.drive import EXIT_ERROR, EXIT_OK
from treadle.cli.inert import inert_line
from treadle.cli.session import configured
from treadle.cli.terminal import Terminal
from treadle.config import Config
from treadle.housekeeping.damage import inspect
from treadle.housekeeping.retention import retention_of
from treadle.stores.address import open_store, shown
from treadle.stores.sqlite import SqliteStore


def fsck(repair: bool) -> int:
    return asyncio.run(_fsck(configured(), repair))


async def _fsck(config: Config, repair: bool) -> int:
    terminal = Terminal()
    where = shown(config.store)
    store = open_store(config.store)
    if isinstance(store, SqliteStore) and not store.path.exists():
        terminal.note(f"there is no database at {where}; nothing to check", "dim")
        return EXIT_OK
    try:
        problems = list(await store.check(repair=repair))
        problems += await inspect(store, config.home, retention_of(config.settings), repair=repair)
    finally:
        await store.close()
    for problem in problems:
        place = " ".join(part for part in (problem.chat, f"seq {problem.seq}" if problem.seq else "") if part)
        mended = "mended" if problem.repaired else "found"
        terminal.line(inert_line(f"{mended}: {problem.kind}: {problem.text}" + (f" ({place})" if place else "")))
    left = [problem for problem in problems if not problem.repaired]
    if not problems:
        terminal.note(f"{where} is sound", "green")
    elif left and not repair:
        terminal.note(f"{len(left)} problems; mend them with: treadle fsck --repair", "yellow")
    return EXIT_ERROR if left else EXIT_OK
