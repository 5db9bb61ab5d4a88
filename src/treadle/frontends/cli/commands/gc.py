"""`treadle gc`: remove what is kept for undoing changes, and of sub-agents and races, and needed no more."""

import click

from treadle.frontends.cli.group import in_loop
from treadle.frontends.cli.options import FiniteFloat, json_option
from treadle.frontends.cli.terminal import Terminal, write_json


@click.command("gc")
@click.option(
    "--older-than",
    "days",
    type=FiniteFloat(min=0),
    metavar="DAYS",
    help="Keep the data of chats that changed within this many days, instead of snapshot_days and world_days.",
)
@click.option("--dry-run", is_flag=True, help="Show what would be removed, and remove nothing.")
@json_option("Print one JSON object.")
@in_loop
async def gc(days: float | None, dry_run: bool, as_json: bool) -> None:
    """Remove undo data that is no longer needed.

    The changes of a chat can be undone as long as their data is kept: for 30 days after the chat last changed, or until
    all of it takes more than 5 GB, when the oldest goes first. Data that was used within a day, or that a chat at work
    refers to, always stays.

    The worlds of sub-agents and of a race's attempts go 14 days (world_days) after their chats, and the chat that began
    them, last changed. Worlds that you opened yourself stay until you drop them.
    """
    import msgspec

    from treadle.adapters.stores import open_store
    from treadle.adapters.stores.sqlite import SqliteStore
    from treadle.frontends.cli.session import configured
    from treadle.library.housekeeping.collecting import collect
    from treadle.library.housekeeping.retention import Collected, retention_of

    config = configured()
    collected = Collected()
    store = open_store(config.store)  # the one whose chats may need what is here, and no other
    if not isinstance(store, SqliteStore) or store.path.exists():
        try:
            collected = await collect(store, config.home, retention_of(config.settings, days), dry=dry_run)
        finally:
            await store.close()
    if as_json:
        report = msgspec.to_builtins(collected) | {"dry_run": dry_run}
        del report["line"]
        write_json(report)
        return
    terminal = Terminal()
    heading = "would be removed" if dry_run else "removed"
    terminal.line(f"{heading}: {_counted(collected.images, 'kept file')} ({_size(collected.bytes)})")
    other_counts = (
        (collected.commands, "output of a command", "outputs of commands"),
        (collected.captures, "snapshot of a project", "snapshots of projects"),
        (collected.trees, "list of a project's files", "lists of projects' files"),
        (collected.decisions, "journal", "journals"),
        (collected.worlds, "world of a sub-agent or a race", "worlds of sub-agents and races"),
    )
    for number, one, many in other_counts:
        if number:
            terminal.line(f"{heading}: {_counted(number, one, many)}")
    terminal.note(f"{_counted(collected.kept_images, 'kept file')} left ({_size(collected.kept_bytes)})", "dim")


def _counted(number: int, one: str, many: str = "") -> str:
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"


def _size(number: float) -> str:
    for unit in ("bytes", "kB", "MB"):
        if number < 1000:
            return f"{number:.0f} {unit}" if unit == "bytes" else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:.1f} GB"
