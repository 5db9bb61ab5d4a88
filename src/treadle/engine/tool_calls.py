"""Running the calls of a turn. Reads that stand together run in parallel; what writes or executes runs alone, in
call order (L-06). The intent is recorded before the effect and the outcome after it (law 1). Nothing that a tool does
ends the loop: its error is its result (L-05)."""

import asyncio
from collections.abc import Sequence

from msgspec.structs import replace

from treadle.chat.budget import over_budget
from treadle.chat.state import Call, runnable_calls
from treadle.engine import stopping
from treadle.engine.checkpoint import checkpoint
from treadle.engine.deps import Deps
from treadle.engine.effects import workspace_events
from treadle.engine.examination import Ready, Settled, crashed, examine, first_line, seen_of
from treadle.engine.lease import STOPPED, Stopped, Tenure
from treadle.errors import LeaseLost, StoreError, ToolError
from treadle.faultpoint import faultpoint
from treadle.ports.toolset import Invocation, Outcome, Settlement, Tool
from treadle.protocol.events import Event, ExecutionComplete, ExecutionStart
from treadle.protocol.tools import ToolSpec


async def run_calls(tenure: Tenure, calls: Sequence[Call], deps: Deps) -> None:
    """Take up calls in order until one must wait for a person, or the run is stopped."""
    batch: list[Ready] = []
    for call in calls:
        await asyncio.sleep(0)  # a store in memory never waits: other chats, signals and stops come in between
        run = tenure.state.run
        if run is None or not _wanted(tenure, call) or tenure.leaving:
            return
        over = over_budget(tenure.state, run, deps.clock.now_ms())
        if over is not None:
            if await _run_batch(tenure, batch, deps) is not STOPPED and _wanted(tenure, call):
                await tenure.append(over)
            return
        examined = await examine(tenure, call, deps)
        if isinstance(examined, Ready) and examined.tool.spec.read_only:
            batch.append(examined)
            continue
        if await _run_batch(tenure, batch, deps) is STOPPED or not _wanted(tenure, call):
            return
        batch = []
        if isinstance(examined, Settled):
            await tenure.append(*examined.events)
            if examined.blocks:
                return
        elif await _run_batch(tenure, [examined], deps) is STOPPED:
            return
    await _run_batch(tenure, batch, deps)


def _wanted(tenure: Tenure, call: Call) -> bool:
    """Whether the call is still to be taken up. A stop may have come in behind the outcome of the call before it, and
    then everything that was open is closed already: nothing may take effect after that."""
    run = tenure.state.run
    if run is None or run.stop:
        return False
    return any(ready.key == call.key for ready in runnable_calls(tenure.state))


async def _run_batch(tenure: Tenure, batch: Sequence[Ready], deps: Deps) -> Stopped | None:
    """Record the intents together, then run: several only if all of them read."""
    if not batch:
        return None
    if not all(_wanted(tenure, ready.call) for ready in batch):
        return STOPPED
    durable = not all(ready.tool.spec.read_only for ready in batch)
    events: list[Event] = []
    for ready in batch:
        events.extend(ready.approved)
        started = ready.invocation
        events.append(ExecutionStart(started.call, started.name, started.arguments, ready.summary, started.plan))
    if any(ready.invocation.plan is not None for ready in batch):
        events = [*await checkpoint(tenure, deps), *events]
    await tenure.append(*events, durable=durable)
    ended = await tenure.unless_stopped(_run_all(tenure, batch, durable, deps))
    if ended is STOPPED:
        for ready in batch:
            await stop(tenure, ready.tool, ready.invocation, deps)
    return ended


async def stop(tenure: Tenure, tool: Tool, invocation: Invocation, deps: Deps) -> None:
    """End what a call started; the run is over for it, whether that works or not. What it had done by then is recorded:
    it can be undone like anything else."""
    outcome = await stopping.stop(tool, invocation)
    if outcome is not None and (events := await workspace_events(invocation.call, outcome, deps)):
        await tenure.record(*events)


async def _run_all(tenure: Tenure, batch: Sequence[Ready], durable: bool, deps: Deps) -> None:
    if len(batch) == 1:
        return await run_one(tenure, batch[0].tool, batch[0].invocation, durable, deps)
    try:
        async with asyncio.TaskGroup() as group:
            for ready in batch:
                group.create_task(run_one(tenure, ready.tool, ready.invocation, durable, deps))
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from failed  # the loop tells a lost lease or a full disk from a fault of ours


async def run_one(tenure: Tenure, tool: Tool, invocation: Invocation, durable: bool, deps: Deps) -> None:
    """The effect itself, and its outcome."""
    began = deps.clock.monotonic()
    faultpoint(f"tool.before:{invocation.name}")
    outcome = await reworded(tool.spec, invocation, await attempt(tool, invocation), deps)
    faultpoint(f"tool.after:{invocation.name}")
    took = round((deps.clock.monotonic() - began) * 1000)
    await tenure.record(*await outcome_events(invocation, outcome, took, deps), durable=durable)


async def reworded(spec: ToolSpec, invocation: Invocation, outcome: Outcome, deps: Deps) -> Outcome:
    """The outcome as the hooks leave it. What was done is done: a hook that fails here is said, and changes nothing."""
    try:
        return await deps.hooks.after(spec, invocation, outcome)
    except Exception as error:
        note = f"[A hook failed after this call: {type(error).__name__}: {error}]"
        return replace(outcome, text=f"{outcome.text}\n{note}" if outcome.text else note)


async def settlement(tool: Tool, invocation: Invocation) -> Settlement:
    """What became of a call whose worker was lost."""
    if tool.spec.read_only:
        return "run_again"
    try:
        return await tool.settle(invocation)
    except (ToolError, OSError):
        return "unknown"


async def attempt(tool: Tool, invocation: Invocation) -> Outcome:
    """Run a tool; whatever it raises becomes an outcome that the model can act on."""
    limit = tool.spec.timeout_s
    try:
        async with asyncio.timeout(limit or None) as patience:
            return await tool.run(invocation)
    except ToolError as error:
        return Outcome(str(error), success=False, seen=seen_of(error))
    except (LeaseLost, StoreError):
        raise
    except TimeoutError as error:
        if patience.expired():
            return await _out_of_time(tool, invocation)
        return Outcome(crashed(tool.spec, error), success=False)
    except Exception as error:
        return Outcome(crashed(tool.spec, error), success=False)


async def _out_of_time(tool: Tool, invocation: Invocation) -> Outcome:
    text = f"{tool.spec.name} was stopped after {tool.spec.timeout_s:g} seconds."
    try:
        done = await asyncio.shield(tool.stop(invocation))
    except (ToolError, OSError) as error:
        return Outcome(f"{text} It could not be stopped for sure: {error}", success=False)
    return replace(done or Outcome(""), text=text, summary="", success=False)


async def outcome_events(invocation: Invocation, outcome: Outcome, duration_ms: int, deps: Deps) -> list[Event]:
    """The one result of a call, and what else it brought. No secret gets into the log (S-11)."""
    text = deps.redact(outcome.text)
    complete = ExecutionComplete(
        invocation.call,
        outcome.success,
        result=text if outcome.success else "",
        error="" if outcome.success else text or "The tool failed and said nothing.",
        result_summary=deps.redact(outcome.summary) or first_line(text),
        diff_stat=outcome.diff_stat,
        sandbox=outcome.sandbox,
        output=outcome.output,
        duration_ms=duration_ms,
        seen=outcome.seen,
        shell=outcome.shell,
        effect=outcome.effect,
    )
    return [complete, *await workspace_events(invocation.call, outcome, deps), *outcome.facts]
