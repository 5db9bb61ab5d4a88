"""What can be typed after `treadle worker`."""

from typing import Any

import click


@click.command("worker")
@click.option("--store", metavar="PLACE", help="Where chats are kept: a file, or postgresql://USER@HOST/NAME.")
@click.option("--concurrency", type=click.IntRange(min=1), metavar="N", help="How many chats to drive at once.")
@click.option("--drain-s", type=click.FloatRange(min=0), metavar="S", help="How long to let steps end on SIGTERM.")
def command(**flags: Any) -> int:
    """Drive the chats that need a worker, until it is told to stop.

    SIGTERM or Ctrl-C drains: nothing more is taken, and what is under way is brought to its record. A second one leaves
    at once. Either way the chats can be taken up by another worker.
    """
    from treadle.cli.worker import work

    return work(flags)
