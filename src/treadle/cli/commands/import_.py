"""What can be typed after `treadle import`."""

import click


@click.command("import")
@click.argument("file")
@click.option("--new-id", is_flag=True, help="Give the chat a new id, for instance because its own is taken.")
def command(file: str, new_id: bool) -> int:
    """Read a chat from JSON lines.

    FILE is what export wrote; - reads standard input. Prints the chat's id. A wrong line is named, and then nothing
    is imported.
    """
    from treadle.cli.import_ import import_file

    return import_file(file, new_id)
