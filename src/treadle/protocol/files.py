"""What lies at a path, and how that changed: the words in which a run's effect on the project is recorded, shown and
taken back (W-01, W-02). Knows no disk."""

from typing import Annotated, Literal

import msgspec

from treadle.protocol.content import ImageHash, Perhaps, Value

StateKind = Literal["file", "directory", "link", "fifo", "other"]
"""other: a socket or a device, of which nothing but its being there is known."""

Source = Literal["tool", "view", "direct", "observed"]
"""Who made a change, and so how sure it is: a file tool · a command on a copy-on-write view, committed (W-08) · a
command that wrote through, by comparing the tree before and after · found changed while a background process ran: it
may have been somebody else, so it is undone only if its path is named (W-10)."""


class DiffStat(Value, frozen=True):
    added: int = 0
    removed: int = 0


class FileState(Value, frozen=True):
    """What lies at a path, exactly enough to bring it back: the bytes of a file are kept by their hash."""

    kind: StateKind
    mode: int = 0
    """The permission bits; 0 for a link, which has none of its own."""
    digest: ImageHash = ""
    """The SHA-256 of a file's bytes."""
    size: int = 0
    target: str = ""
    """Where a link points."""


class Link(Value, frozen=True):
    """A path from one state to another, with nobody else's change in between."""

    before: FileState | None
    after: FileState | None
    by: str = ""
    """Who made it, in words, where it is to stay: another run of the chat. Empty: it is what a request is about."""
    foreign: bool = False
    """Whether somebody else made it, or may have."""


class FileChange(Value, frozen=True):
    """One path, before and after; None: nothing lay there. A rename is two of them. Paths are relative to the root, in
    the form of `encode_path`."""

    path: str
    action: Literal["created", "modified", "deleted"]
    added: int = 0
    removed: int = 0
    before: FileState | None = None
    after: Annotated[FileState | None, Perhaps()] = None
    ignored: bool = False
    """True if .gitignore names it and git does not track it: build output, caches."""
    merged: Annotated[FileState | None, Perhaps()] = None
    """For an undo that left later changes in the file: what it would have brought back without them."""
    rebased: Annotated[tuple[Link, ...], Perhaps()] = ()
    """For an undo below later changes of the same chat: from what to what those lead now, oldest first."""
    tracked: bool = False
    """Set of a file that git tracks though it lies in a folder of caches or .gitignore names it: it counts as a file of
    the project."""


class Uncaptured(Value, frozen=True):
    """What was left out of a snapshot, never silently (W-05)."""

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
    """What a chat did to one path since it first did what a request is about, oldest first: what is to be taken back,
    and what is to stay. Where one link does not begin as the one before it ended, somebody else changed the path. None
    at all: what was done in the wanted range cannot be told apart from the rest any more."""

    path: str
    chain: tuple[Link, ...]
    observed: bool = False
    """Whether some of it is only known from watching while a background process ran."""
    ignored: bool = False
    """Whether .gitignore names it."""

    @property
    def links(self) -> tuple[Link, ...]:
        """What is to be taken back."""
        return tuple(link for link in self.chain if not link.by)


def change_of(
    path: str,
    before: FileState | None,
    after: FileState | None,
    stat: DiffStat,
    *,
    ignored: bool = False,
    merged: FileState | None = None,
    rebased: tuple[Link, ...] = (),
) -> FileChange:
    action: Literal["created", "modified", "deleted"] = "modified"
    if before is None or after is None:
        action = "created" if before is None else "deleted"
    return FileChange(path, action, stat.added, stat.removed, before, after, ignored, merged, rebased)


_BYTES = "//bytes/"


def encode_path(path: str) -> str:
    """A path as the operating system gave it to Python, as text that any encoding takes. What is no valid UTF-8 is
    written in hexadecimal behind two slashes, with which no other path begins."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return _BYTES + path.encode("utf-8", "surrogateescape").hex()
    return path


def decode_path(text: str) -> str:
    """The path for the operating system."""
    if text.startswith(_BYTES):
        return bytes.fromhex(text[len(_BYTES) :]).decode("utf-8", "surrogateescape")
    return text


def git_unit(path: str) -> str:
    """The repository to whose insides a recorded path belongs, as in `.git` or `sub/.git`; empty: to none. What lies
    there is one: a part of it alone, brought back, would be a damaged repository."""
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
