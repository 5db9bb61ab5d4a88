"""Background processes of a chat: check_command, send_input and stop_command, by the handle that run_command gave. They
are supervised commands like others; what is special is only that nobody waits for them, and that a few may run at
once."""

import asyncio

from treadle.errors import ToolError
from treadle.ports.commands import Command, Ended, Known
from treadle.ports.toolset import Invocation, Outcome, PlainTool, Settlement
from treadle.ports.workspace import inert
from treadle.protocol.events import JobEnded
from treadle.protocol.tools import ToolSpec, digest
from treadle.tools.builtin.base import in_thread, parameters
from treadle.tools.builtin.command.output import exit_words, view_between
from treadle.tools.builtin.command.project import CommandProject, ProjectChange
from treadle.tools.builtin.command.request import CommandRequest
from treadle.tools.builtin.context import ToolContext, WithContext
from treadle.types import CallKey, SystemClock

MAX_RUNNING = 8
KEPT = 20
KEPT_MS = 3_600_000
"""Of processes that have ended, so many are kept for so long."""
MAX_WAIT_S = 120
_LOOK_S = 0.3
"""A process that fails at once, or answers at once, is shown at once."""
_POLL_S = 0.03
HANDLE = {"type": "string", "minLength": 1, "description": "The handle that run_command gave."}


async def make_room(context: ToolContext, request: CommandRequest) -> None:
    """Let go of what is no longer needed before a new command starts, and refuse one background process too many. The
    results of earlier commands are recorded by now: calls that execute run one after the other."""
    assert context.commands is not None
    known = await context.commands.known(request.chat)
    running = [one for one in known if one.background and one.running]
    if request.background and len(running) >= MAX_RUNNING:
        raise ToolError(
            f"{MAX_RUNNING} background commands run already, and no more may: stop one with stop_command first.\n"
            + "\n".join(_line(one) for one in running)
        )
    now = SystemClock().now_ms()
    ended = sorted((one for one in known if one.background and not one.running), key=lambda one: -one.ended_ms)
    old = [one for number, one in enumerate(ended) if number >= KEPT or now - one.ended_ms > KEPT_MS]
    for one in [*old, *(one for one in known if not one.background and not one.running)]:
        call = one.call.partition("~")[0]
        if call.partition("-")[0] == request.call:  # an attempt of this very call
            continue
        await context.commands.forget(request.chat, one.call)
        project = CommandProject(context, f"{request.chat}/{call}", request.project, request.options)
        await project.release()  # last: who comes late finds no view to commit


async def begun(command: Command, handle: str) -> tuple[str, str, bool]:
    """The text, summary and success of a command that was started in the background."""
    ended = await _settle_down(command, 0, _LOOK_S)
    if ended is not None and ended.ending == "failed":
        raise ToolError(f"The command could not be started: {ended.error}.")
    text, _ = await in_thread(_news, command, handle)
    state = _state(ended)
    how = f'[handle "{handle}", {state}: check_command shows what it writes, stop_command ends it]'
    return f"{text}\n{how}" if text else how, f"in the background as {handle}, {state}", not _failed(ended)


class _Handled(WithContext, PlainTool):
    """A tool for one background command; the supervisor takes what comes with the same call once, so after a crash it
    simply runs again."""

    async def prepare(self, invocation: Invocation) -> None:
        await self._find(invocation)

    async def settle(self, invocation: Invocation) -> Settlement:
        return "run_again"

    async def _known(self, invocation: Invocation) -> list[Known]:
        commands = self._context.commands
        known = await commands.known(invocation.chat) if commands is not None else ()
        return [one for one in known if one.background]

    async def _find(self, invocation: Invocation) -> Command:
        handle, commands = _handle(invocation), self._context.commands
        known = await self._known(invocation)
        if commands is not None and any(one.call == handle for one in known):
            command = await commands.find(invocation.chat, CallKey(handle))
            if command is not None:
                return command
        there = "\n".join(_line(one) for one in known) or "There are none."
        raise ToolError(f"There is no background command with the handle {handle!r}. Background commands:\n{there}")

    async def _report(self, command: Command, invocation: Invocation, ended: Ended | None, by: str = "") -> Outcome:
        """What is new, and with the first call that finds it ended, how that was and what it changed."""
        text, size = await in_thread(_news, command, invocation.call)
        state, handle = _state(ended), _handle(invocation)
        seen = ProjectChange(source="observed")
        facts: tuple[JobEnded, ...] = ()
        if ended is not None and await in_thread(command.first, invocation.call):
            name = f"{invocation.chat}/{handle}"
            project = CommandProject(self._context, name, invocation.project, invocation.options)
            seen = await project.compare("observed", invocation.seen)
            who = by if ended.ending == "stopped" else ""
            facts = (JobEnded(handle, ended.ending, ended.code, who, seen.concerns),)
        body = "\n".join((text or "(nothing new)", *seen.lines, f"[{state}]"))
        outcome = Outcome(body, f"{state}, {size:,} new bytes", success=not _failed(ended), facts=facts)
        return seen.added_to(outcome)


class CheckCommand(_Handled):
    spec = ToolSpec(
        name="check_command",
        description=(
            "What a background command has written since the last check, and whether it still runs. With wait_s it "
            "waits so long for something new. Without a handle: all background commands."
        ),
        dispensable=True,
        parameters=parameters(
            handle=HANDLE,
            wait_s={"type": "number", "minimum": 0, "maximum": MAX_WAIT_S, "default": 0},
        ),
        read_only=True,
        summary_argument="handle",
        timeout_s=MAX_WAIT_S + 60.0,
    )

    async def prepare(self, invocation: Invocation) -> None:
        """It looks for the handle when it runs: without one it lists all."""

    async def run(self, invocation: Invocation) -> Outcome:
        if not invocation.arguments.get("handle"):
            known = await self._known(invocation)
            return Outcome("\n".join(_line(one) for one in known) or "There are no background commands.")
        command = await self._find(invocation)
        begin, _ = await in_thread(command.since, invocation.call)
        ended = await _settle_down(command, begin, float(invocation.arguments.get("wait_s") or 0), until_news=True)
        return await self._report(command, invocation, ended)


class SendInput(_Handled):
    spec = ToolSpec(
        name="send_input",
        description=(
            "Write to a background command's input, followed by Enter unless enter is false, and see what it answers. "
            'Control keys by their code: "\\u0003" is Ctrl-C in a pty. end closes the input.'
        ),
        dispensable=True,
        parameters=parameters(
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
        command = await self._find(invocation)
        arguments = invocation.arguments
        text = str(arguments.get("text") or "")
        end = bool(arguments.get("end"))
        if arguments.get("enter", True) and (text or not end):
            text += "\n"
        begin, _ = await in_thread(command.since, invocation.call)
        token = f"{invocation.call}~{digest(arguments)[:12]}"  # of these words: a log that was put back may say others
        await command.write(text.encode(errors="surrogateescape"), token=token, end=end)
        ended = await _settle_down(command, begin, _LOOK_S, until_news=True)
        return await self._report(command, invocation, ended)


class StopCommand(_Handled):
    spec = ToolSpec(
        name="stop_command",
        description="End a background command with everything it started, and see the last of its output.",
        dispensable=True,
        parameters=parameters(required=("handle",), handle=HANDLE),
        idempotent=True,
        summary_argument="handle",
        effect="none",
    )

    async def run(self, invocation: Invocation) -> Outcome:
        command = await self._find(invocation)
        return await self._report(command, invocation, await command.stop(), by="model")


def _handle(invocation: Invocation) -> str:
    return str(invocation.arguments.get("handle", "")).strip().strip("\"'")


async def _settle_down(command: Command, begin: int, wait_s: float, *, until_news: bool = False) -> Ended | None:
    """Wait for the end, or for news and a moment without more of them, but not longer than told."""
    loop = asyncio.get_running_loop()
    until = loop.time() + wait_s
    size = begin
    ended = await command.wait(0)
    while ended is None and (left := until - loop.time()) > 0:
        ended = await command.wait(min(_POLL_S, left))
        grown = command.read(0, 0).size
        if until_news and size == grown > begin:
            break
        size = grown
    return ended


def _news(command: Command, token: str) -> tuple[str, int]:
    """What is new since the last look, bounded, and how much it is."""
    begin, end = command.since(token)
    return view_between(command, begin, end).text, end - begin


def _state(ended: Ended | None) -> str:
    if ended is None:
        return "running"
    if ended.ending == "exited":
        return exit_words(ended)
    return {"timed_out": "ended after a day", "idle": "ended because it was idle", "stopped": "stopped"}.get(
        ended.ending, ended.ending
    )


def _failed(ended: Ended | None) -> bool:
    return ended is not None and (ended.ending == "lost" or (ended.ending == "exited" and ended.code != 0))


def _line(one: Known) -> str:
    return f'"{one.call}" {"running" if one.running else "ended"}: {inert(one.title)}'
