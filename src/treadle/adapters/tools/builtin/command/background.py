"""Background processes of a chat: check_command, send_input and stop_command, by the handle that run_command gave; and
commit_world, which people call (L-18, W-12). Changes on a view are judged with the call that commits them (W-10): it
looks at the command when it is rehearsed, so that the policy and a person see the effect before."""

import asyncio
from abc import ABC, abstractmethod
from typing import Any, Literal

import msgspec

from treadle.adapters.tools.builtin.base import ToolContext, WithContext, build_parameters, run_in_thread
from treadle.adapters.tools.builtin.command.network import format_hosts, read_reached_hosts
from treadle.adapters.tools.builtin.command.output import (
    build_range_view,
    describe_exit,
    find_finished_end,
    format_stopped_lines,
)
from treadle.adapters.tools.builtin.command.project import GIVEN_UP, NOT_KEPT, CommandProject, JobLayer, ProjectChange
from treadle.adapters.tools.builtin.command.request import CommandRequest
from treadle.adapters.tools.builtin.command.shell import parse_stopped_names
from treadle.base.types import CallKey, SystemClock
from treadle.diff.changes import count
from treadle.errors import ToolError
from treadle.ports.commands import Command, CommandExit, KnownCommand
from treadle.ports.toolset import Invocation, Outcome, PlainTool, Rehearsal, Settlement, Trial
from treadle.ports.workspace import WorldPlaces, escape_name
from treadle.protocol.events import JobEnded, JobSettled
from treadle.protocol.tools import JOB_TOOL, STOP_TOOL, WORLD_TOOL, ToolSpec, compute_digest, parse_job_handle

MAX_RUNNING = 8
KEPT = 20
KEPT_MS = 3_600_000  # Of processes that have ended, so many are kept for so long
MAX_WAIT_S = 120
_LOOK_S = 0.3  # How long the result of a start waits for a process that fails at once.
ANSWER_S = 0.3  # How long the result of an input waits for the first output after it.
_POLL_S = 0.03
_PENDING = "[{} not committed yet: call check_command with this handle again]"
HANDLE = {"type": "string", "minLength": 1, "description": "The handle that run_command gave."}


async def make_room(context: ToolContext, request: CommandRequest) -> None:
    """Forget ended commands, whose results are recorded, before a new one starts; refuse one job too many."""
    assert context.commands is not None
    known_commands = await context.commands.list_commands(request.chat)
    running = [one for one in known_commands if one.background and one.running]
    if request.background and len(running) >= MAX_RUNNING:
        raise ToolError(
            f"{MAX_RUNNING} background commands run already, and no more may: stop one with stop_command first.\n"
            + "\n".join(_format_line(one) for one in running)
        )
    now = SystemClock().now_ms()
    ended_commands = [one for one in known_commands if not one.running]
    jobs = sorted((one for one in ended_commands if one.background), key=lambda one: -one.ended_ms)
    old = [one for number, one in enumerate(jobs) if number >= KEPT or now - one.ended_ms > KEPT_MS]
    old = [one for one in old if not await _count_pending(context, request, one)]
    for one in [*old, *(one for one in ended_commands if not one.background)]:
        call = one.call.partition("~")[0]
        if call.partition("-")[0] == request.call:  # an attempt of this very call
            continue
        await context.commands.forget(request.chat, one.call)
        project = CommandProject(context, f"{request.chat}/{call}", request.project, request.options)
        await project.release()  # last: a process that comes late finds no view to commit


async def _count_pending(context: ToolContext, invocation: Invocation, one: KnownCommand) -> int:
    assert context.commands is not None
    command = await context.commands.find(invocation.chat, one.call)
    result = None if command is None or one.running else await command.wait(0)
    if command is None or result is None:
        return 0
    return await _make_layer(context, invocation, one.call, command).count_pending(result)


def _make_layer(context: ToolContext, invocation: Invocation, handle: str, command: Command) -> JobLayer:
    place = invocation.project, invocation.options, invocation.changed_paths
    return JobLayer(context, invocation.chat, handle, command, *place)


async def report_start(context: ToolContext, command: Command, handle: str) -> tuple[str, str, bool]:
    command_exit = await _settle_down(command, 0, _LOOK_S)
    if command_exit is not None and command_exit.ending == "failed":
        raise ToolError(f"The command could not be started: {command_exit.error}.")
    text, _ = await run_in_thread(_read_news, context, command, handle, command_exit)
    state = _describe_state(command_exit)
    note = f'[handle "{handle}", {state}: check_command shows what it writes, stop_command ends it]'
    text = f"{text}\n{note}" if text else note
    return text, f"in the background as {handle}, {state}", not _has_failed(command_exit)


CommitScope = Literal["", "part", "all"]  # none · of a running command up to now · all of an ended one


class _Handled(WithContext, PlainTool):
    """A tool for one background command. The supervisor takes the same call once: after a crash it runs again."""

    def __init__(self, context: ToolContext) -> None:
        super().__init__(context)
        self._rehearsed: dict[tuple[str, str], CommitScope] = {}
        """Calls of this process that have looked at their command and are not prepared yet."""

    async def prepare(self, invocation: Invocation) -> dict[str, Any] | None:
        """Only a call that was rehearsed commits: a command that ended since then is judged by the next call."""
        await self._find(invocation)
        return None

    async def settle(self, invocation: Invocation) -> Settlement:
        return "run_again"

    async def stop(self, invocation: Invocation) -> Outcome | None:
        """Complete and tell the commit that the call had begun; changes that were not begun stay on the view."""
        if not (scope := _read_scope(invocation)):
            return None
        layer = _make_layer(self._context, invocation, _get_handle(invocation), await self._find(invocation))
        change = await layer.call_off(invocation.call, all_of_it=scope == "all")
        if change is None:
            return None
        facts = (JobSettled(_get_handle(invocation), change.settlement),) if scope == "all" else ()
        return change.add_to(Outcome("", effect="view", facts=facts))

    async def _list_background_commands(self, invocation: Invocation) -> list[KnownCommand]:
        commands = self._context.commands
        known_commands = await commands.list_commands(invocation.chat) if commands is not None else ()
        return [one for one in known_commands if one.background]

    async def _find(self, invocation: Invocation) -> Command:
        handle, commands = _get_handle(invocation), self._context.commands
        is_known = any(one.call == handle for one in await self._list_background_commands(invocation))
        command = await commands.find(invocation.chat, CallKey(handle)) if commands is not None and is_known else None
        if command is not None:
            return command
        there = await self._list_lines(invocation) or "There are none."
        raise ToolError(f"There is no background command with the handle {handle!r}. Background commands:\n{there}")

    async def _list_lines(self, invocation: Invocation) -> str:
        known_commands = await self._list_background_commands(invocation)
        return "\n".join(
            [_format_line(one, await _count_pending(self._context, invocation, one)) for one in known_commands]
        )

    async def _report_command(
        self, command: Command, invocation: Invocation, command_exit: CommandExit | None, by: str = ""
    ) -> Outcome:
        text, size = await run_in_thread(_read_news, self._context, command, invocation.call, command_exit)
        state, layer = (
            _describe_state(command_exit),
            _make_layer(self._context, invocation, _get_handle(invocation), command),
        )
        lines: tuple[str, ...] = ()
        change, pending, scope = ProjectChange(source="view"), 0, _read_scope(invocation)
        if scope and invocation.discard:
            # The policy does not let the effect pass, and no person can be asked. In a read-only chat it is dropped;
            # else it stays for a person to commit.
            change = ProjectChange((f"[not committed: {invocation.discard}]",), success=False, source="view")
            if scope == "all" and invocation.options.mode == "read-only":
                change = await layer.drop(invocation.discard)
        elif scope:
            change = await layer.commit(invocation.call, command_exit if scope == "all" else None)
        elif command_exit is None and invocation.arguments.get("commit"):
            lines = ("[nothing to commit]",)
        if command_exit is not None and (pending := await layer.count_pending(command_exit)):
            if not invocation.discard:
                lines = (_PENDING.format(count(pending, "change")),)
        elif command_exit is not None and await layer.drop_unknown(command_exit):
            lines = (NOT_KEPT,)
        elif command_exit is not None and not scope and await layer.is_given_up(command_exit):
            lines = (GIVEN_UP,)
        facts: tuple[JobEnded | JobSettled, ...] = ()
        if command_exit is not None and await run_in_thread(command.is_first_token, invocation.call):
            if not layer.exists:  # the changes in the project while a command without a view ran
                name = f"{invocation.chat}/{_get_handle(invocation)}"
                project = CommandProject(self._context, name, invocation.project, invocation.options)
                change = await project.compare("observed", invocation.known_files)
            ending, stopped_by = command_exit.ending, by if command_exit.ending == "stopped" else ""
            facts = (
                JobEnded(_get_handle(invocation), ending, command_exit.code, stopped_by, change.concerns, pending),
            )
        elif scope == "all" and not pending:
            facts = (JobSettled(_get_handle(invocation), change.settlement),)
        body = "\n".join((text or "(nothing new)", *change.lines, *lines, f"[{state}]"))
        success = not _has_failed(command_exit) and change.success
        hosts = await run_in_thread(
            read_reached_hosts, f"{command.folder}/network", ()
        )  # those that its proxy has let pass
        summary = "; ".join(note for note in (f"{state}, {size:,} new bytes", format_hosts(hosts)) if note)
        outcome = Outcome(body, summary, success=success, facts=facts, hosts=hosts)
        return change.add_to(outcome if not scope else msgspec.structs.replace(outcome, effect="view"))


class _Committing(_Handled, ABC):
    async def rehearse(self, invocation: Invocation) -> Rehearsal | None:
        if not _get_handle(invocation):
            return None
        scope, rehearsal = await self._rehearse_commit(invocation)
        self._rehearsed[(invocation.chat, invocation.call)] = scope
        return rehearsal

    async def prepare(self, invocation: Invocation) -> dict[str, Any] | None:
        if not _get_handle(invocation):
            return None
        await self._find(invocation)
        key = (invocation.chat, invocation.call)
        scope = self._rehearsed.pop(key) if key in self._rehearsed else (await self._rehearse_commit(invocation))[0]
        return {"commits": scope} if scope else None

    async def _rehearse_commit(self, invocation: Invocation) -> tuple[CommitScope, Rehearsal | None]:
        command = await self._find(invocation)
        result = await self._wait(command, invocation)
        if result is None and not invocation.arguments.get("commit"):
            return "", None
        layer = _make_layer(self._context, invocation, _get_handle(invocation), command)
        rehearsal = await layer.rehearse(invocation.call, result)
        if rehearsal is None or rehearsal.empty:
            return "", None
        return "part" if result is None else "all", rehearsal

    @abstractmethod
    async def _wait(self, command: Command, invocation: Invocation) -> CommandExit | None:
        """How the command ended, or None; the wait that the call asks for happens here."""


class CheckCommand(_Committing):
    spec = ToolSpec(
        name=JOB_TOOL,
        description=(
            "What a background command has written since the last check, and whether it still runs. With wait_s it "
            "waits so long for something new. If it has ended, the files that it changed are committed to the project; "
            "commit does that while it runs. Without a handle: all background commands."
        ),
        dispensable=True,
        parameters=build_parameters(
            handle=HANDLE,
            wait_s={"type": "number", "minimum": 0, "maximum": MAX_WAIT_S, "default": 0},
            commit={
                "type": "boolean",
                "default": False,
                "description": "Commit to the project what it has changed by now.",
            },
        ),
        idempotent=True,
        effect="none",
        summary_argument="handle",
        job_argument="handle",
        timeout_s=MAX_WAIT_S + 60.0,
    )

    async def run(self, invocation: Invocation) -> Outcome:
        if not _get_handle(invocation):
            return Outcome(await self._list_lines(invocation) or "There are no background commands.")
        command = await self._find(invocation)
        return await self._report_command(command, invocation, await command.wait(0))

    async def _wait(self, command: Command, invocation: Invocation) -> CommandExit | None:
        begin, _ = await run_in_thread(command.locate_new_output, invocation.call)
        return await _settle_down(command, begin, float(invocation.arguments.get("wait_s") or 0), until_news=True)


class SendInput(_Handled):
    spec = ToolSpec(
        name="send_input",
        description=(
            "Write to a background command's input, followed by Enter unless enter is false, and see what it answers. "
            'Control keys by their code: "\\u0003" is Ctrl-C in a pty. end closes the input.'
        ),
        dispensable=True,
        parameters=build_parameters(
            required=("handle",),
            handle=HANDLE,
            text={"type": "string", "default": ""},
            enter={"type": "boolean", "default": True},
            end={"type": "boolean", "default": False},
        ),
        idempotent=True,
        summary_argument="handle",
        input_argument="text",
    )

    async def run(self, invocation: Invocation) -> Outcome:
        command, arguments = await self._find(invocation), invocation.arguments
        text, end = str(arguments.get("text") or ""), bool(arguments.get("end"))
        if arguments.get("enter", True) and (text or not end):
            text += "\n"
        begin, _ = await run_in_thread(command.locate_new_output, invocation.call)
        # with a digest of these words: a log that was put back may say others
        token = f"{invocation.call}~{compute_digest(arguments)[:12]}"
        await command.write(text.encode(errors="surrogateescape"), token=token, end=end)
        return await self._report_command(
            command, invocation, await _settle_down(command, begin, ANSWER_S, until_news=True)
        )


class StopCommand(_Committing):
    spec = ToolSpec(
        name=STOP_TOOL,
        description=(
            "End a background command with everything it started, commit the files that it changed to the project, and "
            "see the last of its output."
        ),
        dispensable=True,
        parameters=build_parameters(required=("handle",), handle=HANDLE),
        idempotent=True,
        summary_argument="handle",
        effect="none",
        job_argument="handle",
    )

    async def plan_trial(self, invocation: Invocation) -> Trial | None:
        """It is stopped before its effect is judged, so that is recorded first."""
        return Trial({}, begins=(await (await self._find(invocation)).wait(0)) is None)

    async def run(self, invocation: Invocation) -> Outcome:
        command = await self._find(invocation)
        return await self._report_command(command, invocation, await command.stop(), by="model")

    async def _wait(self, command: Command, invocation: Invocation) -> CommandExit | None:
        return await command.stop()


def _read_scope(invocation: Invocation) -> CommitScope:
    scope = (invocation.plan or {}).get("commits")
    return scope if scope in ("part", "all") else ""


def _get_handle(invocation: Invocation) -> str:
    return parse_job_handle(invocation.arguments)


async def _settle_down(command: Command, begin: int, wait_s: float, *, until_news: bool = False) -> CommandExit | None:
    """Wait for the end, or for news and a moment without more of them, but not longer than told."""
    loop = asyncio.get_running_loop()
    until = loop.time() + wait_s
    size = begin
    command_exit = await command.wait(0)
    while command_exit is None and (remaining_s := until - loop.time()) > 0:
        command_exit = await command.wait(min(_POLL_S, remaining_s))
        grown = command.read(0, 0).size
        if until_news and size == grown > begin:
            break
        size = grown
    return command_exit


def _read_news(context: ToolContext, command: Command, token: str, result: CommandExit | None) -> tuple[str, int]:
    """The output since the last look, and its size. Half a character, or the start of a secret (S-11), waits."""
    begin, size = command.locate_new_output(token)
    end = size if result is not None else find_finished_end(command, begin, size, context.finished_length)
    lines = [build_range_view(command, begin, end, context.redact).text] if end > begin else []
    if end < size:
        command.locate_new_output(token, end)
        lines.append(f"[{count(size - end, 'byte')} of unfinished output not shown yet]")
    if result is not None:
        lines += format_stopped_lines(parse_stopped_names(command.read_shell_state()), left_behind=result.left_behind)
    return "\n".join(lines), end - begin


def _describe_state(command_exit: CommandExit | None) -> str:
    if command_exit is None:
        return "running"
    if command_exit.ending == "exited":
        return describe_exit(command_exit)
    words = {"timed_out": "ended after a day", "idle": "ended because it was idle"}
    return words.get(command_exit.ending, command_exit.ending)


def _has_failed(end: CommandExit | None) -> bool:
    return end is not None and (end.ending == "lost" or (end.ending == "exited" and end.code != 0))


def _format_line(one: KnownCommand, pending: int = 0) -> str:
    state = "running" if one.running else "ended"
    note = f", {count(pending, 'change')} not committed" if pending else ""
    return f'"{one.call}" {state}{note}: {escape_name(one.title)}'


_ELSEWHERE = "The world {} is not one of the place in which this chat works; commit it in a chat that works there."


class _Committed(CommandProject):
    not_made = "nothing of the world was committed"
    mend = "rebase the world, look at it, and commit it again"


class CommitWorld(WithContext, PlainTool):
    spec = ToolSpec(
        name=WORLD_TOOL,
        description="Make what was changed in a world the project's own.",
        parameters=build_parameters(required=("world",), world={"type": "string", "minLength": 1}),
        effect="edit",
        timeout_s=600.0,
        summary_argument="world",
    )

    async def prepare(self, invocation: Invocation) -> dict[str, Any] | None:
        # A call with a plan changes files: a checkpoint precedes it.
        return {"view": await run_in_thread(self._get_view, invocation)}

    async def preview(self, invocation: Invocation) -> str:
        return (await self._make_project(invocation).preview_commit(await run_in_thread(self._get_view, invocation)))[1]

    async def rehearse(self, invocation: Invocation) -> Rehearsal | None:
        project = self._make_project(invocation)
        effect = await project.compute_effect(await run_in_thread(self._get_view, invocation))
        unrecoverable = await project.find_unrecoverable(effect)
        return Rehearsal("", effect.files, effect.uncaptured, unrecoverable, history=effect.history)

    async def run(self, invocation: Invocation) -> Outcome:
        worlds, world = self._require_worlds(), str(invocation.arguments["world"])
        view = await run_in_thread(self._get_view, invocation)
        alone = worlds.lock_world(world)
        await run_in_thread(alone.__enter__)
        try:
            change = await self._make_project(invocation).commit(view)
            if change.success:
                await run_in_thread(worlds.record_commit, world, change.files)
        finally:
            await run_in_thread(alone.__exit__, None, None, None)
        return self._make_outcome(world, change)

    async def settle(self, invocation: Invocation) -> Settlement:
        return "run_again"  # a decided commit is completed, by its name, and reported

    async def stop(self, invocation: Invocation) -> Outcome | None:
        change = await self._make_project(invocation).discard()
        return self._make_outcome(str(invocation.arguments["world"]), change) if change.files else None

    def _get_view(self, invocation: Invocation) -> str:
        worlds, world = self._require_worlds(), str(invocation.arguments["world"])
        if worlds.get_commit_target(world) != invocation.project:
            raise ToolError(_ELSEWHERE.format(world))
        return worlds.locate_view(world)

    def _require_worlds(self) -> WorldPlaces:
        if self._context.worlds is None or self._context.snapshots_of is None:
            raise ToolError("This Treadle has no worlds.")
        return self._context.worlds()

    def _make_project(self, invocation: Invocation) -> CommandProject:
        place = invocation.project, invocation.options, invocation.changed_paths
        return _Committed(self._context, f"{invocation.chat}/{invocation.call}", *place)

    def _make_outcome(self, world: str, change: ProjectChange) -> Outcome:
        headline = f"Committed the world {world}." if change.files else f"The world {world} changes nothing."
        lines = (headline, *change.lines) if change.success else change.lines
        return change.add_to(Outcome("\n".join(lines), success=change.success, effect="view"))
