"""Events about the files of the project: changes, undo, redo and keep (V-03)."""

from typing import Literal

import msgspec

from treadle.base.types import CallKey
from treadle.protocol.content import Fingerprint, ManifestHash
from treadle.protocol.envelope import Event
from treadle.protocol.files import FileChange, FileConflict, Source, Uncaptured

RestoreKind = Literal["undo", "redo", "keep"]


class CheckpointCreated(Event, frozen=True):
    """The files as they are now can be had back: recorded before the first change of a run (W-01)."""

    TYPE = "checkpoint.created"
    message: int
    """The seq of the message that began the run: the name of the checkpoint."""


class FilesChanged(Event, frozen=True):
    """A call changed files of the project. Of very many changes the first are here and all of them in a blob."""

    TYPE = "workspace.files_changed"
    VERSION = 3
    files: tuple[FileChange, ...]
    call: CallKey = CallKey("")
    source: Source = "tool"
    manifest: ManifestHash = ""
    """The hash of the blob with all changes, where `files` holds only the first; empty: `files` is all."""
    total: int = 0
    """How many there are, where `files` holds only the first."""
    uncaptured: tuple[Uncaptured, ...] = ()
    """The paths that could not be captured and therefore cannot be undone (W-05)."""
    git: Fingerprint = ""
    """A fingerprint of `.git` after a change of it: changes that a command made there are undone as a whole, or not at
    all."""


class RestoreRequested(Event, frozen=True):
    """Someone asked for changes to be undone, redone or kept. The intent: carried out by the next worker, and what came
    of it is the event behind it (W-02, W-03)."""

    TYPE = "workspace.restore_requested"
    restore: str
    """Its name; an undo's is what a redo refers to."""
    kind: RestoreKind
    since: int = 0
    """Changes recorded after this seq …"""
    upto: int = 0
    """… and not after this one; 0: until now."""
    paths: tuple[str, ...] = ()
    """Only these files, and what lies below these folders; empty: all."""
    hunks: dict[str, tuple[int, ...]] = msgspec.field(default_factory=dict)
    """By path: only these hunks of its diff, counted from 1."""
    merge: bool = False
    """True if a file that has been changed since is merged (three-way) instead of left alone."""
    even_kept: bool = False
    of: str = ""
    """The undo that a redo takes back."""
    by: str = "person"


class Restored(Event, frozen=True):
    """The base of what a request came to."""

    restore: str
    files: tuple[FileChange, ...] = ()
    manifest: ManifestHash = ""
    total: int = 0
    conflicts: tuple[FileConflict, ...] = ()
    """The files that were left alone, with the reasons."""
    error: str = ""
    """Why nothing was done at all."""
    git: Fingerprint = ""


class Undone(Restored, frozen=True):
    """Changes were undone. The content before the undo is stored, so that it can be redone."""

    TYPE = "workspace.undone"
    VERSION = 3


class Redone(Restored, frozen=True):
    """An undo was taken back."""

    TYPE = "workspace.redone"
    VERSION = 3


class ChangesKept(Restored, frozen=True):
    """Changes were accepted: an undo leaves them alone from here on. Nothing on disk changes; `files` says from what to
    what the baseline moved."""

    TYPE = "workspace.kept"
    VERSION = 3


RESTORED: dict[RestoreKind, type[Restored]] = {"undo": Undone, "redo": Redone, "keep": ChangesKept}
"""The event that records the outcome, by the kind of the request."""


class WorkspaceConflict(Event, frozen=True):
    """The effect of a call on the project was not applied, because the same files were changed by others meanwhile
    (W-07, W-08)."""

    TYPE = "workspace.conflict"
    conflicts: tuple[FileConflict, ...]
    call: CallKey = CallKey("")


class GitBranchCreated(Event, frozen=True):
    """The run works on a branch of its own (W-06)."""

    TYPE = "git.branch_created"
    branch: str
    base: str = ""
    """The commit from which it starts; empty in a repository without one."""
    previous: str = ""
    """The branch that was checked out before."""


Workspace = FilesChanged | Undone | Redone | ChangesKept  # the events that make up the history of the project's files
