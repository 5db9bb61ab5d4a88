"""The tool `delegate` (L-23): sub-agents side by side, their changes committed one after the other when all rest, and a
report. A child whose changes conflict is not committed, and its world stays."""

import asyncio
from typing import Any

from msgspec.structs import replace

from treadle.adapters.tools.builtin.base import truncate_utf8
from treadle.chat.applying import find_last_answer
from treadle.chat.fold_calls import decode_arguments
from treadle.chat.state import ChatState
from treadle.diff.changes import count, format_changes, sum_stats
from treadle.errors import ToolError
from treadle.library.subagents.children import (
    Children,
    ChildResult,
    Home,
    compute_share,
    make_child,
    make_child_options,
    make_failure,
)
from treadle.ports.snapshots import Effect
from treadle.ports.toolset import Invocation, Outcome
from treadle.ports.workspace import escape_name
from treadle.protocol.files import FileChange, FileConflict, decode_path
from treadle.protocol.options import ChatOptions
from treadle.protocol.subagent_events import Child, decode_children

LONGEST = 12_000  # So many bytes of what a sub-agent says at last are its report.
_MOST_FILES = 40
_WORDS = {
    "done": "done", "task_complete": "done", "interrupted": "was stopped", "error": "failed",
    "budget": "has used up its budget", "turn_cap": "has used up its turns",
    "guard": "was stopped, because it repeated itself", "superseded": "was stopped",
    "incomplete": "ended with an incomplete answer",
}  # fmt: skip


async def plan_delegation(home: Home, invocation: Invocation) -> list[Child]:
    options, tasks = invocation.options, invocation.arguments["tasks"]
    state = await home.deps.log.load(invocation.chat)
    number_beside = _count_siblings(state, invocation)
    if number_beside + len(tasks) > options.subagents:
        other_calls = f"; {number_beside} of other calls are at work or about to begin" if number_beside else ""
        most = count(options.subagents, "sub-agent")
        raise ToolError(f"At most {most} of this chat may be at work at once{other_calls}. Give fewer tasks.")
    if options.subagent_depth <= 0:
        raise ToolError("Sub-agents may not go deeper than this: do it yourself.")
    owner, children = state.owner, []
    for number, task in enumerate(tasks, 1):
        task_options = _make_task_options(home, options, task, owner)
        title = str(task.get("title") or task["task"]).strip().partition("\n")[0]
        has_world = task_options.mode != "read-only"
        children.append(make_child(invocation, number, title, task_options.model, world=has_world))
    return children


def _count_siblings(state: ChatState, invocation: Invocation) -> int:
    """How many sub-agents the calls before this one have, or will have: they run beside it."""
    number = 0
    for call in state.calls:
        if call.key == invocation.call:
            break
        if call.request.name == invocation.name and call.phase != "done":
            tasks = decode_arguments(call).get("tasks")  # of a call that was examined and has not begun
            number += len(decode_children(call.plan)) or (len(tasks) if isinstance(tasks, list) else 0)
    return number


async def delegate(home: Home, invocation: Invocation) -> Outcome:
    children, group = decode_children(invocation.plan), Children(home, invocation)
    state = await home.deps.log.load(invocation.chat)
    budget = compute_share(state, invocation.call, children, home.deps.clock.now_ms())

    async def see_through(child: Child, task: dict[str, Any]) -> ChildResult:
        try:
            options = make_child_options(_make_task_options(home, invocation.options, task, state.owner), budget)
            chat = await group.begin(child, str(task["task"]), options)
        except ToolError as error:  # the others go on: what they do and cost is recorded
            return make_failure(child, error)
        return ChildResult(child, await group.wait_for_child(child, chat))

    with home.worker.lend_place(invocation.chat):
        try:
            async with asyncio.TaskGroup() as work:
                pairs = zip(children, invocation.arguments["tasks"], strict=True)
                running_tasks = [work.create_task(see_through(child, task)) for child, task in pairs]
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from failed
        merged = [await _merge_child(group, task.result()) for task in running_tasks]
    return build_outcome(invocation, merged, [_format_report(each) for each in merged])


async def _merge_child(group: Children, child_result: ChildResult) -> ChildResult:
    """Commit the changes of a child; not those of a stopped or failed one: its world stays. A refusal is its result."""
    if not child_result.child.world or child_result.problem:
        return child_result
    try:
        if not child_result.ended_well:
            return replace(child_result, effect=await group.compute_effect(child_result.child))
        effect, merged = await group.merge(child_result.child)
    except ToolError as error:
        return replace(child_result, problem=str(error))
    return replace(child_result, effect=effect, committed=not effect.conflicts, merged=merged)


def build_outcome(call: Invocation, merged: list[ChildResult], reports: list[str], *, success: bool = True) -> Outcome:
    """Return the outcome of a call that began chats: its changes are the committed ones."""
    effects = [each.effect for each in merged if each.committed]
    files: tuple[FileChange, ...] = tuple(file for effect in effects for file in effect.files)
    conflicts: tuple[FileConflict, ...] = tuple(each for child in merged for each in child.effect.conflicts)
    stat = sum_stats(files)
    summary = f"{sum(each.ended_well for each in merged)} of {count(len(merged), 'sub-agent')} done"
    return Outcome(
        "\n\n".join(reports), summary=summary, success=success,
        diff_stat=stat if stat.added or stat.removed else None, files=files, source="view",
        uncaptured=tuple(each for effect in effects for each in effect.uncaptured),
        git=next((effect.git for effect in reversed(effects) if effect.git), ""), conflicts=conflicts, effect="view",
        facts=tuple(each.make_fact(call.call) for each in merged),
    )  # fmt: skip


def _format_report(child_result: ChildResult) -> str:
    child, state = child_result.child, child_result.state
    lines = [f"[{child.number}] {child.title}: {_WORDS[state.last_end or 'done']} (chat {child.chat})"]
    if child_result.problem and child_result.ended_well:
        reason = escape_name(child_result.problem.rstrip("."))
        lines.append(f"[its changes could not be committed: {reason}. They are in world {child.world}]")
    elif state.last_error is not None and not child_result.ended_well:
        lines.append(f"[it ended with an error: {escape_name(state.last_error.message)}]")
    answer = find_last_answer(state).strip()
    short = truncate_utf8(answer, LONGEST)
    lines.append(short if short == answer else f"{short}\n[the rest is left out]")
    return "\n".join([*(line for line in lines if line), *_describe_changes(child_result)])


def _describe_changes(child_result: ChildResult) -> list[str]:
    effect, world = child_result.effect, child_result.child.world
    if effect.conflicts:
        names = ", ".join(escape_name(decode_path(each.path)) for each in effect.conflicts[:_MOST_FILES])
        return [
            f"[conflict: {names} changed in the project meanwhile, so nothing of it was committed. Its work is in "
            f"world {world}: look at the project, and do by hand what is still wanted]"
        ]
    place = "changed in the project" if child_result.committed else f"not committed, in world {world}"
    lines = format_effect(effect, place)
    if child_result.merged:
        names = ", ".join(escape_name(decode_path(path)) for path in child_result.merged[:_MOST_FILES])
        lines.append(f"[merged with what others changed meanwhile: {names}; check that it fits together]")
    return lines


def format_effect(effect: Effect, head: str) -> list[str]:
    lines = format_changes(effect.files, lambda path: escape_name(decode_path(path)), _MOST_FILES)
    return [f"[{head}]", *lines] if lines else []


def _make_task_options(home: Home, parent: ChatOptions, task: dict[str, Any], owner: str) -> ChatOptions:
    """The options of a child: never more than its parent's. The operator's custom agents are not for others (S-13)."""
    options = replace(parent, agent="", agent_prompt="")
    if name := str(task.get("agent") or ""):
        agents = home.custom_agents(parent.project, include_own=not owner)
        if name not in agents:
            raise ToolError(f"There is no custom agent {name!r}; there is: {', '.join(agents) or 'none'}.")
        agent = agents[name]
        tools = parent.tools if agent.tools is None else agent.tools
        if agent.tools is not None and parent.tools is not None:
            tools = tuple(name for name in agent.tools if name in parent.tools)
        model, effort = agent.model or parent.model, agent.reasoning_effort or parent.reasoning_effort
        options = replace(options, tools=tools, model=model, reasoning_effort=effort)
        options = replace(options, agent=agent.name, agent_prompt=agent.prompt)
    return replace(options, mode="read-only") if task.get("read_only") else options
