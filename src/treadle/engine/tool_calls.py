"""Running the calls of a turn. Reads that stand together run in parallel; what writes or executes runs alone, in
call order (L-06). The intent is recorded before the effect and the outcome after it (law 1). Nothing that a tool does
ends the loop: its error is its result (L-05)."""

import asyncio
from collections.abc import Sequence

import msgspec

from treadle.chat.budget import over_budget
from treadle.chat.state import Call, runnable_calls
from treadle.engine.deps import Deps
from treadle.engine.lease import STOPPED, Stopped, Tenure
from treadle.errors import LeaseLost, StoreError, ToolError
from treadle.faultpoint import faultpoint
from treadle.ports.policy import Verdict
from treadle.ports.toolset import Invocation, Outcome, Tool
from treadle.protocol.events import (
    Event,
    ExecutionComplete,
    ExecutionOutput,
    ExecutionStart,
    ExternalToolRequested,
    FilesChanged,
    PermissionCompleted,
    PermissionRequested,
    UserInputCompleted,
    UserInputRequested,
)
from treadle.protocol.tools import ToolSpec, digest

NOBODY = "No person is there to answer. Decide yourself, in the way that fits the task best, and go on."
CUT_OFF = "This call was cut off and has been completed by guessing; it was not carried out. Send it again, whole."


class Ready(msgspec.Struct, frozen=True):
    """A call that may run now."""

    call: Call
    tool: Tool
    invocation: Invocation
    summary: str
    approved: tuple[Event, ...] = ()


class Settled(msgspec.Struct, frozen=True):
    """A call that needs no effect: an error, a question, a client's tool, an approval to ask for."""

    events: tuple[Event, ...]
    blocks: bool = False
    """Whether the calls after it must wait."""


async def run_calls(tenure: Tenure, calls: Sequence[Call], deps: Deps) -> None:
    """Take up calls in order until one must wait for a person, or the run is stopped."""
    batch: list[Ready] = []
    for call in calls:
        run = tenure.state.run
        if run is None or not _wanted(tenure, call):
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


async def examine(tenure: Tenure, call: Call, deps: Deps) -> Ready | Settled:
    """Find the tool, read the arguments, ask the policy; nothing is changed yet."""
    options = tenure.state.options
    request = call.request
    found = deps.tools.find(request.name, options)
    if found is None:
        known = ", ".join(spec.name for spec in deps.tools.specs(options))
        return _refused(call, {}, f"There is no tool {request.name!r}. The tools are: {known}.")
    spec = found if isinstance(found, ToolSpec) else found.spec
    if request.repaired and not spec.read_only:
        return _refused(call, {}, CUT_OFF)
    text = request.arguments if call.arguments is None else msgspec.json.encode(call.arguments).decode()
    arguments = deps.tools.arguments(spec, text)
    if isinstance(arguments, str):
        return _refused(call, {}, arguments)
    start = ExecutionStart(call.key, spec.name, arguments, summarize(spec, arguments))
    if spec.kind == "client":
        wanted = ExternalToolRequested(call.key, spec.name, arguments, call.key, options.action_deadline_s)
        return Settled((start, wanted))
    if isinstance(found, ToolSpec):
        return _ask_person(call, start, options.interactive)
    invocation = Invocation(
        tenure.state.chat,
        call.key,
        spec.name,
        arguments,
        options.root,
        emit=lambda output: tenure.live(ExecutionOutput(call.key, output)),
    )
    verdict = deps.policy.review(spec, invocation, options)
    if call.phase != "approved" and verdict.decision != "allow":
        return _hold(call, spec, arguments, verdict, start)
    approved: tuple[Event, ...] = ()
    if call.phase != "approved" and verdict.reason:
        approved = (PermissionCompleted(call.key, "allow", by="policy", auto_approved=True, feedback=verdict.reason),)
    return await _prepare(Ready(call, found, invocation, start.args_summary, approved))


async def _prepare(ready: Ready) -> Ready | Settled:
    """Let the tool look before its intent is recorded."""
    try:
        plan = await ready.tool.prepare(ready.invocation)
    except ToolError as error:
        return _refused(ready.call, ready.invocation.arguments, str(error), ready.summary)
    except Exception as error:
        return _refused(ready.call, ready.invocation.arguments, _crashed(ready.tool.spec, error), ready.summary)
    return msgspec.structs.replace(ready, invocation=msgspec.structs.replace(ready.invocation, plan=plan))


def _refused(call: Call, arguments: dict[str, object], text: str, summary: str = "") -> Settled:
    start = ExecutionStart(call.key, call.request.name, arguments, summary)
    return Settled((start, ExecutionComplete(call.key, False, error=text, result_summary=first_line(text))))


def _ask_person(call: Call, start: ExecutionStart, interactive: bool) -> Settled:
    question = str(start.arguments.get("question", ""))
    options = tuple(str(option) for option in start.arguments.get("options") or ())
    asked = UserInputRequested(call.key, question, options, call=call.key)
    if interactive:
        return Settled((start, asked))
    answered = UserInputCompleted(call.key, by="treadle", synthetic="headless")
    declined = ExecutionComplete(call.key, False, error=NOBODY, result_summary="nobody to ask", synthetic="headless")
    return Settled((start, asked, answered, declined))


def _hold(call: Call, spec: ToolSpec, arguments: dict[str, object], verdict: Verdict, start: ExecutionStart) -> Settled:
    if verdict.decision == "deny":
        denied = PermissionCompleted(call.key, "deny", by="policy", feedback=verdict.reason)
        return Settled((denied, *_refused(call, arguments, verdict.reason, start.args_summary).events))
    shown = verdict.shown or f"{spec.name} {start.args_summary}"
    seal = digest([spec.name, arguments, shown])
    asked = PermissionRequested(call.key, call.key, verdict.severity, verdict.reason, shown, seal)
    return Settled((asked,), blocks=True)


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
    await tenure.append(*events, durable=durable)
    return await tenure.unless_stopped(_run_all(tenure, batch, durable, deps))


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
    outcome = await attempt(tool, invocation)
    faultpoint(f"tool.after:{invocation.name}")
    took = round((deps.clock.monotonic() - began) * 1000)
    await tenure.record(*outcome_events(invocation, outcome, took), durable=durable)


async def attempt(tool: Tool, invocation: Invocation) -> Outcome:
    """Run a tool; whatever it raises becomes an outcome that the model can act on."""
    limit = tool.spec.timeout_s
    try:
        async with asyncio.timeout(limit or None) as patience:
            return await tool.run(invocation)
    except ToolError as error:
        return Outcome(str(error), success=False)
    except (LeaseLost, StoreError):
        raise
    except TimeoutError as error:
        if patience.expired():
            return Outcome(f"{tool.spec.name} was stopped after {limit:g} seconds.", success=False)
        return Outcome(_crashed(tool.spec, error), success=False)
    except Exception as error:
        return Outcome(_crashed(tool.spec, error), success=False)


def _crashed(spec: ToolSpec, error: Exception) -> str:
    return f"{spec.name} failed: {type(error).__name__}: {error}"


def outcome_events(invocation: Invocation, outcome: Outcome, duration_ms: int) -> list[Event]:
    """The one result of a call, and what else it brought."""
    complete = ExecutionComplete(
        invocation.call,
        outcome.success,
        result=outcome.text if outcome.success else "",
        error="" if outcome.success else outcome.text or "The tool failed and said nothing.",
        result_summary=outcome.summary or first_line(outcome.text),
        diff_stat=outcome.diff_stat,
        sandbox=outcome.sandbox,
        output=outcome.output,
        duration_ms=duration_ms,
    )
    events: list[Event] = [complete]
    if outcome.files:
        events.append(FilesChanged(outcome.files, invocation.call))
    return [*events, *outcome.facts]


def summarize(spec: ToolSpec, arguments: dict[str, object]) -> str:
    """One line that stands for the call: its path or command, or its arguments (A-11)."""
    value = arguments.get(spec.summary_argument) if spec.summary_argument else None
    if isinstance(value, str):
        return first_line(value)
    if not arguments:
        return ""
    return first_line(msgspec.json.encode(arguments).decode())


def first_line(text: str, limit: int = 120) -> str:
    line = text.strip().partition("\n")[0]
    return line if len(line) <= limit else line[: limit - 1] + "…"
