"""What can be typed after `treadle diff`."""

import click


@click.command("diff")
@click.argument("words", metavar="[ID] [PATH]...", nargs=-1)
@click.option("--run", type=click.IntRange(min=1), metavar="N", help="This run instead of the last; counted from 1.")
@click.option("--all", "everything", is_flag=True, help="All runs of the chat together.")
@click.option("--runs", is_flag=True, help="List the runs that may have changed files, with their numbers.")
@click.option("--stat", is_flag=True, help="Only which files, and how many lines.")
@click.option("--even-kept", is_flag=True, help="Also what was kept.")
@click.option("--caches", is_flag=True, help="Also caches and what .gitignore names, file by file.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a file.")
def command(
    words: tuple[str, ...],
    run: int | None,
    everything: bool,
    runs: bool,
    stat: bool,
    even_kept: bool,
    caches: bool,
    as_json: bool,
) -> int:
    """Show what a run changed in the project, hunk by hunk.

    ID is a chat; without it, the newest that works in this project. PATH limits it to files, or what is below folders.
    What was undone or kept is left out.
    """
    from treadle.cli.changes import named
    from treadle.cli.diff import diff

    wanted = named(words, run=run, everything=everything, even_kept=even_kept, caches=caches)
    return diff(wanted, stat=stat, runs=runs, as_json=as_json)
