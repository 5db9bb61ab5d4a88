"""What can be typed after `treadle chats`."""

import click


@click.command("chats")
@click.option("--all", "everything", is_flag=True, help="Show all chats, archived ones too.")
@click.option("--json", "as_json", is_flag=True, help="Print every chat as one line of JSON.")
def command(everything: bool, as_json: bool) -> int:
    """List the chats, newest first."""
    from treadle.cli.chats import list_chats

    return list_chats(everything, as_json)
