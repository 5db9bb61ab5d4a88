"""What can be typed after `treadle config`."""

import click


@click.command("config")
@click.option("--chat", metavar="ID", help="Show the options of this chat instead, and which of them are its own.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(chat: str | None, as_json: bool) -> int:
    """Show every setting and where its value comes from.

    Of keys it is only told whether they are set. A chat keeps the options with which it was made or to which it was
    changed: with --chat those are shown, and where each comes from that is as the settings have it.
    """
    from treadle.cli.config import show_config

    return show_config(as_json, chat or "")
