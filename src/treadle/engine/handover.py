"""What a worker owes to calls that it cannot see through: because another worker has the chat now, or because it must
go while a command still runs. Only what outlives a worker matters here; the rest ends with it, and is settled by
recovery as ever."""

import contextlib

from treadle.chat.state import ChatState, OpenCheck
from treadle.engine.checks import stop_check
from treadle.engine.deps import Deps
from treadle.engine.examination import begun
from treadle.engine.recovery import open_keys, settle_calls
from treadle.engine.tenure import WATCH_S, Tenure
from treadle.engine.tool_calls import stop
from treadle.errors import LeaseLost
from treadle.ports.toolset import Invocation, Tool
from treadle.protocol.events import CheckCompleted
from treadle.types import CallKey


async def withdraw(tenure: Tenure, deps: Deps) -> None:
    """The lease is lost (fault 4). A command of this worker belongs to whoever took the chat over, who may collect it
    if it runs on this machine. As soon as the log has its result it has no purpose any more, and is ended; nothing is
    written."""
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
    """The worker must go, and the next one may be on another machine, where nobody could tell what became of a command.
    So it ends now, and its result is recorded. What may be repeated is left to be repeated."""
    for key in open_keys(tenure.state):
        if _check_of(tenure.state, key) is not None:
            await _end(tenure, key, deps)
            await tenure.record(CheckCompleted(key, False, synthetic="lost"))
        elif (found := _begun(tenure, key, deps)) and not (found[0].spec.read_only or found[0].spec.idempotent):
            await _end(tenure, key, deps)
            for call in tenure.state.calls:
                if call.key == key and call.phase == "started":
                    await settle_calls(tenure, [call], deps)


async def _end(tenure: Tenure, key: CallKey, deps: Deps) -> None:
    if (check := _check_of(tenure.state, key)) is not None:
        await stop_check(tenure, check, deps)
    if (found := _begun(tenure, key, deps)) is not None:
        await stop(tenure, *found, deps)


def _check_of(state: ChatState, key: CallKey) -> OpenCheck | None:
    check = state.run.check if state.run is not None else None
    return check if check is not None and check.check == key else None


def _begun(tenure: Tenure, key: CallKey, deps: Deps) -> tuple[Tool, Invocation] | None:
    return next((begun(tenure, call, deps) for call in tenure.state.calls if call.key == key), None)
