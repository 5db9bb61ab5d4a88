"""From a call to what its supervisor runs: where, in which environment, confined how. And following a command while it
runs. What becomes of its output is the business of `output`."""

import asyncio
import os
from collections.abc import Callable, Mapping
from contextlib import suppress

import msgspec

from treadle.errors import OutsideRoot, RootChanged, ToolError
from treadle.ports.commands import Command, Ended, Job
from treadle.ports.sandbox import Confinement, Direct, Sandbox, View
from treadle.ports.toolset import Invocation
from treadle.ports.workspace import Workspace, inert
from treadle.protocol.traces import Shell
from treadle.tools.builtin import shell_state
from treadle.tools.builtin.base import in_thread, settled
from treadle.tools.builtin.capture import clean, whole_characters
from treadle.tools.builtin.context import ToolContext
from treadle.tools.builtin.environment import without_secrets
from treadle.tools.builtin.output import CAP

DEFAULT_TIMEOUT_S = 120
MAX_TIMEOUT_S = 600
BACKGROUND_S = 24 * 3600.0
"""A background process that everybody forgot ends after a day."""
_LIVE_EVERY_S = 0.05
_LIVE_SELDOM_S = 0.25
_LIVE_BYTES = 8_000
"""Live output is a glimpse: at most so much each time, so that a flood costs neither memory nor the loop's time."""


class Place(msgspec.Struct, frozen=True):
    """Where a command runs."""

    cwd: str
    base: Mapping[str, str]
    """The environment of a fresh command."""
    shell: Shell
    """The shell that it goes on with; an empty one if it is to be fresh."""
    notes: tuple[str, ...] = ()


async def place_of(context: ToolContext, invocation: Invocation) -> Place:
    arguments = invocation.arguments
    shell = Shell() if arguments.get("fresh") else invocation.shell
    workspace = context.workspace_of(*invocation.project)
    cwd, note = await in_thread(_directory, workspace, str(arguments.get("cwd") or ""), shell.cwd)
    base = without_secrets(context.env)
    if arguments.get("pty"):
        base["TERM"] = "xterm"
    return Place(cwd, base, shell, (note,) if note else ())


def _directory(workspace: Workspace, wanted: str, shell: str) -> tuple[str, str]:
    """Where to run, and what to say about it."""
    if wanted:
        try:
            return workspace.directory(wanted), ""
        except OutsideRoot:
            return (
                workspace.path,
                f"[cwd {inert(wanted)} is outside the project root; the command ran in the root instead]",
            )
    try:
        return workspace.directory(shell), ""
    except RootChanged:
        raise
    except ToolError:
        return workspace.path, f"[the shell's directory {inert(shell)} is gone; the command ran in the root instead]"


async def sandbox_of(context: ToolContext, invocation: Invocation) -> Sandbox | None:
    """The sandbox that the chat demands; None where there is none to be had and none is demanded."""
    if context.sandbox_of is None:
        return None
    return await in_thread(context.sandbox_of, invocation.options.sandbox)


async def tidy(context: ToolContext, invocation: Invocation) -> None:
    """Take out of projects what the sandbox had put there for commands that were killed together with whoever would
    have removed it (W-10)."""
    sandbox = await sandbox_of(context, invocation)
    if sandbox is not None:
        await in_thread(sandbox.tidy)


def level(sandbox: Sandbox | None, network: bool) -> str:
    """The confinement in words, as it is recorded with each command (S-03)."""
    if sandbox is None or sandbox.level == "none":
        return "none"
    return f"{sandbox.level}, {'network' if network else 'no network'}"


def refuse_outside(context: ToolContext, invocation: Invocation, sandbox: Sandbox | None, place: Place) -> None:
    """The strict profile: by setting, and always where no sandbox works (S-15)."""
    confined = sandbox is not None and sandbox.level != "none"
    if confined and not invocation.options.strict_paths:
        return
    words = context.outside(str(invocation.arguments["command"]), invocation.root, place.cwd)
    if words:
        why = "strict_paths is on" if confined else "no sandbox confines commands on this machine"
        shown = ", ".join(inert(word) for word in words[:5])
        raise ToolError(
            f"Not run: {shown} leads out of the project root, and {why}. Use paths inside the project, relative and "
            "without '..'."
        )


def job_of(
    context: ToolContext, invocation: Invocation, sandbox: Sandbox | None, place: Place, network: bool, view: str = ""
) -> Job:
    """`view` is the folder of the copy-on-write view that it runs on; empty: on the project itself."""
    arguments = invocation.arguments
    command = str(arguments["command"])
    background, pty = bool(arguments.get("background")), bool(arguments.get("pty"))
    argv, state_fd = shell_state.shell_argv(command)
    if background or arguments.get("fresh"):
        state_fd = 0
    if sandbox is not None:
        argv = tuple(sandbox.wrap(argv, _confinement(context, invocation, network, view), place.cwd))
    return Job(
        argv,
        place.cwd,
        shell_state.environment(place.base, place.shell),
        BACKGROUND_S if background else timeout_of(invocation),
        pty=pty,
        background=background,
        input=background or pty,
        output_cap=CAP,
        state_fd=state_fd,
        title=command.strip().partition("\n")[0][:200],
        view=os.path.realpath(invocation.root) if view else "",
    )


def timeout_of(invocation: Invocation) -> float:
    return min(float(invocation.arguments.get("timeout_s") or DEFAULT_TIMEOUT_S), MAX_TIMEOUT_S)


def _confinement(context: ToolContext, invocation: Invocation, network: bool, view: str) -> Confinement:
    root = os.path.realpath(invocation.root)
    guarded = context.guarded(root)
    return Confinement(
        root,
        View(f"{view}/upper", f"{view}/work") if view else Direct(),
        network=network,
        protected=guarded.protected,
        hidden=guarded.hidden,
        terminal=bool(invocation.arguments.get("pty")),
    )


async def follow(command: Command, emit: Callable[[str], None]) -> Ended:
    """Show what a command writes until it ends. Being cancelled stops the watching, not the command."""
    live = _Live(command, emit)
    waiting = asyncio.ensure_future(command.wait())
    pause = _LIVE_EVERY_S
    try:
        while not waiting.done():
            await asyncio.wait({waiting}, timeout=pause)
            pause = _LIVE_EVERY_S if live.show(last=waiting.done()) else min(pause * 1.5, _LIVE_SELDOM_S)
        ended = waiting.result()
        assert ended is not None  # there was no time limit
        return ended
    finally:
        waiting.cancel()
        await settled(waiting)


class _Live:
    """Output for people who watch, in pieces, a few times a second."""

    def __init__(self, command: Command, emit: Callable[[str], None]) -> None:
        self._command = command
        self._emit = emit
        self._at = 0

    def show(self, *, last: bool) -> bool:
        """Whether there was something new."""
        with suppress(OSError):
            size = self._command.read(0, 0).size
            skipped = max(0, size - self._at - _LIVE_BYTES)
            output = self._command.read(self._at + skipped, _LIVE_BYTES)
            data = output.data if last else whole_characters(output.data)
            if data:
                self._at = output.offset + len(data)
                self._emit((f"[{skipped:,} bytes skipped]\n" if skipped else "") + clean(data))
                return True
        return False
