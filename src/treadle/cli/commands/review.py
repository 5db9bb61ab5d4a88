"""What can be typed after `treadle review`."""

import click


@click.command("review")
@click.argument("words", metavar="[ID] [PATH]...", nargs=-1)
@click.option("--run", type=click.IntRange(min=1), metavar="N", help="This run instead of the last; counted from 1.")
@click.option("--all", "everything", is_flag=True, help="All runs of the chat together.")
@click.option("--caches", is_flag=True, help="Also caches and what .gitignore names, file by file.")
def command(words: tuple[str, ...], run: int | None, everything: bool, caches: bool) -> int:
    """Show a run's work in one piece: task, commands, changes.

    ID is a chat; without it, the newest that works in this project.
    """
    from treadle.cli.changes import named
    from treadle.cli.review import review

    return review(named(words, run=run, everything=everything, caches=caches))
