"""Looking at a call before it may run: the tool, its arguments, the hooks, the policy, a person. Nothing is changed
here; what comes out is a call that is ready, one that has to be tried first, or the events that settle it without an
effect. That a command is being tried is recorded before it begins, as an intent is (law 1)."""

from collections.abc import Awaitable

import msgspec
from msgspec.structs import replace

from treadle.chat.applying import tool_options
from treadle.chat.state import Call, known_files
from treadle.engine.deps import Deps
from treadle.engine.outcome import checkpoint, crashed, end, first_line, seen_of
from treadle.engine.side_call import asking
from treadle.engine.tenure import Stopped, Tenure
from treadle.errors import ToolError, TrialLost
from treadle.host_patterns import joined
from treadle.ports.hooks import AskPerson
from treadle.ports.policy import Verdict
from treadle.ports.toolset import Invocation, Rehearsal, Tool, Trial
from treadle.protocol.content import Seen
from treadle.protocol.events import (
    HEADLESS,
    Event,
    ExecutionComplete,
    ExecutionStart,
    ExternalToolRequested,
    PermissionCompleted,
    PermissionRequested,
    TrialStart,
    UserInputCompleted,
    UserInputRequested,
)
from treadle.protocol.options import ChatOptions
from treadle.protocol.tools import ToolSpec, digest

NOBODY = "No person is there to answer. Decide yourself, in the way that fits the task best, and go on."
CUT_OFF = (
    "This call was cut off before its end, so it was not carried out. Send it again, whole. If it was too long for one "
    "answer, split the work into several smaller calls."
)
GONE = "The tool is no longer there; it is not known whether this call took effect."
CHANGED = "what it would do has changed since it was allowed"


class Ready(msgspec.Struct, frozen=True):
    """A call that may run now."""

    call: Call
    tool: Tool
    invocation: Invocation
    summary: str
    approved: tuple[Event, ...] = ()


class Doubtful(msgspec.Struct, frozen=True):
    """A call of which nobody can say whether it may run before it is known what it changes."""

    ready: Ready
    verdict: Verdict
    options: ChatOptions
    trial: Trial | None = None
    """How that is found out, if something runs for it."""


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
        call.plan,
        state.options,
        state.shell,
        {} if by_person else known_files(state),
        state.outputs,
        by_person,
        call.phase == "approved",
        call.phase == "approved" and not call.seal,
        network=call.network,
        reaches=bool(call.network),
        changed=frozenset(state.run.changed if state.run is not None else ()),
        trial=_trial_of(call),
        answers=call.answers,
        emit=lambda output: tenure.show_output(call.key, redact(output)),
        ask_model=asking(tenure, call.key, deps),
    )


def _trial_of(call: Call) -> Trial | None:
    if call.trial is None:
        return None
    return Trial(call.trial, network=bool(call.trial.get("network")), open=bool(call.trial_began_ms))


def begun(tenure: Tenure, call: Call, deps: Deps) -> tuple[Tool, Invocation] | None:
    """A call that has begun or was tried, with its tool; None if Treadle does not run it itself, or no longer can."""
    options = tool_options(tenure.state)
    request = deps.tools.meant(call.request, options)
    found = deps.tools.find(request.name, options)
    if found is None or isinstance(found, ToolSpec):
        return None
    arguments = deps.tools.arguments(found.spec, request.arguments) if call.arguments is None else call.arguments
    return found, invocation_of(tenure, call, request.name, arguments if isinstance(arguments, dict) else {}, deps)


async def examine(tenure: Tenure, call: Call, deps: Deps) -> Ready | Doubtful | Settled:
    """Find the tool, read the arguments, ask the hooks and the policy."""
    if call.phase == "answered":
        return _going_on(tenure, call, deps)
    options = tool_options(tenure.state)
    if reason := await deps.tools.await_tool(call.request, options):
        return _refused(call, {}, deps.redact(reason))
    request = deps.tools.meant(call.request, options)
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
        return _refused(call, {}, CUT_OFF if request.repaired else arguments)
    start = ExecutionStart(call.key, spec.name, arguments, summarize(spec, arguments), effect=spec.effect)
    if spec.kind == "client":
        wanted = ExternalToolRequested(call.key, spec.name, arguments, call.key, options.action_deadline_s)
        return Settled((start, wanted))
    if isinstance(found, ToolSpec):
        return _ask_person(call, start, options.interactive)
    invocation = invocation_of(tenure, call, spec.name, arguments, deps)
    ready = Ready(call, found, invocation, start.args_summary)
    return await _or_refused(ready, _permit(ready, options, deps), deps)


async def _or_refused(
    ready: Ready, looking: Awaitable[Ready | Doubtful | Settled], deps: Deps
) -> Ready | Doubtful | Settled:
    """What goes wrong before anything has been done is the call's result."""
    try:
        return await looking
    except TrialLost as error:
        return _lost(ready, str(error))
    except ToolError as error:
        text, seen = str(error), seen_of(error)
    except Exception as error:
        text, seen = crashed(ready.tool.spec, error), ()
    return _refused_tried(ready, text, deps, seen=seen)


def _going_on(tenure: Tenure, call: Call, deps: Deps) -> Ready | Settled:
    """A call that a person has answered goes on: it was allowed when it began."""
    found = begun(tenure, call, deps)
    if found is None:
        gone = ExecutionComplete(call.key, False, error=GONE, result_summary="unknown outcome", synthetic="unknown")
        return Settled((gone,))
    tool, invocation = found
    return Ready(call, tool, invocation, summarize(tool.spec, invocation.arguments))


async def _permit(ready: Ready, options: ChatOptions, deps: Deps) -> Ready | Doubtful | Settled:
    """Ask the hooks and the policy, which judges what the hooks leave."""
    spec = ready.tool.spec
    hooked = await deps.hooks.before(spec, ready.invocation)
    if isinstance(hooked, str):
        if hooked:
            return _refused_tried(ready, hooked, deps)
    elif hooked.arguments is not None:
        changed = deps.tools.arguments(spec, msgspec.json.encode(hooked.arguments).decode())
        if isinstance(changed, str):
            return _refused_tried(ready, f"A hook changed the arguments: {changed}", deps)
        invocation = replace(ready.invocation, arguments=changed)
        ready = replace(ready, invocation=invocation, summary=summarize(spec, changed))
    if ready.call.phase == "approved":
        options = replace(options, interactive=True)  # whoever answered is a person
    verdict = await deps.policy.review(spec, ready.invocation, options)
    reached = joined(ready.invocation.network, verdict.network)
    ready = replace(ready, invocation=replace(ready.invocation, network=reached, barred=verdict.barred))
    if isinstance(hooked, AskPerson) and verdict.decision not in ("ask", "deny") and ready.call.phase != "approved":
        if not options.interactive:
            return _refused_tried(ready, f"{hooked.reason}, and no person is here to give it.", deps)
        question = replace(verdict, decision="ask", reason=hooked.reason)
        return Settled((await _question(ready, question, None, deps),), blocks=True)
    if verdict.decision == "review":
        return Doubtful(ready, verdict, options, await ready.tool.trial(ready.invocation))
    return await _decided(ready, verdict, None, deps)


async def try_out(tenure: Tenure, doubtful: Doubtful, deps: Deps) -> Ready | Settled:
    """Find out what the call would change, and let the policy judge that. HeadMoved: nothing was begun."""
    ready, trial = doubtful.ready, doubtful.trial
    if trial is not None:
        ready = replace(ready, invocation=replace(ready.invocation, trial=trial))
    if trial is not None and trial.begins:
        said = ready.invocation
        start = TrialStart(said.call, said.name, said.arguments, ready.summary, trial.plan)
        await tenure.append(*await checkpoint(tenure, deps), start, durable=trial.network)
        begun = next((call for call in tenure.state.calls if call.key == said.call), ready.call)
        ready = replace(ready, call=begun)
    tried = await _or_refused(ready, _judged(tenure, ready, doubtful, deps), deps)
    assert not isinstance(tried, Doubtful)
    return tried


async def _judged(tenure: Tenure, ready: Ready, doubtful: Doubtful, deps: Deps) -> Ready | Settled:
    rehearsal = await tenure.unless_stopped(ready.tool.rehearse(ready.invocation))
    if isinstance(rehearsal, Stopped):
        await end(ready.tool, ready.invocation)
        return Settled(())
    outcome = await tenure.unless_stopped(_judge_effect(ready, doubtful, rehearsal, deps))
    if isinstance(outcome, Stopped):
        await end(ready.tool, ready.invocation)
        return Settled(())
    return outcome


async def _judge_effect(ready: Ready, doubtful: Doubtful, rehearsal: Rehearsal | None, deps: Deps) -> Ready | Settled:
    invocation, options = ready.invocation, doubtful.options
    verdict = await deps.policy.judge(ready.tool.spec, invocation, options, rehearsal, doubtful.verdict)
    return await _decided(ready, verdict, rehearsal, deps, words=doubtful.verdict)


async def _decided(
    ready: Ready, verdict: Verdict, rehearsal: Rehearsal | None, deps: Deps, words: Verdict | None = None
) -> Ready | Settled:
    """Ask a person if the policy says so; then let the tool look. An answer holds for exactly what was shown: if the
    same call would do something else by now, it is asked for again (S-08). `words` is the verdict before the effect was
    known: a person who approved or edited the words alone has not seen the effect, so it has not changed for them."""
    call = ready.call
    answered = call.phase == "approved"
    has_tried = rehearsal is not None and ready.invocation.trial is not None
    if verdict.decision == "deny":
        why = HEADLESS if verdict.unasked else ""
        denied = PermissionCompleted(call.key, "deny", by="policy", feedback=verdict.reason, synthetic=why)
        refused = _refused_tried(ready, verdict.reason, deps, came="not allowed")
        return Settled((denied, *refused.events))
    if verdict.decision == "ask" and (not answered or call.seal or has_tried):
        asked = await _question(ready, verdict, rehearsal, deps)
        if not answered:
            return Settled((asked,), blocks=True)
        if asked.hash != call.seal:
            if call.seal and (words is None or (await _question(ready, words, None, deps)).hash != call.seal):
                asked = replace(asked, reason=f"{asked.reason}; {CHANGED}" if asked.reason else CHANGED)
            return Settled((asked,), blocks=True)
    return await _prepared(ready, verdict, answered=answered)


async def _prepared(ready: Ready, verdict: Verdict, *, answered: bool) -> Ready:
    """A call that is allowed, with what its tool found when it looked."""
    invocation = ready.invocation
    if verdict.decision == "discard":
        invocation = replace(invocation, discard=verdict.reason)
    approved: tuple[Event, ...] = ()
    plan = await ready.tool.prepare(invocation)
    if not answered and verdict.reason:
        approves_effect = verdict.decision != "discard"  # the command runs, and its effect is not approved
        key, reason = ready.call.key, verdict.reason
        why = HEADLESS if verdict.unasked else ""
        approved = (PermissionCompleted(key, "allow", "policy", approves_effect, reason, synthetic=why),)
    return replace(ready, invocation=replace(invocation, plan=plan), approved=approved)


async def _question(ready: Ready, verdict: Verdict, rehearsal: Rehearsal | None, deps: Deps) -> PermissionRequested:
    """Bound to exactly what a person sees, and to every change with its state before and after (S-08)."""
    key, arguments = ready.call.key, ready.invocation.arguments
    spec = ready.tool.spec
    shown = verdict.shown or f"{spec.name} {ready.summary}"
    if preview := await ready.tool.preview(ready.invocation):
        if spec.effect == "edit":  # the diff has it all, and nobody wants to read a new file twice
            shown = f"{spec.name} {ready.summary}" if spec.summary_argument else spec.name
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
    took_ms: int = 0,
) -> Settled:
    """The intent and its result in one, because nothing runs in between."""
    start = ExecutionStart(call.key, call.request.name, arguments, summary)
    came = came or first_line(text)
    done = ExecutionComplete(call.key, False, error=text, result_summary=came, duration_ms=took_ms, seen=seen)
    return Settled((start, done))


def _refused_tried(ready: Ready, text: str, deps: Deps, seen: tuple[Seen, ...] = (), came: str = "") -> Settled:
    """A call that may have been tried."""
    took_ms = ready.call.tried(deps.clock.now_ms())
    return _refused(ready.call, ready.invocation.arguments, text, ready.summary, seen, came, took_ms)


def _lost(ready: Ready, text: str) -> Settled:
    """It was tried, and nobody knows what it did outside of the project."""
    start = ExecutionStart(ready.call.key, ready.call.request.name, ready.invocation.arguments, ready.summary)
    done = ExecutionComplete(ready.call.key, False, error=text, result_summary="unknown outcome", synthetic="unknown")
    return Settled((start, done))


def _ask_person(call: Call, start: ExecutionStart, interactive: bool) -> Settled:
    question = str(start.arguments.get("question", ""))
    options = tuple(str(option) for option in start.arguments.get("options") or ())
    asked = UserInputRequested(call.key, question, options, call=call.key)
    if interactive:
        return Settled((start, asked))
    answered = UserInputCompleted(call.key, by="treadle", synthetic=HEADLESS)
    declined = ExecutionComplete(call.key, False, error=NOBODY, result_summary="nobody to ask", synthetic=HEADLESS)
    return Settled((start, asked, answered, declined))


def summarize(spec: ToolSpec, arguments: dict[str, object]) -> str:
    """One line that stands for the call: its path or command, or its arguments (A-11)."""
    value = arguments.get(spec.summary_argument) if spec.summary_argument else None
    if isinstance(value, str):
        return first_line(value)
    if not arguments:
        return ""
    return first_line(msgspec.json.encode(arguments).decode())
