"""Shared parts of the built-in tools: schemas, work in threads that a cancellation waits for, the services that they
work with (all that is outside of the process comes in here, as a port), and the message about an absent path."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, ParamSpec, Protocol, TypeVar

import msgspec

from treadle.errors import ToolError, Unfinished
from treadle.ports.commands import Allowance, Commands
from treadle.ports.sandbox import Demand, PrivateHome, Sandbox
from treadle.ports.snapshots import Effect, SnapshotsOf
from treadle.ports.toolset import Invocation, Subagents
from treadle.ports.workspace import Workspace, WorkspaceOf, WorldPlaces, escape_name
from treadle.protocol.content import JsonSchema
from treadle.protocol.events import SandboxNotice
from treadle.protocol.files import FileChange
from treadle.protocol.options import ChatOptions, Project

MAX_LINES = 2_000
MAX_BYTES = 50_000  # The most lines and bytes of one result that the model gets (T-11)

PATH: JsonSchema = {
    "type": "string",
    "minLength": 1,
    "description": "Relative to the project root, or absolute inside it.",
}

P = ParamSpec("P")
R = TypeVar("R")


def build_parameters(required: tuple[str, ...] = (), **properties: JsonSchema) -> JsonSchema:
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


async def run_to_end(work: Awaitable[R], stop: Callable[[], None] = lambda: None) -> R:
    """Wait for work to its end even when cancelled (`stop` is called then): no effect comes after the call is over."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        stop()
        await wait_for_end(task)
        raise


async def run_in_thread(work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Run blocking work in a thread. A cancellation waits until the thread is done."""
    return await run_to_end(asyncio.to_thread(work, *args, **kwargs))


async def run_in_stoppable_thread(work: Callable[[threading.Event], R]) -> R:
    """Like `run_in_thread`, for work that ends early when the event it gets is set; a cancellation sets it."""
    stop = threading.Event()
    return await run_to_end(asyncio.to_thread(work, stop), stop.set)


async def complete_change(step: Callable[[], R], has_begun: Callable[[], bool], subject: str) -> R:
    """Complete a decided change in spite of failures, now or later (Unfinished). ToolError: nothing is decided."""
    for _ in range(2):
        try:
            return await run_in_thread(step)
        except ToolError as error:
            if not await run_in_thread(has_begun):
                raise
            failure = error
    raise Unfinished(
        f"{subject} could not be committed entirely: {failure} It is completed when the chat is taken up again."
    ) from failure


async def wait_for_end(task: "asyncio.Future[Any]") -> None:
    """Wait for the end of a task through any number of cancellations; its result and failure are dropped."""
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            continue
    if not task.cancelled():
        task.exception()


def truncate_utf8(text: str, most: int = MAX_BYTES) -> str:
    data = text.encode(errors="replace")
    return text if len(data) <= most else data[:most].decode(errors="ignore")


class Blobs(Protocol):
    async def put_blob(self, data: bytes) -> str: ...

    async def put_blob_parts(self, parts: Iterable[bytes]) -> str: ...

    async def get_blob(self, digest: str) -> bytes: ...


SandboxOf = Callable[[Demand], Sandbox]  # `auto`: the strongest that works. SandboxError if it cannot be had


class Guarded(msgspec.Struct, frozen=True):
    """Absolute paths without links; see `treadle.ports.sandbox.Confinement`."""

    protected: tuple[str, ...] = ()
    hidden_paths: tuple[str, ...] = ()
    home: PrivateHome | None = None


Unrecoverable = Callable[[Project, Sequence[FileChange]], tuple[str, ...]]  # → paths whose bytes are lost for good


class ToolContext(msgspec.Struct, frozen=True):
    workspace_of: WorkspaceOf
    blobs: Blobs
    commands: Commands | None = None  # None: this Agent runs no commands
    sandbox_of: SandboxOf | None = None
    env: Mapping[str, str] = {}  # The user's environment, of which commands are given the allowed part
    outside: Callable[[str, str], tuple[str, ...]] = lambda _command, _root: ()
    """(command, root) → the words of the command that lead out of the root (S-15)."""
    redact: Callable[[str], str] = str  # Takes secrets out of what is kept of a command's output (S-11)
    guarded: Callable[[str], Guarded] = lambda _root: Guarded()  # not writable, and not readable, for commands (S-03)
    secrets: Callable[[Invocation], tuple[str, ...]] = lambda _invocation: ()  # files that this call may not read
    snapshots_of: SnapshotsOf | None = None  # None: nothing is kept of what files were, so nothing can be taken back
    notice: Callable[[str, ChatOptions], SandboxNotice | None] = lambda _root, _options: None  # of the confinement
    views: Callable[[Sandbox, str], bool] = lambda sandbox, _root: sandbox.views  # can commands have a view? (W-08)
    allowance: Allowance = Allowance()  # variables, paths and limits that the user gives beside the built-in lists
    worlds: Callable[[], WorldPlaces] | None = None  # None: this Agent has no worlds. Asked for when one is needed
    subagents: Callable[[], Subagents] | None = None  # None: this Agent has no sub-agents. Asked for like worlds.
    unrecoverable: Unrecoverable = lambda _project, _files: ()
    after_the_fact: Callable[[str, Effect, ChatOptions], Sequence[str]] = lambda _root, _effect, _options: ()
    """Why changes that were made would have been asked for, had anybody known them beforehand (W-10)."""
    finished_length: Callable[[str], int] = len  # of an output that may go on: up to a possible secret (S-11)


class WithContext:
    def __init__(self, context: ToolContext) -> None:
        self._context = context


_MOST = 12  # So many names are told; of more only those that are near
_SENT = 3  # So many are told in the very words to send, which small models take up


def require(workspace: Workspace, path: str) -> None:
    """ToolError where nothing lies."""
    if workspace.stat(path) is None:
        raise ToolError(describe_missing_path(workspace, workspace.to_relative(path)))


def describe_missing_path(workspace: Workspace, path: str) -> str:
    """Sentences: that nothing lies there, and what does in the nearest folder that exists."""
    here = PurePosixPath(path)
    sentence = f"{escape_name(path)} does not exist."
    while here.name:
        missing_name, here = here.name, here.parent
        try:
            children = workspace.listdir(str(here))
            names = sorted(f"{child.name}/" if child.kind == "directory" else child.name for child in children)
        except ToolError:  # not there either, or no folder
            continue
        candidates = names
        if len(names) > _MOST:
            from difflib import get_close_matches  # for the few models that guess

            candidates = get_close_matches(missing_name, names, 3)
        if 0 < len(candidates) <= _SENT:
            ways = " or ".join(f'"path": "{escape_name(str(here / name))}"' for name in candidates)
            return f"{sentence} Send the call again with {ways}, if you mean that."
        location = "the project" if not here.name else escape_name(f"{here}/")
        return (
            f"{sentence} In {location} there is: {', '.join(map(escape_name, candidates))}." if candidates else sentence
        )
    return sentence
