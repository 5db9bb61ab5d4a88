"""Settles calls that a dead worker left open (D-02). An intent without outcome is the only place where the log alone
does not know what happened; everything else is decided from the state as usual.

A call that only reads, or that can be repeated, runs again. A file tool completes its begun changes, and compares the
disk with its recorded intent: done, not done, or neither. An unknown outcome is reported to the model and to people,
and the call is never repeated. A model call that never ended is made again; its possible cost is counted.

The other side: a worker that lost the chat, or must exit, ends its own calls, so that the next one can settle them."""

import contextlib
from collections.abc import Sequence

from treadle.base.logs import log_warning
from treadle.base.types import CallKey
from treadle.chat.state import Call, ChatState, OpenCheck
from treadle.engine.checks import stop_check
from treadle.engine.deps import Deps
from treadle.engine.examination import find_begun_call, make_unknown_outcome
from treadle.engine.tenure import DOUBT_S, STOPPED, WATCH_S, Tenure
from treadle.engine.tool_calls import UNKNOWN, run_one, run_together, stop_call
from treadle.errors import Damaged, LeaseLost, NewerSchema, NotFound, StoreError
from treadle.ports.toolset import Invocation, Tool
from treadle.protocol.events import AssistantReset, CheckCompleted, TurnRetry

LOST = "The worker was lost during the call."


async def recover(tenure: Tenure, deps: Deps) -> None:
    await tenure.confirm()
    state = tenure.state
    if deps.tidy is not None:
        await deps.tidy(state.chat, open_keys(state))
    if state.open_turn is not None and state.open_turn.epoch != tenure.lease.epoch:
        tenure.publish_live(AssistantReset(state.open_turn.turn))
        turn, failures, usage = state.open_turn.turn, state.open_turn.failures + 1, state.open_turn.reserved
        await tenure.append(TurnRetry(turn, failures, "worker_lost", LOST, usage=usage), patience_s=DOUBT_S)
    if state.run is not None and state.run.check is not None and state.run.interrupting:
        await stop_check(tenure, state.run.check, deps)
    for batch in _group_calls(tenure, deps):
        if tenure.state.run is None or tenure.state.run.interrupting:
            # It was stopped while no worker drove it, or meanwhile (L-07): the rules close what is open.
            for call in tenure.state.calls:
                if call.phase == "started" and (started_call := find_begun_call(tenure, call, deps)) is not None:
                    await stop_call(tenure, *started_call, deps)
            return
        await settle_calls(tenure, batch, deps)


def _group_calls(tenure: Tenure, deps: Deps) -> list[list[Call]]:
    """The calls that had begun, in the model's order; those that ran side by side together (L-06)."""
    batches: list[list[Call]] = []
    previous_parallel = False
    for call in (each for each in tenure.state.calls if each.phase == "started"):
        tool_call = find_begun_call(tenure, call, deps)
        parallel = tool_call is not None and tool_call[0].spec.parallel
        if parallel and previous_parallel:
            batches[-1].append(call)
        else:
            batches.append([call])
        previous_parallel = parallel
    return batches


def open_keys(state: ChatState) -> list[CallKey]:
    """The keys of begun calls and of a begun check. A call that waits for its approval may have been rehearsed."""
    stopped = state.run is None or state.run.interrupting
    phases = ("started",) if stopped else ("requested", "asking", "approved", "started", "waiting", "answered")
    keys = [call.key for call in state.calls if call.phase in phases]
    return [*keys, state.run.check.check] if state.run is not None and state.run.check is not None else keys


async def settle_calls(tenure: Tenure, calls: Sequence[Call], deps: Deps) -> None:
    """Several only if they may run at once."""
    pairs = [(call, find_begun_call(tenure, call, deps)) for call in calls]
    for call, pair in pairs:
        if pair is None:
            await tenure.record(make_unknown_outcome(call.key, UNKNOWN))
    open_calls = [pair for _, pair in pairs if pair is not None]
    settling = [run_one(tenure, *pair, not pair[0].spec.read_only, deps, may_have_begun=True) for pair in open_calls]
    if await tenure.run_unless_stopped(run_together(settling)) is STOPPED:
        for tool, invocation in open_calls:
            await stop_call(tenure, tool, invocation, deps)


async def withdraw(tenure: Tenure, deps: Deps) -> None:
    """The lease is lost (fault 4). A command of this worker belongs to the worker that took the chat over, which may
    collect it on this machine. As soon as the log has its result, the command is ended; nothing is written."""
    tenure.state = tenure.under_way or tenure.state
    mine = set(open_keys(tenure.state))
    while mine:
        try:
            state = await deps.log.load(tenure.state.chat)
            for key in mine.difference(open_keys(state)):
                with contextlib.suppress(LeaseLost):
                    await _end_call(tenure, key, deps)
            mine.intersection_update(open_keys(state))
            if mine:
                await deps.store.wait(state.chat, state.head, WATCH_S)
        except (Damaged, NewerSchema, NotFound) as error:
            return log_warning("chat %s was lost and cannot be read: %s", tenure.state.chat, error)
        except StoreError as error:  # without a further look, the command would never end
            log_warning("chat %s was lost and cannot be read for now: %s", tenure.state.chat, error)
            await deps.clock.sleep(WATCH_S)


async def close_calls(tenure: Tenure, deps: Deps) -> None:
    """End the running commands and record their results, because this worker must exit and the next one may be on
    another machine, where their outcome could not be found out. Calls that may be repeated are left to be repeated."""
    for key in open_keys(tenure.state):
        if _find_check(tenure.state, key) is not None:
            await _end_call(tenure, key, deps)
            await tenure.record(CheckCompleted(key, False, synthetic="lost"))
        elif (started_call := _find_call_by_key(tenure, key, deps)) and not (
            started_call[0].spec.read_only or started_call[0].spec.idempotent
        ):
            await _end_call(tenure, key, deps)
            for call in tenure.state.calls:
                if call.key == key and call.phase == "started":
                    await settle_calls(tenure, [call], deps)


async def _end_call(tenure: Tenure, key: CallKey, deps: Deps) -> None:
    if (check := _find_check(tenure.state, key)) is not None:
        await stop_check(tenure, check, deps)
    if (started_call := _find_call_by_key(tenure, key, deps)) is not None:
        await stop_call(tenure, *started_call, deps)


def _find_check(state: ChatState, key: CallKey) -> OpenCheck | None:
    return state.run.check if state.run is not None and state.run.check and state.run.check.check == key else None


def _find_call_by_key(tenure: Tenure, key: CallKey, deps: Deps) -> tuple[Tool, Invocation] | None:
    return next((find_begun_call(tenure, call, deps) for call in tenure.state.calls if call.key == key), None)
