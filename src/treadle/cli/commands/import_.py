"""What can be typed after `treadle import`."""

import click


@click.command("import")
@click.argument("file")
@click.option("--new-id", is_flag=True, help="Give the chat a new id, for instance because its own is taken.")
@click.option("--owner", default="", metavar="USER", help="Give the chat to this user of the server; else it is yours.")
def command(file: str, new_id: bool, owner: str) -> int:
    """Read a chat from JSON lines.

    FILE is what export wrote; - reads standard input. Prints the chat's id. A wrong line is named, and then nothing
    is imported; nor is anything of a file that was cut.

    What the chat may do is decided here: its model, mode, rules, sandbox, budgets and project are those of a new chat.
    What was under way there is ended, not continued.
    """
    from treadle.cli.import_ import import_file

    return import_file(file, new_id, owner)
