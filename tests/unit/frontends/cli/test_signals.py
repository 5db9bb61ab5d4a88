"""Signals while a run is driven from a terminal: they end the block that listens for them, and nothing behind it
(U-01)."""

import asyncio
import contextlib
import os
import signal
from typing import cast

import pytest

from treadle.errors import Refused
from treadle.frontends.cli.drive import Signals
from treadle.library.chat import Chat


class SlowToInterrupt:
    """A chat whose run ends while the request to interrupt it is on its way."""

    def __init__(self) -> None:
        self.entered, self.open = asyncio.Event(), asyncio.Event()

    async def interrupt(self) -> None:
        self.entered.set()
        await self.open.wait()
        raise Refused("not_running", "no run is active")


@pytest.mark.parametrize("begun", [True, False])
async def test_an_interrupt_that_comes_too_late_cancels_nothing_behind_the_block(begun: bool) -> None:
    chat = SlowToInterrupt()

    async def work() -> str:
        with Signals(cast(Chat, chat)) as signals:
            signals._interrupt()
            if begun:
                await chat.entered.wait()
        chat.open.set()
        for _ in range(3):
            await asyncio.sleep(0)
        return "went on"

    (outcome,) = await asyncio.gather(asyncio.create_task(work()), return_exceptions=True)
    assert outcome == "went on"


@pytest.mark.parametrize("error", [asyncio.CancelledError, OSError])
async def test_a_signal_that_ended_the_block_leaves_no_cancellation_behind(error: type[BaseException]) -> None:
    """The block may answer the cancellation with an error of its own. Two signals may come before it has ended."""

    async def work() -> int:
        with contextlib.suppress(OSError), Signals(cast(Chat, SlowToInterrupt())) as signals:
            for number in (signal.SIGTERM, signal.SIGHUP):
                asyncio.get_running_loop().call_soon(signals._leave, number)
            try:
                await asyncio.Event().wait()
            finally:
                raise error
        await asyncio.sleep(0)
        task = asyncio.current_task()
        assert task is not None
        return task.cancelling()

    assert await asyncio.create_task(work()) == 0


async def test_an_interrupt_that_was_ignored_is_ignored_behind_the_block() -> None:
    old_handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with Signals(cast(Chat, SlowToInterrupt())):
            assert signal.getsignal(signal.SIGINT) is not signal.SIG_IGN
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, old_handler)


async def test_a_hangup_that_is_ignored_stays_ignored() -> None:
    """`nohup treadle run` goes on when its terminal closes."""
    old_handler = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Signals(cast(Chat, SlowToInterrupt())) as signals:
            os.kill(os.getpid(), signal.SIGHUP)
            await asyncio.sleep(0)
            assert signals.ended_by == 0
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, old_handler)
