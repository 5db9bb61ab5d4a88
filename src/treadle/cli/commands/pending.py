"""What can be typed after `treadle pending`."""

import click


@click.command("pending")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")
def command(as_json: bool) -> int:
    """List what chats ask of a person.

    Each with the id that approve takes, what would be done, how dangerous it is, and why it is asked.
    """
    from treadle.cli.approvals import pending

    return pending(as_json)
