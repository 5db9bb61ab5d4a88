"""What can be typed after `treadle fsck`."""

import click


@click.command("fsck")
@click.option("--repair", is_flag=True, help="Mend what can be mended; damaged records go into quarantine.")
def command(repair: bool) -> int:
    """Look for damage in what is stored, and mend it.

    Chats, whole outputs, what is kept so that changes can be undone, and changes that a crash left half-made. The exit
    code is 1 when damage was found that is still there.
    """
    from treadle.cli.fsck import fsck

    return fsck(repair)
