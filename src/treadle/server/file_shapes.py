"""What the server answers about changes of files, as Structs."""

from typing import Literal

from treadle.lines.hunks import Hunk
from treadle.protocol.files import FileChange, FileConflict, FileState
from treadle.server.shapes import Shape


class RunView(Shape, frozen=True, kw_only=True):
    """A run that changed files, or might have."""

    run: int
    """Its number, from 1."""
    message: int
    """The seq of the message that began it; going back to before it takes the run back."""
    upto: int
    """The last seq that is counted to it; 0: it is the last run."""
    content: str
    """What was asked for, its beginning."""


class RunList(Shape, frozen=True, kw_only=True):
    runs: tuple[RunView, ...]
    total: int


class ChangedFile(Shape, frozen=True, kw_only=True):
    """What is left of a chat's changes of one file: from what it was at first to what the chat left."""

    path: str
    """Relative to the root; what is no UTF-8 stands in hexadecimal behind `//bytes/`."""
    action: Literal["created", "modified", "deleted"]
    added: int
    removed: int
    before: FileState | None
    after: FileState | None
    notes: tuple[str, ...]
    """What no line shows: kinds, modes, targets of links, bytes."""
    hunks: tuple[Hunk, ...]
    """Numbered, as `undo` and `keep` take them."""
    cut: bool
    """Whether hunks were left out because there are too many; name the file as `path` to see more of it."""


class Changes(Shape, frozen=True, kw_only=True):
    since: int
    upto: int
    """The stretch of the log that it is about; 0: until now."""
    files: tuple[ChangedFile, ...]
    total: int
    """How many there are in all; `after` leads to the others. A folder is listed where nothing in it is."""


class Restoration(Shape, frozen=True, kw_only=True):
    """What became of the files, or with `preview` would become of them."""

    restore: str
    """Its name; of an undo, what a redo refers to."""
    preview: bool
    files: tuple[FileChange, ...]
    """What was changed: from what was there to what is there now. With `preview`, of very many the first."""
    total: int
    """How many files that are; folders are not counted."""
    conflicts: tuple[FileConflict, ...]
    """What was left alone, and why."""
    error: str
    """Why nothing was done at all."""
