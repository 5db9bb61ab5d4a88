"""Settling what a dead worker left open (D-02). An intent without outcome is the only place where the log alone does
not know what happened; everything else is decided from the state as ever.

A call that only reads, or that can be repeated, runs again. A file tool completes what it began, and compares the disk
with what it recorded in its intent: done, not done, or neither. What cannot be known is said so, to the model and to
people, and is never repeated. A model call that never ended is made again; what it may have cost is counted.
"""

from treadle.chat.state import Call, ChatState
from treadle.engine.checks import stop_check
from treadle.engine.deps import Deps
from treadle.engine.examination import begun
from treadle.engine.tenure import STOPPED, Tenure
from treadle.engine.tool_calls import run_one, stop, unknown
from treadle.protocol.events import AssistantReset, TurnRetry
from treadle.types import CallKey

LOST = "The worker was lost during the call."


async def recover(tenure: Tenure, deps: Deps) -> None:
    """Make every intent whole; called when a lease begins."""
    state = tenure.state
    if deps.tidy is not None:
        await deps.tidy(state.chat, open_keys(state))
    if state.open_turn is not None and state.open_turn.epoch != tenure.lease.epoch:
        tenure.live(AssistantReset(state.open_turn.turn))
        lost = TurnRetry(
            state.open_turn.turn, state.open_turn.failures + 1, "worker_lost", LOST, usage=state.open_turn.reserved
        )
        await tenure.append(lost)
    if state.run is not None and state.run.check is not None and state.run.interrupting:
        await stop_check(tenure, state.run.check, deps)
    for call in state.calls:
        if tenure.state.run is None or tenure.state.run.interrupting:
            return await _stop_all(tenure, deps)  # before this, or meanwhile: the rules close what is open
        if call.phase == "started":
            await settle_call(tenure, call, deps)


def open_keys(state: ChatState) -> list[CallKey]:
    """What has begun and not ended: calls, and a check. A call that waits for its approval may have been rehearsed."""
    stopped = state.run is None or state.run.interrupting
    phases = ("started",) if stopped else ("requested", "asking", "approved", "started", "waiting", "answered")
    keys = [call.key for call in state.calls if call.phase in phases]
    return [*keys, state.run.check.check] if state.run is not None and state.run.check is not None else keys


async def _stop_all(tenure: Tenure, deps: Deps) -> None:
    """The run was stopped while nobody drove it: what its calls started ends now (L-07)."""
    for call in tenure.state.calls:
        if call.phase == "started" and (found := begun(tenure, call, deps)) is not None:
            await stop(tenure, *found, deps)


async def settle_call(tenure: Tenure, call: Call, deps: Deps) -> None:
    if (found := begun(tenure, call, deps)) is None:
        return await tenure.record(unknown(call.key))
    tool, invocation = found
    settling = run_one(tenure, tool, invocation, not tool.spec.read_only, deps, lost=True)
    if await tenure.unless_stopped(settling) is STOPPED:
        await stop(tenure, tool, invocation, deps)
