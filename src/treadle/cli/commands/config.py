"""What can be typed after `treadle config`."""

import click


@click.command("config")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(as_json: bool) -> int:
    """Show every setting and where its value comes from.

    Of keys it is only told whether they are set.
    """
    from treadle.cli.config import show_config

    return show_config(as_json)
