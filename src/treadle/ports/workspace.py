"""The port to a project's files, seen from the project's root. An implementation guarantees that no path leads outside
of the root (S-01); callers open files only through this port. Failures are ToolErrors with a text for the model."""

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Literal, Protocol

import msgspec

from treadle.base.inert import escape_unprintable
from treadle.ports.sandbox import WorldMount
from treadle.protocol.files import FileChange, FileState
from treadle.protocol.options import Project

FileKind = Literal["file", "directory", "link", "other"]
MOST_FOUND = 100  # so many paths `find` gives


class FileStat(msgspec.Struct, frozen=True):
    """The entry at a path. If links were followed, its kind is `link` only for a link that leads nowhere or outside."""

    kind: FileKind
    size: int
    mode: int


class Child(msgspec.Struct, frozen=True):
    """One entry of a directory, links not followed. `target` is where a link points."""

    name: str
    kind: FileKind
    target: str = ""


class Query(msgspec.Struct, frozen=True):
    pattern: str
    path: str = "."  # a directory, searched with all below it except what .gitignore names; or one file, in any case
    include: str = ""  # a glob that the files must match; empty: all
    ignore_case: bool = False
    literal: bool = False  # True if the pattern is plain text, not a regular expression
    context: int = 0  # how many lines before and after each match come with it
    texts: bool = True  # True: return the matching lines. False: return only the files with their number of matches.
    most: int = 50  # how many matches (without texts: files) are wanted; the rest is counted


class Line(msgspec.Struct, frozen=True):
    """A line of a file without its end. `column`: of the first match, from 0; context lines have none."""

    number: int
    text: str
    column: int = -1


class FileMatches(msgspec.Struct, frozen=True):
    path: str
    count: int  # how many lines match, whether they are in `lines` or not
    lines: tuple[Line, ...] = ()  # the first matches with their context, by number


class Matches(msgspec.Struct, frozen=True):
    """The result of a search: the first files by path, and the totals."""

    files: tuple[FileMatches, ...]
    total_files: int
    total: int
    complete: bool = True  # False: the time was up; there may be more
    too_large: tuple[str, ...] = ()  # files that were not searched because of their size
    other_encoding: tuple[str, ...] = ()  # files that were not searched, as ripgrep alone knows the pattern, not UTF-32
    unreadable: int = 0  # how many files and folders were left out because they may not be read


class Paths(msgspec.Struct, frozen=True):
    paths: tuple[str, ...]
    total: int
    complete: bool = True
    unreadable: int = 0  # how many folders were left out because they may not be read


class Location(msgspec.Struct, frozen=True):
    """Where a path leads. Both from the root and free of links."""

    path: str
    missing: tuple[str, ...] = ()  # the directories on the way that do not exist, outermost first
    mode: int = 0o644  # the permissions of the file there, or of one that is made there
    folder_mode: int = 0o755  # the same for directories that are made on the way


class Workspace(Protocol):
    """Paths are relative to the root, or absolute inside it. All methods block; call them from a thread."""

    @property
    def path(self) -> str: ...

    @property
    def world(self) -> WorldMount | None:
        """The mount that a command needs at the root's path, if it must not see the folder that is there (W-11)."""

    def to_relative(self, path: str) -> str:
        """The path as it is shown and recorded: relative to the root, `.` for the root itself."""

    def stat(self, path: str) -> FileStat | None: ...

    def inspect(self, path: str) -> FileStat | None: ...

    def read_bytes(self, path: str, limit: int = 0) -> bytes:
        """The whole of a regular file; ToolError if it is none, or larger than `limit` bytes (0: any size)."""

    def read_chunks(self, path: str) -> Iterator[bytes]: ...

    def hash_file(self, path: str) -> str | None:
        """The SHA-256 (hex) of a regular file, or None if nothing lies there. Bounded memory."""

    def listdir(self, path: str) -> list[Child]:
        """The immediate children, in no order."""

    def resolve_directory(self, path: str) -> str:
        """The absolute path of a directory inside the root, links resolved: for a command to run in."""

    def locate(self, path: str, *, write: bool = False) -> Location:
        """Where a path leads through links that stay inside, whether or not something lies there. With `write` a
        ToolError, unless nothing lies there, or a file that may be written. `Snapshots` writes it."""

    def find(
        self, pattern: str, path: str = ".", *, ignore_case: bool = False, stop: threading.Event | None = None
    ) -> Paths:
        """The first files below a directory whose path from there matches a glob, except what .gitignore names. A
        pattern without a slash is matched against the name alone. Ends early when `stop` is set."""

    def search(self, query: Query, stop: threading.Event | None = None) -> Matches:
        """The lines that match. ToolError if the pattern is no regular expression. Ends early when `stop` is set."""


class WorkspaceOf(Protocol):
    def __call__(self, root: str, root_id: str, world: str = "", /) -> Workspace:
        """The workspace of a root with this identity; see `treadle.protocol.options.Project`. RootChanged if another
        folder stands there by now; with an empty identity whichever does."""


class WorldFiles(Protocol):
    """Where the files of a root are that do not lie at its path: in a world (W-11)."""

    @property
    def name(self) -> str: ...

    @property
    def folder(self) -> str:
        """The path at which the same files lie for everybody; empty if there is none."""

    def open(self, flags: int) -> int:
        """A descriptor of the top folder; the caller closes it. ToolError if the world is gone."""

    def record_old_states(self, old_states: Mapping[str, FileState | None]) -> None:
        """Record the original states of these paths, which are about to change or have changed. A later merge with
        changes from outside needs them."""

    def mount(self) -> WorldMount: ...


_LONGEST = 300


def escape_name(name: str) -> str:
    """A file name as text that is safe to show and to store: control characters and broken UTF-8 as escapes (a
    newline in a name must not look like two names), and cut in the middle when very long."""
    name = escape_unprintable(name, keep="")
    return (name if len(name) <= _LONGEST else f"{name[:200]}…{name[-80:]}") or '""'


class WorldPlaces(Protocol):
    """All methods block; call them from a thread. ToolError for a world that is not there."""

    def get_commit_target(self, world: str) -> Project:
        """Where it is committed: the project, or the world of which it is one."""

    def locate_view(self, world: str) -> str:
        """The folder with what was changed in it (see `Snapshots.read_effect`)."""

    def lock_world(self, world: str) -> AbstractContextManager[None]:
        """Nothing is changed in it by Treadle meanwhile, and it is not rebased, committed or dropped."""

    def record_commit(self, world: str, files: Sequence[FileChange]) -> None:
        """These changes of it were committed: from here on, what they left is what both sides began with."""
