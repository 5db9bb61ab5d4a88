"""The files of a project, seen from its root. Whoever implements it guarantees that no path leads outside (S-01);
whoever uses it never opens a file by another way. Failures are ToolErrors with a text for the model."""

from collections.abc import Callable
from typing import Literal, Protocol

import msgspec

FileKind = Literal["file", "directory", "link", "other"]


class FileStat(msgspec.Struct, frozen=True):
    """What lies at a path, links followed; `link` only where it leads nowhere or outside."""

    kind: FileKind
    size: int
    mode: int


class Child(msgspec.Struct, frozen=True):
    """One entry of a directory, links not followed. `target` is where a link points."""

    name: str
    kind: FileKind
    target: str = ""


class Workspace(Protocol):
    """Paths are relative to the root, or absolute inside it. All methods block; call them from a thread."""

    @property
    def path(self) -> str:
        """The root itself, absolute and without links."""
        ...

    def relative(self, path: str) -> str:
        """The path as it is shown and recorded: relative to the root, `.` for the root itself."""
        ...

    def stat(self, path: str) -> FileStat | None:
        """What lies there, or None."""
        ...

    def read_bytes(self, path: str, limit: int = 0) -> bytes:
        """The whole of a regular file; ToolError if it is none, or larger than `limit` bytes (0: any size)."""
        ...

    def digest(self, path: str) -> str | None:
        """The SHA-256 (hex) of a regular file, or None if nothing lies there. Bounded memory."""
        ...

    def write_atomic(self, path: str, data: bytes, mode: int | None = None, *, token: str = "") -> None:
        """Replace or create a file in one step that survives a power cut; parents are made, and an existing
        file's mode is kept unless one is given. `token` names the writer: what it left half-done before a crash is
        swept away when it writes the same path again."""
        ...

    def sweep(self, path: str, token: str) -> None:
        """Remove what a write of `token` that died half-way left beside the file. Silent if there is nothing."""
        ...

    def listdir(self, path: str) -> list[Child]:
        """The immediate children, in no order."""
        ...

    def directory(self, path: str) -> str:
        """The absolute path of a directory inside the root, links resolved: for a command to run in."""
        ...


WorkspaceOf = Callable[[str], Workspace]
"""Opens the workspace of a root."""

_LONGEST = 300


def inert(name: str) -> str:
    """A file name as text that is safe to show and to store: control characters and broken UTF-8 as escapes (a
    newline in a name must not look like two names), and cut in the middle when very long."""
    if not name.isprintable():
        name = "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in name)
    if len(name) > _LONGEST:
        name = f"{name[:200]}…{name[-80:]}"
    return name or '""'
