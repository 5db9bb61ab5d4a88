"""What can be typed after `treadle diff-runs`."""

import click


@click.command("diff-runs")
@click.argument("left", metavar="A")
@click.argument("right", metavar="B")
def command(left: str, right: str) -> int:
    """Find the first difference between two chats.

    A and B are chats' ids, the beginnings of them, or last. Times, ids and folders do not count. The exit code is 0
    when there is no difference, and 1 when there is one.
    """
    from treadle.cli.diff_runs import diff_runs

    return diff_runs(left, right)
