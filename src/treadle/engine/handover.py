"""Handles calls that a worker cannot complete: because another worker has the chat now, or because it must exit while a
command still runs. Only processes that outlive a worker matter here; the rest ends with it, and recovery settles it as
usual."""

import contextlib

from treadle.base.types import CallKey
from treadle.chat.state import ChatState, OpenCheck
from treadle.engine.checks import stop_check
from treadle.engine.deps import Deps
from treadle.engine.examination import find_begun_call
from treadle.engine.recovery import open_keys, settle_calls
from treadle.engine.tenure import WATCH_S, Tenure
from treadle.engine.tool_calls import stop
from treadle.errors import LeaseLost
from treadle.ports.toolset import Invocation, Tool
from treadle.protocol.events import CheckCompleted


async def withdraw(tenure: Tenure, deps: Deps) -> None:
    """The lease is lost (fault 4). A command of this worker belongs to the worker that took the chat over, which may
    collect it if it runs on this machine. As soon as the log has its result, the command has no purpose any more and is
    ended; nothing is written."""
    tenure.state = tenure.under_way or tenure.state
    mine = set(open_keys(tenure.state))
    while mine:
        state = await deps.log.load(tenure.state.chat)
        for key in mine.difference(open_keys(state)):
            with contextlib.suppress(LeaseLost):
                await _end(tenure, key, deps)
        mine.intersection_update(open_keys(state))
        if mine:
            await deps.store.wait(state.chat, state.head, WATCH_S)


async def close_calls(tenure: Tenure, deps: Deps) -> None:
    """End the running commands and record their results, because this worker must exit and the next one may be on
    another machine, where their outcome could not be found out. Calls that may be repeated are left to be repeated."""
    for key in open_keys(tenure.state):
        if _check_of(tenure.state, key) is not None:
            await _end(tenure, key, deps)
            await tenure.record(CheckCompleted(key, False, synthetic="lost"))
        elif (started_call := _find_call_by_key(tenure, key, deps)) and not (
            started_call[0].spec.read_only or started_call[0].spec.idempotent
        ):
            await _end(tenure, key, deps)
            for call in tenure.state.calls:
                if call.key == key and call.phase == "started":
                    await settle_calls(tenure, [call], deps)


async def _end(tenure: Tenure, key: CallKey, deps: Deps) -> None:
    if (check := _check_of(tenure.state, key)) is not None:
        await stop_check(tenure, check, deps)
    if (started_call := _find_call_by_key(tenure, key, deps)) is not None:
        await stop(tenure, *started_call, deps)


def _check_of(state: ChatState, key: CallKey) -> OpenCheck | None:
    check = state.run.check if state.run is not None else None
    return check if check is not None and check.check == key else None


def _find_call_by_key(tenure: Tenure, key: CallKey, deps: Deps) -> tuple[Tool, Invocation] | None:
    return next((find_begun_call(tenure, call, deps) for call in tenure.state.calls if call.key == key), None)
