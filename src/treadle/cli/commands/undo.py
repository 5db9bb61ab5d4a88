"""What can be typed after `treadle undo`."""

import click


@click.command("undo")
@click.argument("words", metavar="[ID] [PATH]...", nargs=-1)
@click.option("--hunk", "hunks", multiple=True, metavar="PATH:N", help="Only this hunk, as treadle diff counts them.")
@click.option("--run", type=click.IntRange(min=1), metavar="N", help="This run instead of the last; counted from 1.")
@click.option("--all", "everything", is_flag=True, help="All runs of the chat together.")
@click.option("--to", type=click.IntRange(min=1), metavar="MESSAGE", help="Go back to before this message.")
@click.option("--conversation", is_flag=True, help="With --to only the conversation.")
@click.option("--files", is_flag=True, help="With --to only the files.")
@click.option("--merge", is_flag=True, help="Merge files that somebody has changed since, and do not leave them alone.")
@click.option("--even-kept", is_flag=True, help="Also what was kept.")
@click.option("--preview", "-n", is_flag=True, help="Only show what would be done.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@click.option("--json", "as_json", is_flag=True, help="Print what was done as one JSON object, and do not ask.")
def command(
    words: tuple[str, ...],
    hunks: tuple[str, ...],
    run: int | None,
    everything: bool,
    to: int | None,
    conversation: bool,
    files: bool,
    merge: bool,
    even_kept: bool,
    preview: bool,
    yes: bool,
    as_json: bool,
) -> int:
    """Take back what a run did to the project: all of it, files or hunks.

    ID is a chat; without it, the newest that works in this project. PATH limits it to files, or what is below folders.
    A file that somebody has changed since is left alone. An undo can be taken back with redo.
    """
    from treadle.cli.changes import named
    from treadle.cli.undo import How, undo

    wanted = named(words, hunks=hunks, run=run, everything=everything, even_kept=even_kept)
    both = conversation == files
    how = How(to, conversation or both, files or both, merge, preview, yes)
    return undo(wanted, how, as_json)
