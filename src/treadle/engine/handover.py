"""What a worker owes to calls that it cannot see through: because another worker has the chat now, or because it must
go while a command still runs. Only what outlives a worker matters here; the rest ends with it, and is settled by
recovery as ever."""

import contextlib

from treadle.chat.state import ChatState
from treadle.engine.checks import stop_check
from treadle.engine.deps import Deps
from treadle.engine.examination import invocation_of
from treadle.engine.lease import WATCH_S, Tenure
from treadle.engine.recovery import open_keys, settle_call
from treadle.engine.tool_calls import stop
from treadle.errors import LeaseLost
from treadle.ports.toolset import Tool
from treadle.protocol.events import CheckCompleted
from treadle.protocol.tools import ToolSpec
from treadle.types import CallKey


async def withdraw(tenure: Tenure, deps: Deps) -> None:
    """The lease is lost (fault 4). A command of this worker belongs to whoever took the chat over, who may collect it
    if it runs on this machine. As soon as the log has its result it has no purpose any more, and is ended; nothing is
    written."""
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
        if _is_check(tenure.state, key):
            await _end(tenure, key, deps)
            await tenure.record(CheckCompleted(key, False, synthetic="lost"))
        elif (tool := _tool(tenure, key, deps)) and not (tool.spec.read_only or tool.spec.idempotent):
            await _end(tenure, key, deps)
            for call in tenure.state.calls:
                if call.key == key and call.phase == "started":
                    await settle_call(tenure, call, deps)


async def _end(tenure: Tenure, key: CallKey, deps: Deps) -> None:
    run, tool = tenure.state.run, _tool(tenure, key, deps)
    if run is not None and run.check is not None and run.check.check == key:
        await stop_check(tenure, run.check, deps)
    for call in tenure.state.calls:
        if call.key == key and tool is not None:
            invocation = invocation_of(tenure, call, call.request.name, call.arguments or {}, deps)
            await stop(tenure, tool, invocation, deps)


def _is_check(state: ChatState, key: CallKey) -> bool:
    return state.run is not None and state.run.check is not None and state.run.check.check == key


def _tool(tenure: Tenure, key: CallKey, deps: Deps) -> Tool | None:
    for call in tenure.state.calls:
        found = deps.tools.find(call.request.name, tenure.state.options) if call.key == key else None
        if found is not None and not isinstance(found, ToolSpec):
            return found
    return None
