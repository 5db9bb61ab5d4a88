"""What can be typed after `treadle gc`."""

import click


@click.command("gc")
@click.option(
    "--older-than",
    "days",
    type=click.FloatRange(min=0),
    metavar="DAYS",
    help="Keep what chats refer to that changed within so many days, instead of the setting snapshot_days.",
)
@click.option("--dry-run", is_flag=True, help="Only say what would be removed.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(days: float | None, dry_run: bool, as_json: bool) -> int:
    """Remove what is kept for undoing changes and needed no more.

    What a chat changed can be undone as long as it is kept: for 30 days after the chat last changed, or until all of it
    takes more than 5 GB, when the oldest goes first. What was used within a day, and what a chat at work refers to,
    always stays.
    """
    from treadle.cli.gc import gc

    return gc(days, dry_run, as_json)
