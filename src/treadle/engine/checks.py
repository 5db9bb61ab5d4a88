"""Carries out a check of a completion (L-16). A check is a call that the model did not request: the tool that runs the
model's commands runs it, in the same sandbox and under the same supervisor, with an intent before and an outcome after
it. The policy does not decide if it runs: the command is the user's own. Its changes are judged like those of any
command that the user allows (S-16): changes that would need an approval are discarded, since a check never waits for a
person.

A check can be repeated. The check of a lost worker is continued by the next worker, or begun anew under another key."""

from typing import Any

from msgspec.structs import replace

from treadle.chat.state import OpenCheck
from treadle.engine.deps import Deps
from treadle.engine.outcome import CallRun, Unknown, build_workspace_events, checkpoint, describe_crash, take_first_line
from treadle.engine.tenure import STOPPED, Stopped, Tenure
from treadle.engine.tool_calls import record_outcome, stop_call
from treadle.errors import ToolError
from treadle.ports.hooks import AskPerson, Instead
from treadle.ports.policy import Verdict
from treadle.ports.toolset import Invocation, Outcome, Rehearsal, Tool
from treadle.protocol.events import DIAGNOSTICS, CheckCompleted, CheckStarted, Event, ExecutionOutput
from treadle.protocol.tools import COMMAND_TOOL, DIAGNOSTICS_TOOL, ToolSpec

LONGEST_S = 600
CHANGED = "a hook wants other arguments for it, and a check runs as the user wrote it"


async def run_check(tenure: Tenure, check: OpenCheck, deps: Deps) -> None:
    """Begin a check and see it through, or go on with one that a lost worker began."""
    tool = _find_tool(tenure, check, deps)
    invocation = _make_invocation(tenure, check, deps)
    has_begun = tenure.state.run is not None and tenure.state.run.check is not None
    start = CheckStarted(check.check, check.command, check.attempt, check.paths)
    if tool is None:
        text = f"It could not be run: this chat's tools have no {invocation.name}."
        return await _skip(tenure, check, text, *(() if has_begun else (start,)))
    if not has_begun:
        try:
            plan = await tenure.run_unless_stopped(_prepare(tool, invocation, deps))
        except Exception as error:  # also a fault of a hook of the library's user
            text = str(error) if isinstance(error, ToolError) else describe_crash(tool.spec, error)
            return await _skip(tenure, check, deps.redact(text), start)
        if isinstance(plan, Stopped):
            return
        await tenure.append(*(await checkpoint(tenure, deps) if plan is not None else ()), replace(start, plan=plan))
    if await tenure.run_unless_stopped(_carry_out(tenure, tool, check, has_begun, deps)) is STOPPED:
        await stop_call(tenure, tool, invocation, deps)


async def _prepare(tool: Tool, invocation: Invocation, deps: Deps) -> dict[str, Any] | None:
    """Ask the hooks, and let the tool look. ToolError: a hook wants something else."""
    match await deps.hooks.before_call(tool.spec, invocation):
        case AskPerson(reason=reason):
            raise ToolError(reason)
        case Instead():
            raise ToolError(CHANGED)
        case str(reason) if reason:
            raise ToolError(reason)
    return await tool.prepare(invocation)


async def stop_check(tenure: Tenure, check: OpenCheck, deps: Deps) -> None:
    """Stop a check whose run was stopped while no worker drove it."""
    if (tool := _find_tool(tenure, check, deps)) is not None:
        await stop_call(tenure, tool, _make_invocation(tenure, check, deps), deps)


async def _carry_out(tenure: Tenure, tool: Tool, check: OpenCheck, has_begun: bool, deps: Deps) -> None:
    invocation = _make_invocation(tenure, check, deps)
    options = replace(invocation.options, interactive=False, auto_approve_commands=True)

    async def find_objection(rehearsal: Rehearsal) -> str:
        verdict = await deps.policy.judge(tool.spec, invocation, options, rehearsal, Verdict("review"))
        return "" if verdict.decision == "allow" else verdict.reason

    start_time = deps.clock.monotonic()
    call = CallRun(tool, replace(invocation, judge=find_objection), deps, ("check.before", "check.after"))
    outcome = await call.run_or_settle(may_have_begun=has_begun)
    took = round((deps.clock.monotonic() - start_time) * 1000)
    await record_outcome(tenure, lambda: _build_events(invocation, outcome, took, deps))


async def _build_events(invocation: Invocation, outcome: Outcome | Unknown, took: int, deps: Deps) -> list[Event]:
    if isinstance(outcome, Unknown):
        lost_check = CheckCompleted(invocation.call, False, synthetic="lost")
        return [lost_check, *await build_workspace_events(invocation.call, outcome.observed_outcome, deps)]
    text = deps.redact(outcome.text)
    summary, box, blob = deps.redact(outcome.summary) or take_first_line(text), outcome.sandbox, outcome.output
    completion = CheckCompleted(invocation.call, outcome.success, text, summary, box, output=blob, duration_ms=took)
    return [completion, *await build_workspace_events(invocation.call, outcome, deps)]


async def _skip(tenure: Tenure, check: OpenCheck, text: str, *begin_events: Event) -> None:
    await tenure.append(
        *begin_events, CheckCompleted(check.check, False, text, take_first_line(text), synthetic="skipped")
    )


def _find_tool(tenure: Tenure, check: OpenCheck, deps: Deps) -> Tool | None:
    """Return the tool of a check, also if the model may not use it: a check is not the model's call."""
    tool = deps.tools.find(_get_tool_name(check), replace(tenure.state.options, tools=None, dynamic_tools=()))
    return None if isinstance(tool, ToolSpec) else tool


def _get_tool_name(check: OpenCheck) -> str:
    return DIAGNOSTICS_TOOL if check.command == DIAGNOSTICS else COMMAND_TOOL


def _make_invocation(tenure: Tenure, check: OpenCheck, deps: Deps) -> Invocation:
    """In a fresh shell at the root: the shell state of the model's commands must not make a check pass."""
    state, redact = tenure.state, deps.redact_live()
    arguments: dict[str, object] = {"command": check.command, "timeout_s": LONGEST_S}
    if check.command == DIAGNOSTICS:
        arguments = {"paths": list(check.paths), "quick": True, "strict": True}
    plan = state.run.check.plan if state.run is not None and state.run.check is not None else None

    def emit(output: str) -> None:
        tenure.publish_live(ExecutionOutput(check.check, redact(output)))

    return Invocation(state.chat, check.check, _get_tool_name(check), arguments, plan, state.options, emit=emit)
