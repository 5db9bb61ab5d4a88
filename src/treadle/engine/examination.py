"""Looking at a call before it may run: the tool, its arguments, the hooks, the policy, a person. Nothing is changed
here; what comes out is a call that is ready, or the events that settle it without an effect."""

import msgspec
from msgspec.structs import replace

from treadle.chat.applying import tool_options
from treadle.chat.state import Call
from treadle.engine.deps import Deps
from treadle.engine.lease import Stopped, Tenure
from treadle.engine.outcome import crashed, end, first_line, seen_of
from treadle.errors import ToolError
from treadle.host_patterns import joined
from treadle.ports.policy import Verdict
from treadle.ports.toolset import Invocation, Rehearsal, Tool
from treadle.protocol.content import Seen
from treadle.protocol.events import (
    Event,
    ExecutionComplete,
    ExecutionOutput,
    ExecutionStart,
    ExternalToolRequested,
    PermissionCompleted,
    PermissionRequested,
    UserInputCompleted,
    UserInputRequested,
)
from treadle.protocol.options import ChatOptions
from treadle.protocol.tools import ToolSpec, digest

NOBODY = "No person is there to answer. Decide yourself, in the way that fits the task best, and go on."
CUT_OFF = "This call was cut off and has been completed by guessing; it was not carried out. Send it again, whole."
CHANGED = "what it would do has changed since it was allowed"


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


def invocation_of(tenure: Tenure, call: Call, name: str, arguments: dict[str, object], deps: Deps) -> Invocation:
    """The call as its tool sees it, with what earlier calls left behind."""
    state = tenure.state
    by_person = state.run is not None and state.run.applies
    redact = deps.redact_live()
    return Invocation(
        state.chat,
        call.key,
        name,
        arguments,
        state.options.root,
        call.plan,
        state.options,
        state.shell,
        {} if by_person else state.seen,
        state.outputs,
        by_person,
        network=call.network,
        changed=frozenset(state.run.changed if state.run is not None else ()),
        emit=lambda output: tenure.live(ExecutionOutput(call.key, redact(output))),
    )


def begun(tenure: Tenure, call: Call, deps: Deps) -> tuple[Tool, Invocation] | None:
    """A call that has begun or was tried, with its tool; None if Treadle does not run it itself, or no longer can."""
    found = deps.tools.find(call.request.name, tool_options(tenure.state))
    if found is None or isinstance(found, ToolSpec):
        return None
    arguments = deps.tools.arguments(found.spec, call.request.arguments) if call.arguments is None else call.arguments
    return found, invocation_of(tenure, call, call.request.name, arguments if isinstance(arguments, dict) else {}, deps)


async def examine(tenure: Tenure, call: Call, deps: Deps) -> Ready | Settled:
    """Find the tool, read the arguments, ask the hooks and the policy."""
    options = tool_options(tenure.state)
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
    start = ExecutionStart(call.key, spec.name, arguments, summarize(spec, arguments), effect=spec.effect)
    if spec.kind == "client":
        wanted = ExternalToolRequested(call.key, spec.name, arguments, call.key, options.action_deadline_s)
        return Settled((start, wanted))
    if isinstance(found, ToolSpec):
        return _ask_person(call, start, options.interactive)
    invocation = invocation_of(tenure, call, spec.name, arguments, deps)
    ready = Ready(call, found, invocation, start.args_summary)
    try:
        return await _permit(tenure, ready, options, deps)
    except ToolError as error:
        return _refused(call, arguments, str(error), ready.summary, seen_of(error))
    except Exception as error:
        return _refused(call, arguments, crashed(spec, error), ready.summary)


async def _permit(tenure: Tenure, ready: Ready, options: ChatOptions, deps: Deps) -> Ready | Settled:
    """Ask the hooks, the policy and, if it says so, a person; then let the tool look. An answer holds for exactly what
    was shown: if the same call would do something else by now, it is asked for again (S-08)."""
    call, spec = ready.call, ready.tool.spec
    blocked = await deps.hooks.before(spec, ready.invocation)
    if blocked:
        return _refused(call, ready.invocation.arguments, blocked, ready.summary)
    answered = call.phase == "approved"
    if answered:
        options = msgspec.structs.replace(options, interactive=True)  # whoever answered is a person
    verdict = await deps.policy.review(spec, ready.invocation, options)
    reached = joined(ready.invocation.network, verdict.network)
    ready = replace(ready, invocation=replace(ready.invocation, network=reached))
    rehearsal: Rehearsal | None = None
    if verdict.decision == "review":
        if not _may_be_repeated(ready, options, deps):
            tried = await tenure.unless_stopped(ready.tool.rehearse(ready.invocation))
            if isinstance(tried, Stopped):
                await end(ready.tool, ready.invocation)
                return Settled(())
            rehearsal = tried
        verdict = await deps.policy.judge(spec, ready.invocation, options, rehearsal, verdict)
    if verdict.decision == "deny":
        denied = PermissionCompleted(call.key, "deny", by="policy", feedback=verdict.reason)
        refused = _refused(call, ready.invocation.arguments, verdict.reason, ready.summary, came="not allowed")
        return Settled((denied, *refused.events))
    if verdict.decision == "ask" and (not answered or call.seal):
        asked = await _question(ready, verdict, rehearsal, deps)
        if not answered:
            return Settled((asked,), blocks=True)
        if asked.hash != call.seal:
            again = replace(asked, reason=f"{asked.reason}; {CHANGED}" if asked.reason else CHANGED)
            return Settled((again,), blocks=True)
    return await _prepared(ready, verdict, answered=answered)


def _may_be_repeated(ready: Ready, options: ChatOptions, deps: Deps) -> bool:
    """Whether a command could reach the network before its intent is recorded, and a worker on another machine, which
    knows nothing of that, would run it again (D-02). Then nothing is tried beforehand, and its words decide."""
    reaches = bool(joined(options.network, ready.invocation.network))
    return deps.shared and reaches and bool(ready.tool.spec.command_argument)


async def _prepared(ready: Ready, verdict: Verdict, *, answered: bool) -> Ready:
    """A call that is allowed, with what its tool found when it looked."""
    invocation = ready.invocation
    if verdict.decision == "discard":
        invocation = replace(invocation, discard=verdict.reason)
    approved: tuple[Event, ...] = ()
    plan = await ready.tool.prepare(invocation)
    if not answered and verdict.reason:
        key = ready.call.key
        approved = (PermissionCompleted(key, "allow", by="policy", auto_approved=True, feedback=verdict.reason),)
    return replace(ready, invocation=replace(invocation, plan=plan), approved=approved)


async def _question(ready: Ready, verdict: Verdict, rehearsal: Rehearsal | None, deps: Deps) -> PermissionRequested:
    """Bound to exactly what a person sees, and to every change with its state before and after (S-08)."""
    key, arguments = ready.call.key, ready.invocation.arguments
    shown = verdict.shown or f"{ready.tool.spec.name} {ready.summary}"
    if preview := await ready.tool.preview(ready.invocation):
        shown = f"{shown}\n\n{preview}"
    shown = deps.redact(shown)
    changes = () if rehearsal is None else [(file.path, file.before, file.after) for file in rehearsal.files]
    seal = digest([ready.tool.spec.name, arguments, shown, *([changes] if changes else [])])
    return PermissionRequested(key, key, verdict.severity, verdict.reason, shown, seal, verdict.offers, verdict.wants)


def _refused(
    call: Call,
    arguments: dict[str, object],
    text: str,
    summary: str = "",
    seen: tuple[Seen, ...] = (),
    came: str = "",
) -> Settled:
    """The intent and its result in one, because nothing runs in between."""
    start = ExecutionStart(call.key, call.request.name, arguments, summary)
    done = ExecutionComplete(call.key, False, error=text, result_summary=came or first_line(text), seen=seen)
    return Settled((start, done))


def _ask_person(call: Call, start: ExecutionStart, interactive: bool) -> Settled:
    question = str(start.arguments.get("question", ""))
    options = tuple(str(option) for option in start.arguments.get("options") or ())
    asked = UserInputRequested(call.key, question, options, call=call.key)
    if interactive:
        return Settled((start, asked))
    answered = UserInputCompleted(call.key, by="treadle", synthetic="headless")
    declined = ExecutionComplete(call.key, False, error=NOBODY, result_summary="nobody to ask", synthetic="headless")
    return Settled((start, asked, answered, declined))


def summarize(spec: ToolSpec, arguments: dict[str, object]) -> str:
    """One line that stands for the call: its path or command, or its arguments (A-11)."""
    value = arguments.get(spec.summary_argument) if spec.summary_argument else None
    if isinstance(value, str):
        return first_line(value)
    if not arguments:
        return ""
    return first_line(msgspec.json.encode(arguments).decode())
