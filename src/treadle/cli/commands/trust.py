"""What can be typed after `treadle trust`."""

import click


@click.command("trust")
@click.argument("paths", nargs=-1, metavar="[FILE]...")
@click.option("--json", "as_json", is_flag=True, help="Print the list as one JSON object a line.")
def command(paths: tuple[str, ...], as_json: bool) -> int:
    """Let Treadle honour a file of a repository, such as its hooks.

    It is trusted as long as its content stays the same. Without FILE it lists what is trusted, and what this project
    has that is not.
    """
    from treadle.cli.trust import list_trust, trust

    return trust(paths) if paths else list_trust(as_json)
