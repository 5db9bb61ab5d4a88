"""A block of a task that others may cancel, and what becomes of the task."""

import asyncio

import pytest

from treadle.engine.tenure import CancelScope


async def test_a_cancelled_block_ends_and_its_task_goes_on() -> None:
    scope = CancelScope()
    endings: list[str] = []

    async def work() -> str:
        with scope:
            try:
                await asyncio.Event().wait()
            finally:
                endings.append("block")
        await asyncio.sleep(0)
        return "on"

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    scope.cancel()
    scope.cancel()  # once is enough
    assert await task == "on"
    assert (endings, scope.cancelled, task.cancelling()) == (["block"], True, 0)


@pytest.mark.parametrize("scope_first", [True, False])
async def test_who_cancels_the_task_itself_ends_it_too(scope_first: bool) -> None:
    scope = CancelScope()

    async def work() -> None:
        with scope:
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    for cancel in (scope.cancel, task.cancel) if scope_first else (task.cancel, scope.cancel):
        cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_only_the_block_that_was_cancelled_ends() -> None:
    outer, inner = CancelScope(), CancelScope()
    steps: list[str] = []
    between = asyncio.Event()

    async def work() -> None:
        with outer:
            with inner:
                await asyncio.Event().wait()
            steps.append("behind the inner one")
            between.set()
            await asyncio.Event().wait()
        steps.append("behind the outer one")

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    inner.cancel()
    await between.wait()
    outer.cancel()
    await task
    assert steps == ["behind the inner one", "behind the outer one"]


async def test_another_error_comes_through() -> None:
    scope = CancelScope()

    async def work() -> None:
        with scope:
            try:
                await asyncio.Event().wait()
            finally:
                raise ValueError("while it ended")

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    scope.cancel()
    with pytest.raises(ValueError, match="while it ended"):
        await task
    assert task.cancelling() == 0


async def test_a_block_that_is_closed_comes_to_its_end() -> None:
    scope = CancelScope()

    async def work() -> str:
        with scope:
            scope.close()
            await asyncio.sleep(0)
            return "done"

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    scope.cancel()
    assert (await task, scope.cancelled, task.cancelling()) == ("done", False, 0)
