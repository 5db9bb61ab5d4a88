"""Runs the calls of a turn. Adjacent reads run in parallel, and so do calls of a tool that allows it; other calls that
write or execute run alone, in call order (L-06). The intent is recorded before the effect and the outcome after it (law
1). A tool can never end the loop: its error is its result (L-05)."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

from treadle.base.types import CallKey
from treadle.chat.budget import find_exhausted_limit
from treadle.chat.state import Call, ChatState, list_runnable_calls
from treadle.engine.deps import Deps
from treadle.engine.examination import Doubtful, Ready, SettledCall, examine, make_unknown_outcome, try_out
from treadle.engine.outcome import (
    CallRun,
    Unknown,
    build_workspace_events,
    checkpoint,
    end_call,
    retry_once,
    take_first_line,
)
from treadle.engine.tenure import STOPPED, Stopped, Tenure
from treadle.errors import StoreError, Unfinished
from treadle.ports.toolset import Fact, Invocation, Outcome, Tool
from treadle.protocol.events import Event, ExecutionComplete, ExecutionStart, SandboxNotice, UserInputRequested
from treadle.protocol.tools import ToolSpec, predict_effect

UNKNOWN = (
    "The worker was lost while this ran; it is not known whether it took effect, and it was not run again. "
    "Look at the current state before you go on."
)


async def run_calls(tenure: Tenure, calls: Sequence[Call], deps: Deps) -> None:
    """Take up calls in order until one must wait for a person, or the run is stopped."""
    batch: list[Ready] = []
    for call in calls:
        await asyncio.sleep(0)  # a store in memory never waits: other chats, signals and stops come in between
        run = tenure.state.run
        if run is None or not _is_still_runnable(tenure, call) or tenure.leaving:
            return
        if (over := find_exhausted_limit(tenure.state, run, deps.clock.now_ms())) is not None:
            if await _run_batch(tenure, batch, deps) is not STOPPED and _is_still_runnable(tenure, call):
                await tenure.append(over)
            return
        examined = await tenure.run_unless_stopped(examine(tenure, call, deps))
        if isinstance(examined, Stopped):  # a hook, the policy or the tool's own look; nothing was begun
            return
        if isinstance(examined, Ready) and _can_join(batch, examined.tool.spec):
            batch.append(examined)
            continue
        if await _run_batch(tenure, batch, deps) is STOPPED or not _is_still_runnable(tenure, call):
            return
        batch = []
        if isinstance(examined, Doubtful):
            examined = await try_out(tenure, examined, deps)
            if not _is_still_runnable(tenure, call):
                return
        if isinstance(examined, SettledCall):
            await tenure.append(*examined.events)
            if examined.blocks:
                return
        elif examined.tool.spec.parallel:
            batch = [examined]
        elif await _run_batch(tenure, [examined], deps) is STOPPED:
            return
    await _run_batch(tenure, batch, deps)


def _can_join(batch: Sequence[Ready], spec: ToolSpec) -> bool:
    """True if a call may run beside those of a batch: all read, or all belong to one tool that allows it."""
    return spec.parallel and all(one.tool.spec.read_only == spec.read_only for one in batch)


def _is_still_runnable(tenure: Tenure, call: Call) -> bool:
    """True if the call should still run. A stop may have been recorded after the outcome of the call before it, and
    then all open calls are closed already: nothing may take effect after that."""
    run = tenure.state.run
    is_going_on = run is not None and not run.stop
    return is_going_on and any(ready.key == call.key for ready in list_runnable_calls(tenure.state))


async def _run_batch(tenure: Tenure, batch: Sequence[Ready], deps: Deps) -> Stopped | None:
    """Record the intents together, then run: several only if they may run at once."""
    if not batch:
        return None
    if not all(_is_still_runnable(tenure, ready.call) for ready in batch):
        return STOPPED
    durable = not all(ready.tool.spec.read_only for ready in batch)
    events: list[Event] = []
    for ready in batch:
        call, spec = ready.invocation, ready.tool.spec
        effect = predict_effect(spec, call.arguments)
        start = ExecutionStart(call.call, call.name, call.arguments, ready.summary, call.plan, spec.read_only, effect)
        events += (*ready.approved, start)
    if any(ready.invocation.plan is not None for ready in batch):
        events = [*await checkpoint(tenure, deps), *events]
    await tenure.append(*events, durable=durable)
    running = [run_one(tenure, ready.tool, ready.invocation, durable, deps) for ready in batch]
    outcome = await tenure.run_unless_stopped(run_together(running))
    if outcome is STOPPED:
        for ready in batch:
            await stop_call(tenure, ready.tool, ready.invocation, deps)
    return outcome


async def stop_call(tenure: Tenure, tool: Tool, invocation: Invocation, deps: Deps) -> None:
    """End the processes of a call for good. Its changes so far are recorded: they can be undone like any others."""
    outcome = await end_call(tool, invocation)
    events = await retry_once(lambda: build_workspace_events(invocation.call, outcome, deps))
    if events := [*events, *(outcome.facts if outcome is not None else ())]:
        await tenure.record(*events)


async def run_together(calls: Sequence[Coroutine[Any, Any, None]]) -> None:
    if len(calls) == 1:
        return await calls[0]
    try:
        async with asyncio.TaskGroup() as group:
            for call in calls:
                group.create_task(call)
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from failed  # the loop tells a lost lease or a full disk from a fault of ours


async def run_one(
    tenure: Tenure, tool: Tool, invocation: Invocation, durable: bool, deps: Deps, *, may_have_begun: bool = False
) -> None:
    """The effect itself, and its outcome. `may_have_begun`: a worker before this one may have begun it."""
    began, key = deps.clock.monotonic(), invocation.call
    points = (f"tool.before:{invocation.name}", f"tool.after:{invocation.name}")
    with deps.observer.trace_work(tenure.state, key):
        outcome = await CallRun(tool, invocation, deps, points).run_or_settle(may_have_begun=may_have_begun)
    tried_ms = sum(call.tried_ms for call in tenure.state.calls if call.key == key)
    took = round((deps.clock.monotonic() - began) * 1000) + tried_ms
    await record_outcome(tenure, lambda: build_outcome_events(tenure.state, key, outcome, took, deps), durable=durable)


async def record_outcome(tenure: Tenure, tell: Callable[[], Awaitable[list[Event]]], *, durable: bool = True) -> None:
    """Record the outcome of an effect. If that fails for any reason, the intent stays open, and the next worker of the
    chat settles it: an intent is never closed without its outcome."""
    try:
        await tenure.record(*await retry_once(tell), durable=durable)
    except StoreError:
        raise
    except Exception as fault:
        if not durable:  # it has only read
            raise
        raise Unfinished(
            f"The outcome could not be recorded ({type(fault).__name__}: {fault}). It is settled when the chat is "
            "taken up again."
        ) from fault


async def build_outcome_events(
    state: ChatState, call: CallKey, outcome: Outcome | Unknown, duration_ms: int, deps: Deps
) -> list[Event]:
    """The one result of a call, and what else it brought. No secret gets into the log (S-11). After a question in the
    middle of a call the chat waits for the answer like for any other, and then goes on."""
    if isinstance(outcome, Unknown):
        return [
            make_unknown_outcome(call, UNKNOWN),
            *await build_workspace_events(call, outcome.observed_outcome, deps),
        ]
    if (question := outcome.question) is not None:
        action, text = f"{call}.{state.head + 1}", deps.redact(question.text)
        return [UserInputRequested(action, text, question.options, "elicitation", call, question.plan)]

    def is_news(fact: Fact) -> bool:
        """False for a notice about the confinement of commands that the chat has already, or does not need."""
        known_text = state.sandbox_notice
        return not isinstance(fact, SandboxNotice) or (fact.text != known_text and (fact.lowered or bool(known_text)))

    text = deps.redact(outcome.text)
    complete = ExecutionComplete(
        call,
        outcome.success,
        result=text if outcome.success else "",
        error="" if outcome.success else text or "The tool failed and said nothing.",
        result_summary=deps.redact(outcome.summary) or take_first_line(text),
        diff_stat=outcome.diff_stat, sandbox=outcome.sandbox, output=outcome.output, duration_ms=duration_ms,
        seen=outcome.known_files, shell=outcome.shell, effect=outcome.effect, images=outcome.images,
        hosts=tuple(map(deps.redact, outcome.hosts)),
    )  # fmt: skip
    return [
        complete,
        *await build_workspace_events(call, outcome, deps),
        *(fact for fact in outcome.facts if is_news(fact)),
    ]
