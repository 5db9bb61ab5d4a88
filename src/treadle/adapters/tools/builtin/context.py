"""The services that the built-in tools work with. Everything outside of the process comes in here, as a port."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

import msgspec

from treadle.ports.commands import Allowance, Commands
from treadle.ports.sandbox import Demand, PrivateHome, Sandbox
from treadle.ports.snapshots import Effect, SnapshotsOf
from treadle.ports.toolset import Invocation, Subagents
from treadle.ports.workspace import WorkspaceOf, WorldPlaces
from treadle.protocol.events import SandboxNotice
from treadle.protocol.files import FileChange
from treadle.protocol.options import ChatOptions, Project

Outside = Callable[[str, str, str], tuple[str, ...]]
"""(command, root, cwd) → the words of the command that lead out of the root (S-15)."""


class Blobs(Protocol):
    """Large payloads by their hash; a store is one."""

    async def put_blob(self, data: bytes) -> str: ...

    async def put_blob_parts(self, parts: Iterable[bytes]) -> str: ...

    async def get_blob(self, digest: str) -> bytes: ...


SandboxOf = Callable[[Demand], Sandbox]
"""The sandbox for a demanded level (`auto`: the strongest that works). SandboxError if it cannot be had."""


class Guarded(msgspec.Struct, frozen=True):
    """Absolute paths without links; see `treadle.ports.sandbox.Confinement`."""

    protected: tuple[str, ...] = ()
    hidden_paths: tuple[str, ...] = ()
    home: PrivateHome | None = None


Unrecoverable = Callable[[Project, Sequence[FileChange]], tuple[str, ...]]
"""(project, changes) → the paths whose bytes these changes would remove for good (S-16)."""


class ToolContext(msgspec.Struct, frozen=True):
    workspace_of: WorkspaceOf
    blobs: Blobs
    commands: Commands | None = None  # None: this Agent runs no commands
    sandbox_of: SandboxOf | None = None
    env: Mapping[str, str] = {}  # The user's environment, of which commands are given the allowed part
    outside: Outside = lambda _command, _root, _cwd: ()
    redact: Callable[[str], str] = str  # Takes secrets out of what is kept of a command's output (S-11)
    guarded: Callable[[str], Guarded] = lambda _root: Guarded()
    """By root: the paths that commands may not write, and those that they may not read (S-03)."""
    secrets: Callable[[Invocation], tuple[str, ...]] = lambda _invocation: ()
    """The secret files of the project that this call may not read, relative to the root (S-18)."""
    snapshots_of: SnapshotsOf | None = None  # None: nothing is kept of what files were, so nothing can be taken back
    notice: Callable[[str, ChatOptions], SandboxNotice | None] = lambda _root, _options: None
    """How commands of this root with these options are confined, for people."""
    views: Callable[[Sandbox, str], bool] = lambda sandbox, _root: sandbox.views
    """True if commands of this root can run on a copy-on-write view in this sandbox (W-08)."""
    allowance: Allowance = Allowance()
    """Variables, readable paths and limits that the user gives to commands beside the built-in lists."""
    worlds: Callable[[], WorldPlaces] | None = None
    """None: this Agent has no worlds. Asked for when one is needed: most chats have none."""
    subagents: Callable[[], Subagents] | None = None  # None: this Agent has no sub-agents. Asked for like worlds.
    unrecoverable: Unrecoverable = lambda _project, _files: ()
    after_the_fact: Callable[[str, Effect, ChatOptions], Sequence[str]] = lambda _root, _effect, _options: ()
    """Why changes that were made would have been asked for, had anybody known them beforehand (W-10)."""
    finished_length: Callable[[str], int] = len
    """How much of an output that may go on can be shown before a secret may begin in it (S-11)."""


class WithContext:
    def __init__(self, context: ToolContext) -> None:
        self._context = context
