"""`treadle worker`: a process that drives all chats that need a worker. Any number of workers may share a database;
when one ends, by a signal or by dying, another takes its chats over (A-10)."""

import signal
from typing import Any

import click

from treadle.base.inert import print_note
from treadle.frontends.cli.group import in_loop
from treadle.frontends.cli.options import FiniteFloat, store_option


@click.command("worker")
@store_option
@click.option("--concurrency", type=click.IntRange(min=1), metavar="N", help="How many chats to drive at once.")
@click.option("--drain-s", type=FiniteFloat(min=0), metavar="S", help="How long to let steps end on SIGTERM.")
@in_loop
async def worker(**flags: Any) -> None:
    """Drive the chats that need a worker, until stopped.

    SIGTERM or Ctrl-C drains: nothing more is taken, and what is under way is brought to its record. A second one leaves
    at once. Either way the chats can be taken up by another worker.
    """
    import asyncio

    from treadle.engine.pool import WorkerPool
    from treadle.frontends.cli.session import configured, open_agent
    from treadle.library.housekeeping.retention import retention_of
    from treadle.library.housekeeping.tending import tended

    config = configured(flags)
    settings = config.settings
    async with open_agent(config, works=True, concurrency=settings.concurrency, relays=True, stays=True) as agent:
        pool = WorkerPool(agent.worker)
        to_drain, to_leave = asyncio.Event(), asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(
                number, lambda: (to_leave if to_drain.is_set() else to_drain).set()
            )
        pool.start()
        _say(f"worker {agent.worker.name} takes up to {settings.concurrency} chats at once")
        async with tended(agent.deps.store, config.home, retention_of(settings), agent.job_registry):
            await to_drain.wait()
        _say("draining; a second signal leaves at once")
        await pool.drain(settings.drain_s, to_leave)


def _say(text: str) -> None:
    print_note(f"treadle: {text}")
