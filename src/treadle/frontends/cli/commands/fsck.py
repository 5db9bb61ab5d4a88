"""`treadle fsck`: look for damage, and mend what can be mended (D-06)."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from treadle.base.inert import inert_line
from treadle.errors import StoreError
from treadle.frontends.cli.group import in_loop
from treadle.frontends.cli.options import EXIT_ERROR, EXIT_OK, json_option
from treadle.frontends.cli.terminal import Terminal, write_json

if TYPE_CHECKING:
    from treadle.adapters.stores.integrity import Problem
    from treadle.library.config import Config
    from treadle.library.housekeeping.damage import Rescue
    from treadle.ports.store import Store

_TOLD = 20
"""So many chats are named that have lost something."""


@click.command("fsck")
@click.option("--repair", is_flag=True, help="Repair the damage; damaged records go into quarantine.")
@json_option("Print every problem as one line of JSON.")
@in_loop
async def fsck(repair: bool, as_json: bool) -> int:
    """Check the stored data for damage, and repair it.

    Chats, whole outputs, what is kept so that changes can be undone, and changes that a crash left half-made. The exit
    code is 1 when damage was found that is still there.
    """
    from treadle.adapters.stores import open_store
    from treadle.adapters.stores import redact_address
    from treadle.adapters.stores.sqlite import SqliteStore
    from treadle.diff.changes import count
    from treadle.frontends.cli.session import configured

    config = configured()
    terminal = Terminal()
    location = redact_address(config.store)
    store = open_store(config.store)
    if isinstance(store, SqliteStore) and not store.path.exists():
        terminal.note(f"there is no database at {location}; nothing to check", "dim")
        return EXIT_OK
    try:
        problems = list(await store.check(repair=repair))
        if isinstance(store, SqliteStore) and any(problem.kind == "database" for problem in problems):
            _tell(terminal, problems)
            return await _rescue(terminal, config, store.path)
        problems += await _inspect_snapshots(store, config, repair=repair)
    finally:
        await store.close()
    if as_json:
        for problem in problems:
            write_json(problem)
        return EXIT_ERROR if any(not problem.repaired for problem in problems) else EXIT_OK
    _tell(terminal, problems)
    unrepaired = [problem for problem in problems if not problem.repaired]
    if not problems:
        terminal.note(f"{location} is sound", "green")
    elif unrepaired and not repair:
        terminal.note(f"{count(len(unrepaired), 'problem')}; mend them with: treadle fsck --repair", "yellow")
    return EXIT_ERROR if unrepaired else EXIT_OK


async def _inspect_snapshots(store: "Store", config: "Config", *, repair: bool) -> "list[Problem]":
    """Return the problems of the data beside the database. An error while reading that data is one more problem."""
    from treadle.adapters.stores.integrity import Problem
    from treadle.library.housekeeping.damage import inspect, look_ahead
    from treadle.library.housekeeping.retention import retention_of

    try:
        problems = await inspect(store, config.home, retention_of(config.settings), repair=repair)
        return problems + await look_ahead(store, config.home, repair=repair)
    except (StoreError, OSError) as error:
        return [Problem("snapshot", f"the undo data could not be checked: {error}")]


async def _rescue(terminal: Terminal, config: "Config", path: Path) -> int:
    """Rescue a damaged database file: copy all readable records into another file, and report the rest."""
    from treadle.adapters.stores.sqlite import SqliteStore
    from treadle.library.housekeeping.damage import rescue

    try:
        saved = await rescue(path)
    except StoreError as error:
        terminal.note(f"{error}; restore a backup of {path}", "red")
        return EXIT_ERROR
    salvaged_store = SqliteStore(saved.salvaged.path)
    try:
        _tell(terminal, [*saved.problems, *await _inspect_snapshots(salvaged_store, config, repair=False)])
    finally:
        await salvaged_store.close()
    _tell_rescue(terminal, saved, path)
    return EXIT_ERROR


def _tell_rescue(terminal: Terminal, saved: "Rescue", path: Path) -> None:
    from treadle.diff.changes import count

    salvaged = saved.salvaged
    terminal.line(
        f"sound: {count(saved.intact_chats, 'chat')} of {salvaged.chats:,}, {count(salvaged.records, 'record')} in all"
    )
    for chat, number in list(saved.lost_records.items())[:_TOLD]:
        terminal.line(inert_line(f"lost: {count(number, 'record')} of {chat}"))
    if len(saved.lost_records) > _TOLD:
        terminal.line(f"lost: records of {count(len(saved.lost_records) - _TOLD, 'more chat')}")
    if not salvaged.chats:
        terminal.line("lost: everything; no chat can be read")
    if salvaged.nameless:
        terminal.line(inert_line(f"lost: what else was known of {', '.join(salvaged.nameless[:_TOLD])}"))
    terminal.note(f"salvaged into {salvaged.path}; {path} was not changed", "yellow")
    terminal.note(
        f"to go on with it: end everything that uses {path}, move it and its -wal and -shm files elsewhere, and then: "
        f"mv {salvaged.path} {path}",
        "dim",
    )


def _tell(terminal: Terminal, problems: "Sequence[Problem]") -> None:
    for problem in problems:
        place = " ".join(part for part in (problem.chat, f"seq {problem.seq}" if problem.seq else "") if part)
        mended = "mended" if problem.repaired else "found"
        terminal.line(inert_line(f"{mended}: {problem.kind}: {problem.text}" + (f" ({place})" if place else "")))
