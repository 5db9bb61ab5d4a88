"""What can be typed after `treadle redo`."""

import click


@click.command("redo")
@click.argument("chat", metavar="[ID]", default="")
@click.option("--merge", is_flag=True, help="Merge files that somebody has changed since, and do not leave them alone.")
@click.option("--json", "as_json", is_flag=True, help="Print what was done as one JSON object.")
def command(chat: str, merge: bool, as_json: bool) -> int:
    """Take an undo back.

    ID is a chat; without it, the newest that works in this project. It is the last undo that was not redone.
    """
    from treadle.cli.changes import Named
    from treadle.cli.redo import redo

    return redo(Named(chat), merge, as_json)
