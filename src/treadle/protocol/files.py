"""States of files and changes between them: the types in which a run's effect on the project is recorded, shown and
undone (W-01, W-02). Knows no disk."""

from typing import Annotated, Literal

import msgspec

from treadle.protocol.content import ImageHash, Perhaps, Value

StateKind = Literal["file", "directory", "link", "fifo", "other"]  # other: a socket or a device
Source = Literal["tool", "view", "direct", "observed"]
"""The origin of a change, which says how certain it is. tool: a file tool. view: a command on a copy-on-write view,
committed (W-08). direct: a command that wrote to the project itself, found by comparing the tree before and after.
observed: found changed while a background process ran; another program may have made the change, so it is undone only
if its path is named (W-10)."""

ChangeAction = Literal["created", "modified", "deleted"]


class DiffStat(Value, frozen=True):
    added: int = 0
    removed: int = 0


class FileState(Value, frozen=True):
    """The entry at a path, in enough detail to restore it: the bytes of a file are stored by their hash."""

    kind: StateKind
    mode: int = 0
    """The permission bits; 0 for a link, which has none of its own."""
    digest: ImageHash = ""
    """The SHA-256 of a file's bytes."""
    size: int = 0
    target: str = ""
    """Where a link points."""


class Link(Value, frozen=True):
    """One change of a path, from one state to another, without a foreign change in between."""

    before: FileState | None
    after: FileState | None
    by: str = ""
    """The author in words, if the change is to stay: another run of the chat. Empty if the request is about this
    change."""
    foreign: bool = False
    """True if someone outside the chat made the change, or may have made it."""


class FileChange(Value, frozen=True):
    """One path, before and after; None: nothing lay there. A rename is two of them. Paths are relative to the root, in
    the form of `encode_path`."""

    path: str
    action: ChangeAction
    added: int = 0
    removed: int = 0
    before: FileState | None = None
    after: Annotated[FileState | None, Perhaps()] = None
    ignored: bool = False
    """True if .gitignore names it and git does not track it: build output, caches."""
    merged: Annotated[FileState | None, Perhaps()] = None
    """For an undo that left later changes in the file: the content that it would have restored without them."""
    rebased: Annotated[tuple[Link, ...], Perhaps()] = ()
    """For an undo below later changes of the same chat: from what to what those lead now, oldest first."""
    tracked: bool = False
    """Set of a file that git tracks though it lies in a folder of caches or .gitignore names it: it counts as a file of
    the project."""


class Uncaptured(Value, frozen=True):
    """A path that was left out of a snapshot; such a path is always reported (W-05)."""

    path: str
    reason: str
    size: int = 0


class FileConflict(Value, frozen=True):
    """A path that was left as it is, because it is not what it was expected to be (W-02, W-07, W-08)."""

    path: str
    reason: str
    """In words, for people and for the model."""
    diff: str = ""
    """From what was expected to what is there, where that can be shown."""


class Trail(Value, frozen=True):
    """The changes that a chat made to one path, oldest first, beginning with the first one that a request is about:
    those to undo and those to stay. Where a link does not begin as the one before it ended, someone else changed the
    path. No links at all: the changes of the requested range can no longer be told apart from the rest."""

    path: str
    chain: tuple[Link, ...]
    observed: bool = False
    """True if some of the changes are only known from watching while a background process ran."""
    ignored: bool = False
    """True if .gitignore names it."""

    @property
    def links(self) -> tuple[Link, ...]:
        """The changes to undo."""
        return tuple(link for link in self.chain if not link.by)


def make_file_change(
    path: str,
    old_state: FileState | None,
    new_state: FileState | None,
    stat: DiffStat,
    *,
    ignored: bool = False,
    merged: FileState | None = None,
    rebased: tuple[Link, ...] = (),
) -> FileChange:
    action: ChangeAction = "created" if old_state is None else "deleted" if new_state is None else "modified"
    return FileChange(path, action, stat.added, stat.removed, old_state, new_state, ignored, merged, rebased)


_BYTES = "//bytes/"


def encode_path(path: str) -> str:
    """Encode a path of the operating system as text that any encoding accepts. A path that is not valid UTF-8 is
    written in hexadecimal after the prefix `//bytes/`, with which no other path begins."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return _BYTES + path.encode("utf-8", "surrogateescape").hex()
    return path


def decode_path(text: str) -> str:
    if text.startswith(_BYTES):
        return bytes.fromhex(text[len(_BYTES) :]).decode("utf-8", "surrogateescape")
    return text


def find_git_unit(path: str) -> str:
    """Return the git folder to which a recorded path belongs, as in `.git` or `sub/.git`; empty if none. Its content is
    restored as one: a part of it alone would be a damaged repository."""
    parts = decode_path(path).split("/")
    return encode_path("/".join(parts[: parts.index(".git") + 1])) if ".git" in parts else ""


class Hunk(msgspec.Struct, frozen=True):
    """A change with the lines around it."""

    number: int
    header: str
    lines: tuple[str, ...]
    """Each behind its mark: unchanged, removed or added."""
    added: int
    removed: int
