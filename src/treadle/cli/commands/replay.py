"""What can be typed after `treadle replay`."""

import click


@click.command("replay")
@click.argument("chat", metavar="ID")
def command(chat: str) -> int:
    """Drive a recorded chat again, offline, and compare.

    ID is a chat's id, the beginning of it, or last. No model is called and nothing is run: what they answered is
    taken from the log. The exit code is 0 when the same events come out, and 1 when they do not.
    """
    from treadle.cli.replay import replay_chat

    return replay_chat(chat)
