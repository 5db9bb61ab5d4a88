"""What can be typed after `treadle untrust`."""

import click


@click.command("untrust")
@click.argument("paths", nargs=-1, required=True, metavar="FILE...")
def command(paths: tuple[str, ...]) -> int:
    """Take back the trust in a file of a repository."""
    from treadle.cli.trust import untrust

    return untrust(paths)
