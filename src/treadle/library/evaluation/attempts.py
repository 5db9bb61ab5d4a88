"""One attempt at a task: a chat in a world of its own, driven to its end, and the check. Every step can be repeated, or
finds what a process that was killed had done already."""

import os
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from treadle.base.file_system import faultpoint, replace_file
from treadle.base.inert import inert
from treadle.base.types import CallKey, ChatId
from treadle.errors import TreadleError
from treadle.library.agent import Agent
from treadle.library.chat import Chat
from treadle.library.evaluation.places import PATCH, checked, plain
from treadle.library.evaluation.results import Result
from treadle.library.evaluation.tasks import Task
from treadle.library.worlds.record import World
from treadle.ports.toolset import Invocation
from treadle.protocol import events as e
from treadle.protocol.options import Budget, ChatOptions
from treadle.protocol.tools import COMMAND_TOOL, ToolSpec

DIFF = "diff"
"""The file with the changes of the model, for people."""
SHOWN = 2_000  # characters of the end of a check's output are kept in its result


class Attempt(NamedTuple):
    task: Task
    model: str
    """As it was named; `{task}` in it stands for the name of the task."""
    number: int

    @property
    def key(self) -> tuple[str, str, int]:
        return self.task.name, self.model, self.number

    @property
    def folder(self) -> Path:
        """The folder of the attempt's files, relative to the folder of all attempts."""
        return Path(plain(self.task.name), plain(self.model), str(self.number))


async def carry_out(agent: Agent, attempt: Attempt, world: World, folder: Path, settings: ChatOptions) -> Result:
    """Drive the attempt to its end, from wherever it stands. `folder` is its own."""
    chat = await _chat(agent, attempt, world, folder, settings)
    faultpoint("evaluation.chat_made")
    is_prompted = any(isinstance(envelope.data, e.UserMessage) for envelope in await chat.events())
    waits = False  # True if the chat waits for a person, who is not there
    async for envelope in chat.resume() if is_prompted else chat.send(attempt.task.prompt):
        waits = isinstance(envelope.data, e.ActionRequired)
    faultpoint("evaluation.chat_ended")
    state = await chat.state()
    replace_file(str(folder / DIFF), f"{await agent.worlds.diff(world.id)}\n".encode())
    async with checked(agent, attempt.task, world) as inner:
        solved, check_output = await _check(agent, attempt.task, inner, chat.id, state.options)
    failure, totals, events = state.last_error, state.totals, await chat.events()
    has_answer = any(isinstance(envelope.data, e.AssistantMessage) for envelope in events)
    return Result(
        *attempt.key,
        solved=solved and has_answer,  # a check that passes without any answer says nothing about the model
        ended="action_required" if waits else state.last_end or "done",
        chat=chat.id,
        world=world.id,
        error=inert(str(failure.message)) if failure is not None and state.last_end == "error" else "",
        check=inert(check_output)[-SHOWN:],
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        turns=totals.turns,
        input_tokens=totals.usage.input,
        output_tokens=totals.usage.output,
        usd=round(totals.usage.usd, 6),
        wall_s=round(totals.wall_ms / 1000, 3),
        tool_calls=totals.tool_calls,
        **counts(events),  # type: ignore[arg-type]
    )


def counts(events: Iterable[e.Envelope]) -> dict[str, int]:
    """How often things happened in an attempt, by field of a Result."""
    counters = {"tool_errors": 0, "repaired": 0, "rejected": 0, "approvals": 0}
    has_arguments: dict[str, bool] = {}
    for envelope in events:
        match envelope.data:
            case e.AssistantMessage(tool_requests=requests):
                counters["repaired"] += sum(request.repaired for request in requests)
            case e.ExecutionStart(call=call, arguments=arguments):
                has_arguments[call] = bool(arguments)
            case e.ExecutionComplete(call=call, success=False):
                counters["tool_errors"] += 1
                counters["rejected"] += not has_arguments.get(call, False)  # arguments that do not fit are not recorded
            case e.PermissionRequested() | e.PermissionCompleted(by="policy", auto_approved=False):  # or discarded
                counters["approvals"] += 1
    return counters


async def _chat(agent: Agent, attempt: Attempt, world: World, folder: Path, settings: ChatOptions) -> Chat:
    """The chat of the attempt, which is written down before anything is said in it."""
    if chat_id := noted(note := folder / "chat"):
        return agent.chat(chat_id)
    # The instructions of folders above the tree are none of the task's.
    task = attempt.task
    options = replace(
        settings,
        model=attempt.model.replace("{task}", task.name),
        root=world.root,
        world=world.id,
        mode=task.mode,
        interactive=False,
        max_turns=task.max_turns,
        run_budget=Budget(tokens=task.max_tokens, wall_s=task.wall_s, usd=settings.run_budget.usd),
        labels=(*settings.labels, "eval"),
    )
    ready = agent.prepare(options, highest=world.root)
    chat = await agent.chat(options=ready.options)
    os.makedirs(folder, mode=0o700, exist_ok=True)
    replace_file(str(note), chat.id.encode(), sync=True)
    return chat


def noted(note: Path) -> str:
    """The chat of an attempt; empty if it has not begun."""
    return note.read_text() if note.exists() else ""


async def _check(agent: Agent, task: Task, world: World, chat: ChatId, options: ChatOptions) -> tuple[bool, str]:
    """Run the check. Return True if the task is solved, and the output of the check. It runs like a command of the
    model: in the sandbox, supervised, without network."""
    tool = agent.deps.tools.find(COMMAND_TOOL, ChatOptions())
    if tool is None or isinstance(tool, ToolSpec):
        return False, "no commands can be run here"
    check_options = ChatOptions(
        root=world.root, root_id=world.root_id, world=world.id, sandbox=options.sandbox, mode="autopilot"
    )
    command = task.check
    if task.check_patch:
        # The patch is applied by the confined command itself: git reads the settings of the repository, and the model
        # may have written those.
        command = f"git apply {PATCH} && {{ {task.check}\n}}"
    arguments = {"command": command, "timeout_s": min(600.0, task.check_timeout_s), "fresh": True}
    key = CallKey(f"eval-{world.id.rpartition('-')[2]}")
    call = Invocation(chat, key, COMMAND_TOOL, arguments, options=check_options, by_person=True)
    try:
        outcome = await tool.run(replace(call, plan=await tool.prepare(call)))
    except TreadleError as error:
        return False, str(error)
    return outcome.success, outcome.text
