"""What can be typed after `treadle keep`."""

import click


@click.command("keep")
@click.argument("words", metavar="[ID] [PATH]...", nargs=-1)
@click.option("--hunk", "hunks", multiple=True, metavar="PATH:N", help="Only this hunk, as treadle diff counts them.")
@click.option("--run", type=click.IntRange(min=1), metavar="N", help="This run instead of the last; counted from 1.")
@click.option("--all", "everything", is_flag=True, help="All runs of the chat together.")
@click.option("--json", "as_json", is_flag=True, help="Print what was kept as one JSON object.")
def command(words: tuple[str, ...], hunks: tuple[str, ...], run: int | None, everything: bool, as_json: bool) -> int:
    """Accept changes: an undo leaves them alone from then on.

    ID is a chat; without it, the newest that works in this project. Nothing in the project changes.
    """
    from treadle.cli.changes import named
    from treadle.cli.keep import keep

    return keep(named(words, hunks=hunks, run=run, everything=everything), as_json)
