"""What can be typed after `treadle export`."""

import click


@click.command("export")
@click.argument("chat", metavar="ID")
def command(chat: str) -> int:
    """Write a chat to standard output as JSON lines.

    ID is a chat's id, the beginning of it, or last. Every line is an event with its seq and type; what lies outside
    the log travels with the event that names it, so that the file is complete.
    """
    from treadle.cli.export import export

    return export(chat)
