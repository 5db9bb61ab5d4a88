"""run_command: a shell command in the project, its output live and bounded (T-05). It starts a supervised command, or
takes up the one that this call has already: after a crash the real output and exit code are collected, and nothing runs
twice (D-02)."""

from typing import Any

from treadle.errors import ToolError
from treadle.faultpoint import faultpoint
from treadle.ports.commands import Command, Commands, Ended
from treadle.ports.toolset import Invocation, Outcome, Rehearsal, Settlement
from treadle.protocol.tools import ToolSpec
from treadle.tools.builtin import background
from treadle.tools.builtin.base import in_thread, parameters
from treadle.tools.builtin.capture import HEAD_LINES, TAIL_LINES
from treadle.tools.builtin.means import Means
from treadle.tools.builtin.output import CAP, parts, view, without_secrets
from treadle.tools.builtin.process import (
    DEFAULT_TIMEOUT_S,
    MAX_TIMEOUT_S,
    Place,
    follow,
    job_of,
    level,
    place_of,
    refuse_outside,
    sandbox_of,
    timeout_of,
)
from treadle.tools.builtin.shell_state import Left, read_left

_NO_COMMANDS = "This Treadle runs no commands."
_LOST = "[the command's supervisor was killed; what the command did before and after that is not known]"


class RunCommand:
    spec = ToolSpec(
        name="run_command",
        description=(
            "Run a shell command (bash) in the project: pipes, redirections and && work. Output and errors come "
            f"merged, with the exit code; of long output the first {HEAD_LINES} and the last {TAIL_LINES} lines, and a "
            "handle for read_output. The working directory and exported variables carry over to the next command. "
            "There is no input: use flags that answer questions. Everything it starts is stopped when it ends or "
            f"after timeout_s seconds ({DEFAULT_TIMEOUT_S}, at most {MAX_TIMEOUT_S}). For servers and interactive "
            "programs use background: it returns at once with a handle for check_command, send_input and stop_command."
        ),
        parameters=parameters(
            required=("command",),
            command={"type": "string", "minLength": 1},
            timeout_s={"type": "number", "exclusiveMinimum": 0, "maximum": MAX_TIMEOUT_S, "default": DEFAULT_TIMEOUT_S},
            cwd={
                "type": "string",
                "description": "Where to run it, relative to the project root; else where the last command ended.",
            },
            background={"type": "boolean", "default": False, "description": "Start it and return at once."},
            pty={"type": "boolean", "default": False, "description": "Give it a terminal."},
            fresh={
                "type": "boolean",
                "default": False,
                "description": "Start in the root with a fresh environment, and leave the shell as it was.",
            },
        ),
        timeout_s=MAX_TIMEOUT_S + 60.0,  # its own limit comes first, and then it tidies up
        summary_argument="command",
    )

    def __init__(self, means: Means) -> None:
        self._means = means

    async def prepare(self, invocation: Invocation) -> dict[str, Any] | None:
        commands = self._commands()
        if "\0" in str(invocation.arguments["command"]):
            raise ToolError("The command contains a NUL character, which no shell takes.")
        place = await place_of(self._means, invocation)
        sandbox = await sandbox_of(self._means, invocation)
        refuse_outside(self._means, invocation, sandbox, place)
        return {"place": await in_thread(lambda: commands.place), "sandbox": level(sandbox, invocation)}

    async def run(self, invocation: Invocation) -> Outcome:
        commands = self._commands()
        place = await place_of(self._means, invocation)
        command = await commands.find(invocation.chat, invocation.call)
        if command is None:
            command = await self._start(commands, invocation, place)
        faultpoint("tool.command_started")
        if invocation.arguments.get("background"):
            return await background.begun(command, invocation, place.notes, _sandbox(invocation))
        ended = await follow(command, invocation.emit)
        faultpoint("tool.command_ended")
        return await self._collect(command, ended, invocation, place)

    async def preview(self, invocation: Invocation) -> str:
        return ""

    async def rehearse(self, invocation: Invocation) -> Rehearsal | None:
        return None

    async def stop(self, invocation: Invocation) -> Outcome | None:
        if self._means.commands is not None:
            await self._means.commands.prevent(invocation.chat, invocation.call)
        return None

    async def settle(self, invocation: Invocation) -> Settlement:
        """What was started here and is not lost is taken up; what was not started here may be started. What was
        started on another machine, or before a power cut, is taken up only if its end is safe on this disk."""
        commands = self._commands()
        command = await commands.find(invocation.chat, invocation.call)
        if (invocation.plan or {}).get("place") != await in_thread(lambda: commands.place):
            return "run_again" if command is not None and command.durable else "unknown"
        ended = await command.wait(0) if command is not None else None
        return "unknown" if ended is not None and ended.ending == "lost" else "run_again"

    async def _store(self, command: Command) -> str:
        """Keep the whole output; what is kept has no secrets in it."""
        kept = parts(command)
        if self._means.redact is not str:
            kept = without_secrets(kept, self._means.redact)
        return await self._means.blobs.put_blob_parts(kept)

    def _commands(self) -> Commands:
        if self._means.commands is None:
            raise ToolError(_NO_COMMANDS)
        return self._means.commands

    async def _start(self, commands: Commands, invocation: Invocation, place: Place) -> Command:
        await background.make_room(commands, invocation)
        sandbox = await sandbox_of(self._means, invocation)
        job = job_of(self._means, invocation, sandbox, place)
        return await commands.start(invocation.chat, invocation.call, job)

    async def _collect(self, command: Command, ended: Ended, invocation: Invocation, place: Place) -> Outcome:
        if ended.ending == "failed":
            raise ToolError(f"The command could not be started: {ended.error}.")
        shown = await in_thread(view, command, ended)
        digest = "" if shown.exact else await self._store(command)
        faultpoint("command.collected")
        left = await in_thread(self._left, command, invocation, place)
        how, last = _ending(ended, timeout_of(invocation))
        lines = f"{ended.lines:,} {'line' if ended.lines == 1 else 'lines'}"
        text = "\n".join(
            (
                *place.notes,
                shown.text if ended.size else "(no output)",
                *(["[processes that it left running in the background were stopped]"] if ended.left_behind else []),
                *([f"[some output could not be kept: {ended.error}]"] if ended.error else []),
                *left.notes,
                *([_handle(ended, invocation)] if shown.cut else []),
                last,
            )
        )
        return Outcome(
            text,
            summary=f"{how}, {lines}",
            success=ended.ending == "exited" and ended.code == 0,
            output=digest,
            sandbox=_sandbox(invocation),
            shell=left.shell,
        )

    def _left(self, command: Command, invocation: Invocation, place: Place) -> Left:
        workspace = self._means.workspace_of(invocation.root)
        return read_left(command.shell(), invocation.shell, place.base, workspace, self._means.env)


def _sandbox(invocation: Invocation) -> str:
    return str((invocation.plan or {}).get("sandbox", ""))


def _handle(ended: Ended, invocation: Invocation) -> str:
    kept = f"; of {ended.size:,} bytes the beginning and the end were kept" if ended.size > CAP else ""
    return f'[the whole output: read_output handle="{invocation.call}"{kept}]'


def _ending(ended: Ended, timeout_s: float) -> tuple[str, str]:
    """In a few words for people, and as the last line for the model."""
    match ended.ending:
        case "timed_out":
            how = f"timed out after {timeout_s:g} s"
            return how, f"[{how}; the command and everything it started were stopped]"
        case "stopped":
            return "stopped", "[the command was stopped, with everything it had started]"
        case "lost":
            return "lost", _LOST
        case _:
            how = f"exit {ended.code}" if ended.code >= 0 else f"killed by signal {-ended.code}"
            return how, f"[{how}]"
