"""`treadle doctor`: the capabilities of this installation, missing ones, and the strength of its sandbox (S-03).
`treadle fsck`: look for damage, and mend what can be mended (D-06). `treadle gc`: remove what is kept for undoing
changes, and of sub-agents and races, and needed no more."""

import os
import platform
import shutil
import sys
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from treadle.base.inert import make_inert_line
from treadle.errors import SandboxError, StoreError
from treadle.frontends.cli.group import run_in_loop

from treadle.frontends.cli.lazy import (  # isort: skip
    Config, asyncio, collecting, damage, diff_changes, model_registry, msgspec, retention, session, sqlite,
    stores,
)  # fmt: skip
from treadle.frontends.cli.options import AMOUNT, EXIT_ERROR, EXIT_OK, add_json_option
from treadle.frontends.cli.terminal import Terminal, write_json
from treadle.frontends.presentation.styled import Colour, Span, join_spans

if TYPE_CHECKING:
    from treadle.adapters.sandbox.choose import ChosenSandbox
    from treadle.adapters.sandbox.trial_folders import EscapeResult, Verdict
    from treadle.adapters.stores.packing import Problem
    from treadle.ports.sandbox import Level
    from treadle.ports.store import Store

_NAMED_CHATS = 20  # so many chats are named that have lost something
_COLOURS: "dict[Verdict, Colour]" = {"refused": "green", "undone": "yellow", "allowed": "red"}


class Finding(NamedTuple):
    """One line of the overview. `well` is None where it is a matter of taste."""

    subject: str
    text: str
    well: bool | None = True


@click.group("doctor", invoke_without_command=True)
@click.pass_context
def doctor(context: click.Context) -> int:
    """Check this installation, and try to escape from the sandbox.

    The exit code is 1 when something that Treadle needs is missing or does not work."""
    if context.invoked_subcommand is not None:
        return 0
    findings = list(_look_around(session.load_config()))
    terminal = Terminal()
    width = max(len(each.subject) for each in findings)
    for each in findings:
        sign = Span("✓", ("green",)) if each.well else "·" if each.well is None else Span("✗", ("red",))
        terminal.write_line(join_spans(sign, f" {each.subject:{width}}  {make_inert_line(each.text)}"))
    return EXIT_ERROR if any(each.well is False for each in findings) else EXIT_OK


@doctor.command("sandbox")
@add_json_option("Print one JSON object.")
def sandbox(as_json: bool) -> int:
    """Try every way out of every sandbox, and show which ones are closed.

    All attempts are made for real, against files, listeners and a process that are set up for them. The exit code is 1
    when commands run without a sandbox, or cannot run because the one that is set does not hold here. The second table
    is of commands that go through Treadle as in an unattended chat."""
    from treadle.adapters.sandbox.choose import FOLDER, choose, examine
    from treadle.adapters.sandbox.probe import examine_level
    from treadle.adapters.sandbox.trial_folders import ESCAPES
    from treadle.library.housekeeping.command_trials import TRIALS, try_commands

    config = session.load_config()
    findings = examine(config.home)
    unconfined = examine_level("none", "", config.home / FOLDER)
    demand = config.settings.sandbox
    levels = [each.level for each in findings.reports if each.holds and demand in ("auto", each.level)]
    commands = {level: asyncio.run(try_commands(config.home, level)) for level in levels}
    level, failure = "", ""
    try:
        choice = choose(config.home, demand)
        level, in_force = choice.level, _describe_sandbox(choice)
    except SandboxError as error:
        failure, in_force = str(error), f"nothing, commands do not run: {error}"
    if as_json:
        reports = [msgspec.to_builtins(each) | {"holds": each.holds} for each in findings.reports]
        write_json({"level": level, "failure": failure, "reports": reports, "commands": commands})
    else:
        terminal = Terminal()
        tables = {each.level: each.tried for each in (*findings.reports, unconfined) if each.tried}
        _print_table(terminal, [each.text for each in ESCAPES], tables)
        if commands:
            _print_table(terminal, [each.text for each in TRIALS], commands)
        for report in findings.reports:
            if report.failure:
                terminal.write_line(make_inert_line(f"{report.level} does not work here: {report.failure}"))
        terminal.write_line(make_inert_line(f"in force: {in_force}"))
    return EXIT_OK if level not in ("", "none") else EXIT_ERROR


def _look_around(config: "Config") -> Iterator[Finding]:
    import sqlite3

    yield Finding("python", f"{platform.python_version()} ({sys.executable})")
    yield Finding("sqlite", sqlite3.sqlite_version, sqlite3.sqlite_version_info >= (3, 35))
    home = config.home
    nearest = next(path for path in (home, *home.parents) if path.exists())
    well = os.access(nearest, os.W_OK | os.X_OK) and nearest.is_dir()
    yield Finding("home", f"{home}" if well else f"{home} cannot be written to", well)
    yield from _inspect_sandbox(config)
    search = shutil.which("rg", path=os.pathsep.join([sysconfig.get_path("scripts"), os.environ.get("PATH", "")]))
    yield Finding("search", search or "no rg; searching is slower without it", True if search else None)
    git = shutil.which("git")
    yield Finding("git", git or "no git; projects without it work, too", True if git else None)
    # No server is asked, so that only a model on this machine is known to be well.
    registry = model_registry.ModelRegistry(os.environ, home=home)
    offers = [offer for offer in model_registry.list_offers(registry) if offer.models]
    states = {offer.provider: model_registry.get_provider_state(registry, offer) for offer in offers}
    ready = [provider for provider, state in states.items() if state == "ready"]
    unasked = ", ".join(provider for provider, state in states.items() if state == "not asked")
    parts = [*ready, *([f"{unasked} (not asked; treadle models --remote asks)"] if unasked else [])]
    nothing = "no key and no server is known yet; treadle models --all shows what is missing"
    yield Finding("models", "; ".join(parts) or nothing, True if ready else None)


def _inspect_sandbox(config: "Config") -> Iterator[Finding]:
    from treadle.adapters.policy.secret_files import SEARCH_LIMITS
    from treadle.adapters.sandbox.choose import choose
    from treadle.ports.sandbox import HIDING

    try:
        choice = choose(config.home, config.settings.sandbox)
    except SandboxError as error:
        yield Finding("sandbox", str(error), well=False)
        return
    well_without_sandbox = None if config.settings.sandbox == "none" else False
    yield Finding("sandbox", _describe_sandbox(choice), well=True if choice.level != "none" else well_without_sandbox)
    if choice.level in HIDING:
        yield Finding("secrets", f"files with secrets look empty to commands, except {SEARCH_LIMITS}")
    else:
        readable = "commands can read files with secrets: only bubblewrap and sandbox-exec hide them"
        yield Finding("secrets", readable, well=None)


def _describe_sandbox(choice: "ChosenSandbox") -> str:
    views = ", with copy-on-write views" if choice.sandbox.views else ""
    reasons = f" ({'; '.join(choice.reasons)})" if choice.reasons else ""
    return f"{choice.level}{views}{reasons}"


def _print_table(terminal: Terminal, texts: Sequence[str], columns: "Mapping[Level, Sequence[EscapeResult]]") -> None:
    width = max(len(text) for text in texts)
    terminal.write_line(" " * width + "".join(f"  {level:12}" for level in columns).rstrip())
    for number, text in enumerate(texts):
        *verdicts, last = (results[number].verdict for results in columns.values())
        cells = [Span(f"  {each:12}", (_COLOURS[each],)) for each in verdicts]
        terminal.write_line(join_spans(f"{text:{width}}", *cells, Span(f"  {last}", (_COLOURS[last],))))
    terminal.write_line()


@click.command("fsck")
@click.option("--repair", is_flag=True, help="Repair the damage; damaged records go into quarantine.")
@add_json_option("Print every problem as one line of JSON.")
@run_in_loop
async def fsck(repair: bool, as_json: bool) -> int:
    """Check the stored data for damage, and repair it.

    Chats, whole outputs, what is kept so that changes can be undone, and changes that a crash left half-made. The exit
    code is 1 when damage was found that is still there."""
    config = session.load_config()
    terminal = Terminal()
    location = stores.redact_address(config.store)
    store = stores.open_store(config.store)
    if isinstance(store, sqlite.SqliteStore) and not store.path.exists():
        terminal.write_note(f"there is no database at {location}; nothing to check", "dim")
        return EXIT_OK
    try:
        problems = list(await store.check(repair=repair))
        if isinstance(store, sqlite.SqliteStore) and any(problem.kind == "database" for problem in problems):
            _tell(terminal, problems)
            return await _rescue(terminal, config, store.path)
        problems += await _inspect_snapshots(store, config, repair=repair)
    finally:
        await store.close()
    unrepaired = [problem for problem in problems if not problem.repaired]
    if as_json:
        for problem in problems:
            write_json(problem)
        return EXIT_ERROR if unrepaired else EXIT_OK
    _tell(terminal, problems)
    if not problems:
        terminal.write_note(f"{location} is sound", "green")
    elif unrepaired and not repair:
        problem_count = diff_changes.count(len(unrepaired), "problem")
        terminal.write_note(f"{problem_count}; mend them with: treadle fsck --repair", "yellow")
    return EXIT_ERROR if unrepaired else EXIT_OK


async def _inspect_snapshots(store: "Store", config: "Config", *, repair: bool) -> "list[Problem]":
    """Return the problems of the data beside the database. An error while reading that data is one more problem."""
    from treadle.adapters.stores.packing import Problem

    try:
        problems = await damage.inspect(store, config.home, retention.make_retention(config.settings), repair=repair)
        return problems + await damage.look_ahead(store, config.home, repair=repair)
    except (StoreError, OSError) as error:
        return [Problem("snapshot", f"the undo data could not be checked: {error}")]


async def _rescue(terminal: Terminal, config: "Config", path: Path) -> int:
    """Rescue a damaged database file: copy all readable records into another file, and report the rest."""
    try:
        saved = await damage.rescue(path)
    except StoreError as error:
        terminal.write_note(f"{error}; restore a backup of {path}", "red")
        return EXIT_ERROR
    salvaged_store = sqlite.SqliteStore(saved.salvaged.path)
    try:
        _tell(terminal, [*saved.problems, *await _inspect_snapshots(salvaged_store, config, repair=False)])
    finally:
        await salvaged_store.close()
    salvaged = saved.salvaged
    records = diff_changes.count(salvaged.records, "record")
    intact_chats = diff_changes.count(saved.intact_chats, "chat")
    terminal.write_line(f"sound: {intact_chats} of {salvaged.chats:,}, {records} in all")
    for chat, number in list(saved.lost_records.items())[:_NAMED_CHATS]:
        terminal.write_line(make_inert_line(f"lost: {diff_changes.count(number, 'record')} of {chat}"))
    if len(saved.lost_records) > _NAMED_CHATS:
        unnamed_chats = diff_changes.count(len(saved.lost_records) - _NAMED_CHATS, "more chat")
        terminal.write_line(f"lost: records of {unnamed_chats}")
    if not salvaged.chats:
        terminal.write_line("lost: everything; no chat can be read")
    if salvaged.nameless:
        names = ", ".join(salvaged.nameless[:_NAMED_CHATS])
        terminal.write_line(make_inert_line(f"lost: what else was known of {names}"))
    terminal.write_note(f"salvaged into {salvaged.path}; {path} was not changed", "yellow")
    terminal.write_note(
        f"to go on with it: end everything that uses {path}, move it and its -wal and -shm files elsewhere, and then: "
        f"mv {salvaged.path} {path}",
        "dim",
    )
    return EXIT_ERROR


def _tell(terminal: Terminal, problems: "Sequence[Problem]") -> None:
    for problem in problems:
        place = " ".join(part for part in (problem.chat, f"seq {problem.seq}" if problem.seq else "") if part)
        mended = "mended" if problem.repaired else "found"
        suffix = f" ({place})" if place else ""
        terminal.write_line(make_inert_line(f"{mended}: {problem.kind}: {problem.text}{suffix}"))


@click.command("gc")
@click.option(
    "--older-than",
    "days",
    type=AMOUNT,
    metavar="DAYS",
    help="Keep the data of chats that changed within this many days, instead of snapshot_days and world_days.",
)
@click.option("--dry-run", is_flag=True, help="Show what would be removed, and remove nothing.")
@add_json_option("Print one JSON object.")
@run_in_loop
async def gc(days: float | None, dry_run: bool, as_json: bool) -> None:
    """Remove undo data that is no longer needed.

    The changes of a chat can be undone as long as their data is kept: for 30 days after the chat last changed, or until
    all of it takes more than 5 GB, when the oldest goes first. Data that was used within a day, or that a chat at work
    refers to, always stays.

    The worlds of sub-agents and of a race's attempts go 14 days (world_days) after their chats, and the chat that began
    them, last changed. Worlds that you opened yourself stay until you drop them."""
    config = session.load_config()
    collected = retention.Collected()
    store = stores.open_store(config.store)  # the one whose chats may need what is here, and no other
    if not isinstance(store, sqlite.SqliteStore) or store.path.exists():
        try:
            keeping = retention.make_retention(config.settings, days)
            collected = await collecting.collect(store, config.home, keeping, dry=dry_run)
        finally:
            await store.close()
    if as_json:
        report = msgspec.to_builtins(collected) | {"dry_run": dry_run}
        del report["line"]
        return write_json(report)
    terminal = Terminal()
    heading = "would be removed" if dry_run else "removed"
    kept_files = diff_changes.count(collected.images, "kept file")
    terminal.write_line(f"{heading}: {kept_files} ({_format_size(collected.bytes)})")
    other_counts = (
        (collected.commands, "output of a command", "outputs of commands"),
        (collected.captures, "snapshot of a project", "snapshots of projects"),
        (collected.trees, "list of a project's files", "lists of projects' files"),
        (collected.decisions, "journal", "journals"),
        (collected.worlds, "world of a sub-agent or a race", "worlds of sub-agents and races"),
    )
    for number, one, many in other_counts:
        if number:
            terminal.write_line(f"{heading}: {number:,} {one if number == 1 else many}")
    kept_files = diff_changes.count(collected.kept_images, "kept file")
    terminal.write_note(f"{kept_files} left ({_format_size(collected.kept_bytes)})", "dim")


def _format_size(number: float) -> str:
    for unit in ("bytes", "kB", "MB"):
        if number < 1000:
            return f"{number:.0f} {unit}" if unit == "bytes" else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:.1f} GB"
