"""Examines a call before it may run: the tool, its arguments, the hooks, the policy, a person. Nothing is changed here;
the result is a call that is ready, one that has to be tried first, or the events that settle it without an effect. A
trial of a command is recorded before it begins, like an intent (law 1)."""

from collections.abc import Awaitable

import msgspec
from msgspec.structs import replace

from treadle.base.host_patterns import join_choices
from treadle.base.types import CallKey
from treadle.chat.applying import get_tool_options
from treadle.chat.state import Call, list_known_files
from treadle.engine.deps import Deps
from treadle.engine.outcome import checkpoint, describe_crash, end_call, list_seen_files, take_first_line
from treadle.engine.side_call import make_ask_model
from treadle.engine.tenure import Stopped, Tenure
from treadle.errors import ToolError, TrialLost
from treadle.ports.hooks import AskPerson
from treadle.ports.policy import Verdict
from treadle.ports.toolset import Invocation, Rehearsal, Tool, Trial
from treadle.protocol import events as e
from treadle.protocol.content import KnownFile
from treadle.protocol.options import ChatOptions
from treadle.protocol.tools import ToolSpec, compute_digest

NOBODY = "No person is there to answer. Decide yourself, in the way that fits the task best, and go on."
CUT_OFF = (
    "This call was cut off before its end, so it was not carried out. Send it again, whole. If it was too long for one "
    "answer, split the work into several smaller calls."
)
GONE = "The tool is no longer there; it is not known whether this call took effect."
CHANGED = "what it would do has changed since it was allowed"


class Ready(msgspec.Struct, frozen=True):
    call: Call
    tool: Tool
    invocation: Invocation
    summary: str
    approved: tuple[e.Event, ...] = ()


class Doubtful(msgspec.Struct, frozen=True):
    """A call whose changes must be known before the policy can decide if it may run."""

    ready: Ready
    verdict: Verdict
    options: ChatOptions
    trial: Trial | None = None  # how that is found out, if something runs for it


class SettledCall(msgspec.Struct, frozen=True):
    """A call that needs no effect: an error, a question, a client's tool, an approval to ask for."""

    events: tuple[e.Event, ...]
    blocks: bool = False  # True if the calls after it must wait


def make_invocation(tenure: Tenure, call: Call, name: str, arguments: dict[str, object], deps: Deps) -> Invocation:
    state, redact, trial = tenure.state, deps.redact_live(), None
    by_person, is_approved = state.run is not None and state.run.applies, call.phase == "approved"
    if call.trial is not None:
        trial = Trial(call.trial, network=bool(call.trial.get("network")), open=bool(call.trial_began_ms))
    seen_files = {} if by_person else list_known_files(state)
    return Invocation(
        *(state.chat, call.key, name, arguments, call.plan, state.options, state.shell, seen_files, state.outputs),
        *(by_person, is_approved, is_approved and not call.seal),
        network=call.network,
        reaches=bool(call.network),
        changed_paths=frozenset(state.run.changed_files if state.run is not None else ()),
        trial=trial,
        answers=call.answers,
        emit=lambda output: tenure.show_output(call.key, redact(output)),
        ask_model=make_ask_model(tenure, call.key, deps),
    )


def find_begun_call(tenure: Tenure, call: Call, deps: Deps) -> tuple[Tool, Invocation] | None:
    """A call that has begun or was tried, with its tool; None if Treadle does not run it itself, or no longer can."""
    options = get_tool_options(tenure.state)
    request = deps.tools.resolve_call(call.request, options)
    tool = deps.tools.find(request.name, options)
    if tool is None or isinstance(tool, ToolSpec):
        return None
    arguments = deps.tools.parse_arguments(tool.spec, request.arguments) if call.arguments is None else call.arguments
    return tool, make_invocation(tenure, call, request.name, arguments if isinstance(arguments, dict) else {}, deps)


async def examine(tenure: Tenure, call: Call, deps: Deps) -> Ready | Doubtful | SettledCall:
    if call.phase == "answered":  # a person has answered a question in its midst; it was allowed when it began
        if (begun_call := find_begun_call(tenure, call, deps)) is None:
            return SettledCall((make_unknown_outcome(call.key, GONE),))
        begun_tool, invocation = begun_call
        return Ready(call, begun_tool, invocation, summarize(begun_tool.spec, invocation.arguments))
    options = get_tool_options(tenure.state)
    if reason := await deps.tools.await_tool(call.request, options):
        return _refuse(call, {}, deps.redact(reason))
    request = deps.tools.resolve_call(call.request, options)
    tool = deps.tools.find(request.name, options)
    if tool is None:
        tool_names = ", ".join(spec.name for spec in deps.tools.list_specs(options))
        return _refuse(call, {}, f"There is no tool {request.name!r}. The tools are: {tool_names}.")
    spec = tool if isinstance(tool, ToolSpec) else tool.spec
    if request.repaired and not spec.read_only:
        return _refuse(call, {}, CUT_OFF)
    text = request.arguments if call.arguments is None else msgspec.json.encode(call.arguments).decode()
    arguments = deps.tools.parse_arguments(spec, text)
    if isinstance(arguments, str):
        return _refuse(call, {}, CUT_OFF if request.repaired else arguments)
    start = e.ExecutionStart(call.key, spec.name, arguments, summarize(spec, arguments), effect=spec.effect)
    if spec.kind == "client":
        tool_request = e.ExternalToolRequested(call.key, spec.name, arguments, call.key, options.action_deadline_s)
        return SettledCall((start, tool_request))
    if isinstance(tool, ToolSpec):
        return _ask_person(call, start, options.interactive)
    invocation = make_invocation(tenure, call, spec.name, arguments, deps)
    ready = Ready(call, tool, invocation, start.args_summary)
    return await _await_or_refuse(ready, _permit(ready, options, deps), deps)


async def _await_or_refuse(
    ready: Ready, looking: Awaitable[Ready | Doubtful | SettledCall], deps: Deps
) -> Ready | Doubtful | SettledCall:
    """Await the examination. An error before any effect becomes the result of the call."""
    try:
        return await looking
    except TrialLost as error:  # it was tried, and its effects outside of the project are unknown
        call = ready.call
        start = e.ExecutionStart(call.key, call.request.name, ready.invocation.arguments, ready.summary)
        return SettledCall((start, make_unknown_outcome(call.key, str(error))))
    except ToolError as error:
        text, seen_files = str(error), list_seen_files(error)
    except Exception as error:
        text, seen_files = describe_crash(ready.tool.spec, error), ()
    return _refuse_tried(ready, text, deps, seen_files=seen_files)


async def _permit(ready: Ready, options: ChatOptions, deps: Deps) -> Ready | Doubtful | SettledCall:
    spec = ready.tool.spec
    hooked = await deps.hooks.before_call(spec, ready.invocation)
    if isinstance(hooked, str):
        if hooked:
            return _refuse_tried(ready, hooked, deps)
    elif hooked.arguments is not None:
        new_arguments = deps.tools.parse_arguments(spec, msgspec.json.encode(hooked.arguments).decode())
        if isinstance(new_arguments, str):
            return _refuse_tried(ready, f"A hook changed the arguments: {new_arguments}", deps)
        invocation = replace(ready.invocation, arguments=new_arguments)
        ready = replace(ready, invocation=invocation, summary=summarize(spec, new_arguments))
    if ready.call.phase == "approved":
        options = replace(options, interactive=True)  # the approval came from a person
    verdict = await deps.policy.review(spec, ready.invocation, options)
    reached = join_choices(ready.invocation.network, verdict.network)
    ready = replace(ready, invocation=replace(ready.invocation, network=reached, barred=verdict.barred))
    if isinstance(hooked, AskPerson) and verdict.decision not in ("ask", "deny") and ready.call.phase != "approved":
        if not options.interactive:
            return _refuse_tried(ready, f"{hooked.reason}, and no person is here to give it.", deps)
        question = replace(verdict, decision="ask", reason=hooked.reason)
        return SettledCall((await _build_question(ready, question, None, deps),), blocks=True)
    if verdict.decision == "review":
        return Doubtful(ready, verdict, options, await ready.tool.plan_trial(ready.invocation))
    return await _apply_verdict(ready, verdict, None, deps)


async def try_out(tenure: Tenure, doubtful: Doubtful, deps: Deps) -> Ready | SettledCall:
    """Find out what the call would change, and let the policy judge that. HeadMoved: nothing was begun."""
    ready, trial = doubtful.ready, doubtful.trial
    if trial is not None:
        ready = replace(ready, invocation=replace(ready.invocation, trial=trial))
    if trial is not None and trial.begins:
        key, invocation = ready.call.key, ready.invocation
        start = e.TrialStart(key, invocation.name, invocation.arguments, ready.summary, trial.plan)
        await tenure.append(*await checkpoint(tenure, deps), start, durable=trial.network)
        ready = replace(ready, call=next((call for call in tenure.state.calls if call.key == key), ready.call))
    outcome = await _await_or_refuse(ready, _judge_effect(tenure, ready, doubtful, deps), deps)
    assert not isinstance(outcome, Doubtful)
    return outcome


async def _judge_effect(tenure: Tenure, ready: Ready, doubtful: Doubtful, deps: Deps) -> Ready | SettledCall:
    async def judge(rehearsal: Rehearsal | None) -> Ready | SettledCall:
        tool, call = ready.tool.spec, ready.invocation
        verdict = await deps.policy.judge(tool, call, doubtful.options, rehearsal, doubtful.verdict)
        return await _apply_verdict(ready, verdict, rehearsal, deps, words=doubtful.verdict)

    rehearsal = await tenure.run_unless_stopped(ready.tool.rehearse(ready.invocation))
    outcome = rehearsal if isinstance(rehearsal, Stopped) else await tenure.run_unless_stopped(judge(rehearsal))
    if isinstance(outcome, Stopped):
        await end_call(ready.tool, ready.invocation)
        return SettledCall(())
    return outcome


async def _apply_verdict(
    ready: Ready, verdict: Verdict, rehearsal: Rehearsal | None, deps: Deps, words: Verdict | None = None
) -> Ready | SettledCall:
    """Ask a person if the policy says so; then let the tool look. An answer holds for exactly what was shown: if the
    same call would do something else by now, it is asked for again (S-08). `words` is the verdict before the effect was
    known: a person who approved or edited the words alone has not seen the effect, so it has not changed for them."""
    call = ready.call
    is_approved = call.phase == "approved"
    has_tried = rehearsal is not None and ready.invocation.trial is not None
    if verdict.decision == "deny":
        synthetic = e.HEADLESS if verdict.unasked else ""
        denied = e.PermissionCompleted(call.key, "deny", by="policy", feedback=verdict.reason, synthetic=synthetic)
        return SettledCall((denied, *_refuse_tried(ready, verdict.reason, deps, result_summary="not allowed").events))
    if verdict.decision == "ask" and (not is_approved or call.seal or has_tried):
        question = await _build_question(ready, verdict, rehearsal, deps)
        if not is_approved:
            return SettledCall((question,), blocks=True)
        if question.hash != call.seal:
            if call.seal and (words is None or (await _build_question(ready, words, None, deps)).hash != call.seal):
                question = replace(question, reason=f"{question.reason}; {CHANGED}" if question.reason else CHANGED)
            return SettledCall((question,), blocks=True)
    return await _prepare_call(ready, verdict, is_approved=is_approved)


async def _prepare_call(ready: Ready, verdict: Verdict, *, is_approved: bool) -> Ready:
    invocation, reason, synthetic = ready.invocation, verdict.reason, e.HEADLESS if verdict.unasked else ""
    approves_effect = verdict.decision != "discard"
    if not approves_effect:  # the command runs, and its effect is not approved
        invocation = replace(invocation, discard=reason)
    plan = await ready.tool.prepare(invocation)
    permission = e.PermissionCompleted(ready.call.key, "allow", "policy", approves_effect, reason, synthetic=synthetic)
    approved = (permission,) if reason and not is_approved else ()
    return replace(ready, invocation=replace(invocation, plan=plan), approved=approved)


async def _build_question(
    ready: Ready, verdict: Verdict, rehearsal: Rehearsal | None, deps: Deps
) -> e.PermissionRequested:
    """Bound to exactly what a person sees, and to every change with its state before and after (S-08)."""
    key, arguments, spec = ready.call.key, ready.invocation.arguments, ready.tool.spec
    approval_text = verdict.approval_text or f"{spec.name} {ready.summary}"
    if preview := await ready.tool.preview(ready.invocation):
        if spec.effect == "edit":  # the diff contains a new file entirely: do not show it twice
            approval_text = f"{spec.name} {ready.summary}" if spec.summary_argument else spec.name
        approval_text += f"\n\n{preview}"
    approval_text = deps.redact(approval_text)
    changes = () if rehearsal is None else [(file.path, file.before, file.after) for file in rehearsal.files]
    seal = compute_digest([ready.tool.spec.name, arguments, approval_text, *([changes] if changes else [])])
    fields = (verdict.severity, verdict.reason, approval_text, seal, verdict.offers, verdict.wants)
    return e.PermissionRequested(key, key, *fields)


def _refuse(
    call: Call,
    arguments: dict[str, object],
    text: str,
    summary: str = "",
    seen_files: tuple[KnownFile, ...] = (),
    result_summary: str = "",
    took_ms: int = 0,
) -> SettledCall:
    """The intent and its result in one, because nothing runs in between."""
    start = e.ExecutionStart(call.key, call.request.name, arguments, summary)
    line = result_summary or take_first_line(text)
    result = e.ExecutionComplete(call.key, False, error=text, result_summary=line, duration_ms=took_ms, seen=seen_files)
    return SettledCall((start, result))


def _refuse_tried(
    ready: Ready, text: str, deps: Deps, seen_files: tuple[KnownFile, ...] = (), result_summary: str = ""
) -> SettledCall:
    took_ms = ready.call.compute_trial_ms(deps.clock.now_ms())
    return _refuse(ready.call, ready.invocation.arguments, text, ready.summary, seen_files, result_summary, took_ms)


def make_unknown_outcome(call: CallKey, text: str) -> e.ExecutionComplete:
    return e.ExecutionComplete(call, False, error=text, result_summary="unknown outcome", synthetic="unknown")


def _ask_person(call: Call, start: e.ExecutionStart, interactive: bool) -> SettledCall:
    options = tuple(map(str, start.arguments.get("options") or ()))
    input_request = e.UserInputRequested(call.key, str(start.arguments.get("question", "")), options, call=call.key)
    if interactive:
        return SettledCall((start, input_request))
    input_answer = e.UserInputCompleted(call.key, by="treadle", synthetic=e.HEADLESS)
    declined = e.ExecutionComplete(call.key, False, error=NOBODY, result_summary="nobody to ask", synthetic=e.HEADLESS)
    return SettledCall((start, input_request, input_answer, declined))


def summarize(spec: ToolSpec, arguments: dict[str, object]) -> str:
    """One line that stands for the call: its path or command, or its arguments (A-11)."""
    value = arguments.get(spec.summary_argument) if spec.summary_argument else None
    if not isinstance(value, str):
        value = msgspec.json.encode(arguments).decode() if arguments else ""
    return take_first_line(value)
