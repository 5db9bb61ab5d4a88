"""What can be typed after `treadle show`."""

import click


@click.command("show")
@click.argument("chat", metavar="ID")
@click.option("--all", "everything", is_flag=True, help="Show all of a long chat, not only its end.")
@click.option("--short", is_flag=True, help="One line for calls that follow each other.")
@click.option("--json", "as_json", is_flag=True, help="Print the chat as one JSON object.")
def command(chat: str, everything: bool, short: bool, as_json: bool) -> int:
    """Show a chat from its log.

    ID is a chat's id, the beginning of it, or last. For the events themselves see export.
    """
    from treadle.cli.show import show

    return show(chat, everything, short, as_json)
