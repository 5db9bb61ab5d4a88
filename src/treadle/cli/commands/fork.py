"""What can be typed after `treadle fork`."""

import click


@click.command("fork")
@click.argument("point", metavar="ID[@SEQ]")
@click.option("--model", metavar="PROVIDER:NAME", help="The model of the new chat.")
def command(point: str, model: str | None) -> int:
    """Begin a new chat as a copy of another up to a point.

    ID is a chat's id, the beginning of it, or last. SEQ is the number of its last event in the copy; without it
    everything is copied. Prints the id of the copy; go on with treadle run --chat.
    """
    from treadle.cli.fork import fork_chat

    return fork_chat(point, model)
