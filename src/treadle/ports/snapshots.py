"""A project's files as something that can be taken back (W-01 to W-10): what was there before a change is kept outside
the project, by its hash; a set of changes is made all or none, by a journal that survives a crash; what a command did
is read off its copy-on-write view, or by comparing the tree before and after.

Whoever implements it stays inside the root (S-01) and never touches the project's `.git` but as files of the project.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from treadle.protocol.files import FileChange, FileConflict, FileState, Trail, Uncaptured

UNCLEAR = (
    "what this run did to it cannot be told apart from what other runs did: hunks were undone or kept across them, or "
    "an older Treadle recorded it; name a range that holds all of them"
)
"""Why a trail without links is left alone."""
MERGEABLE = "it has changed"
"""How the reason begins why a path is left alone that might be merged."""


class Effect(msgspec.Struct, frozen=True):
    """What a command did to the project, or would: exact, by path."""

    files: tuple[FileChange, ...]
    conflicts: tuple[FileConflict, ...] = ()
    """What somebody else changed since the command began. If there is one, nothing is committed (W-08)."""
    uncaptured: tuple[Uncaptured, ...] = ()
    git: str = ""
    """The fingerprint of `.git` afterwards, if the effect reaches into it; empty before it is committed."""
    history: tuple[str, ...] = ()
    """How it takes history away from git, hides something from it or leaves it steps to carry out: each the end of a
    sentence that begins with `it`. Known before it is committed."""


class UndoRequest(msgspec.Struct, frozen=True):
    """Trails that shall have their oldest states again."""

    trails: tuple[Trail, ...]
    hunks: Mapping[str, tuple[int, ...]] = {}
    """By path: only these hunks of the difference from its oldest state to its newest, counted from 1."""
    merge: bool = False
    git: str = ""
    """The last known fingerprint of `.git`: if it is another by now, nothing there is touched."""
    standing: frozenset[str] = frozenset()
    """All paths to which the chat did something that stands: a folder in which they lie stays without a word."""
    gated: bool = False
    """Whether what is never committed is left alone (S-16). A redo makes the chat's own changes again, and some of them
    were only found out after the fact; an undo brings back what was there before, whatever that was."""


class Plan(msgspec.Struct, frozen=True):
    """Changes that would be made now, from what is on disk. Making them is `apply`."""

    files: tuple[FileChange, ...]
    conflicts: tuple[FileConflict, ...] = ()


class Snapshots(Protocol):
    """The snapshots of one root. All methods block; call them from a thread. Failures are ToolErrors. Paths in results
    have the form of `protocol.files.encode_path`; paths given may be any that the workspace takes."""

    # -- single files, for the file tools -------------------------------------------------------------------------

    def state(self, path: str) -> FileState | None:
        """What lies at a path itself, a link not followed."""

    def ignored_folders(self, most: int) -> tuple[str, ...]:
        """The folders that `.gitignore` names, the topmost of each way, at most so many."""

    def change(self, name: str, files: Sequence[FileChange], contents: Mapping[str, bytes]) -> Effect:
        """Make these changes, all or none, with what is there now kept (W-01); `contents` are the new bytes by their
        hash. With conflicts, or a ToolError, nothing was changed. If changes of this name are `unfinished`, those are
        completed. No decision is kept: whoever comes after a crash sees by the files whether they were made."""

    def judged(self, files: Sequence[FileChange]) -> Effect:
        """These changes as a judge must see them: marked where git tracks a file in a folder of caches, and with what
        they mean to git (S-23)."""

    def unfinished(self, name: str) -> bool:
        """Whether it is decided that the changes of this name are made, and they are not made entirely."""

    def content(self, digest: str, limit: int = 0) -> bytes:
        """The bytes of this hash, kept or remembered. NotFound if they are neither (any more); ToolError if there are
        more than `limit` (0: any size)."""

    def left(self, digest: str) -> bool:
        """Whether bytes of this hash are remembered as something that a change left: then they are not a person's."""

    def remember(self, files: Sequence[FileChange]) -> None:
        """Remember the texts that these changes left, as far as they are small: the ground on which somebody's later
        edits can be merged with an undo. Never fails; without it there is no merging. `change`, `commit` and
        `compare` do it by themselves."""

    # -- commands on a view (W-08) --------------------------------------------------------------------------------

    def effect(self, view: str, changed: frozenset[str] = frozenset()) -> Effect:
        """What the command did in the view folder (`upper` and `work` lie in it), against the project as it is now.
        Reads only. Ignore files count as they were when the run began: those among `changed`, which the run changed
        before, do not count."""

    def diff(self, view: str, effect: Effect) -> str:
        """The effect in words and as a diff, bounded, inert, the same for the same effect: what an approval shows."""

    def commit(self, name: str, view: str, changed: frozenset[str] = frozenset()) -> Effect:
        """Make the effect of a view the project's own: pre-images kept, journal, all or none, whatever dies meanwhile.
        `name` is the call's: it is decided once whether its effect is committed or discarded, and by which view; after
        that this completes what was decided and gives back the same. With conflicts nothing is committed, and that is
        decided, too."""

    def freeze(self, view: str, into: str, changed: frozenset[str] = frozenset()) -> None:
        """Copy what a running command has changed in its view by now into the folder `into`, which is then a view for
        `effect`, `diff` and `commit`. Harmless when it exists. Reads only."""

    def note_committed(self, view: str, frozen_view: str) -> None:
        """Note that a frozen state of a view was committed: from now on the effect of the view is what changed
        since."""

    def discard(self, name: str) -> Effect | None:
        """See to it that the effect of this call is never committed, by nobody. If it was decided otherwise before, it
        is completed and given back."""

    def decided(self, name: str) -> bool:
        """Whether it is decided what becomes of the effect of this call."""

    def begun(self, name: str) -> bool:
        """Whether it is decided that the changes of this name are made: they are, or are completed by whoever asks for
        them again."""

    # -- commands that write through (W-10) -----------------------------------------------------------------------

    def capture(self, name: str) -> tuple[Uncaptured, ...]:
        """Keep what the project is now, under this name; what is left out is listed. Costs what changed since the last
        time, and a look at every file. Harmless when it exists."""

    def compare(self, name: str) -> Effect:
        """What changed since then. The capture stays until `release`."""

    def withdraw(self, name: str, effect: Effect) -> Effect:
        """Undo at once what of these changes is never made (S-16), and give back the rest, with that as left out. If
        it cannot be undone, all are given back."""

    def release(self, name: str) -> None:
        """Forget a capture, or what is left of a commit or an undo whose outcome is recorded."""

    # -- going back (W-02, W-03) ----------------------------------------------------------------------------------

    def plan(self, wanted: UndoRequest) -> Plan:
        """What must be changed now, and what must be left alone and why. Reads only."""

    def texts(self, change: FileChange) -> tuple[bytes | None, bytes | None]:
        """The texts at both ends of a change, as far as they can be had: kept, remembered, or still on disk. Empty for
        nothing; None for what is no text, too large, or gone."""

    def keep_hunks(self, trail: Trail, hunks: Sequence[int]) -> FileChange:
        """From the oldest state of a trail to the same with these hunks: a baseline that moves. ToolError if the file
        is no text, or somebody else changed it in between."""

    def apply(self, name: str, wanted: UndoRequest) -> Effect:
        """Plan and make it, all or none, with what is there now kept. Called again with the same name after a crash it
        completes what was begun and gives back the same."""


class SnapshotsOf(Protocol):
    def __call__(self, root: str, bound: str, world: str = "", /) -> Snapshots:
        """The snapshots of a root; see `WorkspaceOf`."""
