"""run_command: a shell command in the project, its output live and bounded (T-05). The process itself is the
business of `process`, what is kept of its output that of `capture`."""

import asyncio
import os
import shutil
import threading
from collections.abc import Callable
from functools import cache
from typing import Any

from treadle.errors import OutsideRoot, ToolError
from treadle.ports.toolset import Invocation, Outcome, Settlement
from treadle.ports.workspace import Workspace, WorkspaceOf, inert
from treadle.protocol.tools import ToolSpec
from treadle.tools.builtin.base import Plain, in_thread, parameters, settled
from treadle.tools.builtin.capture import HEAD_LINES, TAIL_LINES, Capture, clean
from treadle.tools.builtin.environment import without_secrets
from treadle.tools.builtin.process import Ended, Stop, supervise

DEFAULT_TIMEOUT_S = 120
MAX_TIMEOUT_S = 600
_LIVE_EVERY_S = 0.05
_LIVE_BYTES = 8_000
"""Live output is a glimpse: at most so much each time, so that a flood costs neither memory nor the loop's time."""


class RunCommand(Plain):
    spec = ToolSpec(
        name="run_command",
        description=(
            "Run a shell command (bash) in the project: pipes, redirections and && work. Output and errors come "
            f"merged, with the exit code; of long output the first {HEAD_LINES} and the last {TAIL_LINES} lines. "
            "There is no input and no terminal: use flags that answer questions. Everything it starts is stopped "
            f"when it ends or after timeout_s seconds ({DEFAULT_TIMEOUT_S}, at most {MAX_TIMEOUT_S}). "
            "Each command starts in a fresh shell."
        ),
        parameters=parameters(
            required=("command",),
            command={"type": "string", "minLength": 1},
            timeout_s={"type": "number", "exclusiveMinimum": 0, "maximum": MAX_TIMEOUT_S, "default": DEFAULT_TIMEOUT_S},
            cwd={"type": "string", "default": ".", "description": "Where to run it, relative to the project root."},
        ),
        timeout_s=MAX_TIMEOUT_S + 60.0,  # its own limit comes first, and then it tidies up
        summary_argument="command",
    )

    def __init__(self, workspace_of: WorkspaceOf) -> None:
        self._workspace_of = workspace_of

    async def prepare(self, invocation: Invocation) -> dict[str, Any] | None:
        return None

    async def run(self, invocation: Invocation) -> Outcome:
        arguments = invocation.arguments
        workspace = self._workspace_of(invocation.root)
        cwd, note = await in_thread(_directory, workspace, arguments.get("cwd") or ".")
        timeout_s = min(float(arguments.get("timeout_s") or DEFAULT_TIMEOUT_S), MAX_TIMEOUT_S)
        capture = Capture()
        ended = await _run(arguments["command"], cwd, timeout_s, capture, invocation.emit)
        return _outcome(ended, capture, timeout_s, note)

    async def settle(self, invocation: Invocation) -> Settlement:
        return "unknown"


def _directory(workspace: Workspace, path: str) -> tuple[str, str]:
    try:
        return workspace.directory(path), ""
    except OutsideRoot:
        return workspace.path, f"[cwd {inert(path)} is outside the project root; the command ran in the root instead]"


async def _run(command: str, cwd: str, timeout_s: float, capture: Capture, emit: Callable[[str], None]) -> Ended:
    """In a thread of its own, not of the pool: a hundred chats may run commands at once. A cancellation stops the
    command and waits until all of it is gone."""
    if "\0" in command:
        raise ToolError("The command contains a NUL character, which no shell takes.")
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Ended] = loop.create_future()
    stop = Stop()
    live = _Live(loop, emit)

    def feed(data: bytes) -> None:
        capture.feed(data)
        live.feed(data)

    def work() -> None:
        ended: Ended | BaseException
        try:
            environment = without_secrets(os.environ)
            argv = [*_shell(), command]
            ended = supervise(argv, cwd=cwd, env=environment, timeout_s=timeout_s, stop=stop, feed=feed)
        except BaseException as error:
            ended = error
        loop.call_soon_threadsafe(_finish, done, ended)

    threading.Thread(target=work, name="treadle-command", daemon=True).start()
    try:
        return await asyncio.shield(done)
    except asyncio.CancelledError:
        stop.set()
        await settled(done)
        raise
    except OSError as error:
        raise ToolError(f"The command could not be started: {error.strerror or error}.") from error
    finally:
        live.flush()
        stop.close()


def _finish(done: "asyncio.Future[Ended]", ended: Ended | BaseException) -> None:
    if isinstance(ended, BaseException):
        done.set_exception(ended)
    else:
        done.set_result(ended)


@cache
def _shell() -> tuple[str, str]:
    return (shutil.which("bash") or shutil.which("sh") or "/bin/sh", "-c")


class _Live:
    """Output for people who watch, in pieces, a few times a second. Fed by the command's thread; shows in the
    loop's, so that the last piece appears even if nothing follows it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, emit: Callable[[str], None]) -> None:
        self._loop = loop
        self._emit = emit
        self._lock = threading.Lock()
        self._held = bytearray()
        self._skipped = 0
        self._due: asyncio.Handle | None = None
        self._last = float("-inf")

    def feed(self, data: bytes) -> None:
        with self._lock:
            first = not self._held
            self._held += data
            if len(self._held) > _LIVE_BYTES:
                self._skipped += len(self._held) - _LIVE_BYTES
                del self._held[:-_LIVE_BYTES]
        if first:
            self._loop.call_soon_threadsafe(self._schedule)

    def _schedule(self) -> None:
        wait = self._last + _LIVE_EVERY_S - self._loop.time()
        self._due = self._loop.call_later(max(0.0, wait), self.flush)

    def flush(self) -> None:
        """Show what is held. Called once more at the end, after which nothing is shown."""
        if self._due is not None:
            self._due.cancel()
        with self._lock:
            data, skipped = bytes(self._held), self._skipped
            self._held.clear()
            self._skipped = 0
        if data:
            self._last = self._loop.time()
            self._emit((f"[{skipped:,} bytes skipped]\n" if skipped else "") + clean(data))


def _outcome(ended: Ended, capture: Capture, timeout_s: float, note: str) -> Outcome:
    lines = f"{capture.lines:,} {'line' if capture.lines == 1 else 'lines'}"
    match ended.ending:
        case "timed_out":
            how = f"timed out after {timeout_s:g} s"
            last = f"[{how}; the command and everything it started were stopped]"
        case "stopped":
            how = "stopped"
            last = "[the command was stopped, with everything it had started]"
        case "exited":
            how = f"exit {ended.code}" if ended.code >= 0 else f"killed by signal {-ended.code}"
            last = f"[{how}]"
    left = "[processes that it left running in the background were stopped]" if ended.left_behind else ""
    text = "\n".join(part for part in (note, capture.render() if capture.total else "(no output)", left, last) if part)
    return Outcome(text, summary=f"{how}, {lines}", success=ended.ending == "exited" and ended.code == 0)
