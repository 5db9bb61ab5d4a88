"""Undoable changes of a project's files (W-01 to W-10). Content before a change is stored outside the project, by its
hash. A set of changes is applied all or none, by a journal that survives a crash. The effect of a command is read from
its copy-on-write view, or found by comparing the tree before and after.

An implementation stays inside the root (S-01) and touches the project's `.git` only as files of the project."""

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from treadle.protocol.files import FileChange, FileConflict, FileState, Trail, Uncaptured

UNCLEAR = (
    "what this run did to it cannot be told apart from what other runs did: hunks were undone or kept across them, or "
    "an older Treadle recorded it; name a range that holds all of them"
)
"""Why a trail without links is left alone."""
MERGEABLE = "it has changed"  # how the reason begins why a path is left alone that might be merged


class Effect(msgspec.Struct, frozen=True):
    """The exact changes of a command to the project, by path, made or rehearsed."""

    files: tuple[FileChange, ...]
    conflicts: tuple[FileConflict, ...] = ()  # files that others changed meanwhile: nothing is committed (W-08)
    uncaptured: tuple[Uncaptured, ...] = ()
    git: str = ""  # the fingerprint of `.git` afterwards, if the effect reaches into it; empty before it is committed
    history: tuple[str, ...] = ()
    """How it takes history away from git, hides something from it or leaves it steps to carry out: each the end of a
    sentence that begins with `it`. Known before it is committed."""


class UndoRequest(msgspec.Struct, frozen=True):
    """Trails that shall have their oldest states again."""

    trails: tuple[Trail, ...]
    hunks: Mapping[str, tuple[int, ...]] = {}  # by path: only these hunks from its oldest to its newest state, from 1
    merge: bool = False
    git: str = ""  # the last known fingerprint of `.git`: if it is another by now, nothing there is touched
    standing: frozenset[str] = frozenset()  # paths with changes of the chat in effect: a folder with one stays
    gated: bool = False
    """True if changes that are never committed are skipped (S-16). Set for a redo: it applies the chat's own changes
    again, some of which were only detected afterwards. An undo restores any earlier state."""


class Plan(msgspec.Struct, frozen=True):
    """Changes that would be made now, from what is on disk. Making them is `apply`."""

    files: tuple[FileChange, ...]
    conflicts: tuple[FileConflict, ...] = ()


class Snapshots(Protocol):
    """The snapshots of one root. All methods block; call them from a thread. Failures are ToolErrors. Paths in results
    have the form of `protocol.files.encode_path`; paths given may be any that the workspace takes."""

    # -- single files, for the file tools -------------------------------------------------------------------------

    def read_state(self, path: str) -> FileState | None:
        """Return the state of the path itself; a link is not followed."""

    def list_ignored_folders(self, most: int) -> tuple[str, ...]:
        """The folders that `.gitignore` names, the topmost of each way, at most so many."""

    def change(self, name: str, files: Sequence[FileChange], contents: Mapping[str, bytes]) -> Effect:
        """Apply these changes, all or none, and store the current content first (W-01); `contents` are the new bytes by
        their hash. With conflicts, or a ToolError, nothing is changed. If changes of this name are unfinished, those
        are completed. No decision is stored: after a crash, the files show whether the changes were applied."""

    def assess(self, files: Sequence[FileChange]) -> Effect:
        """These changes as a judge sees them: with tracked files in cache folders, and their effect on git (S-23)."""

    def is_unfinished(self, name: str, files: Sequence[FileChange]) -> bool:
        """True if the changes of this name were decided but are not completely applied. If not, what others saved while
        an earlier attempt was killed over these `files` is put back."""

    def read_content(self, digest: str, limit: int = 0) -> bytes:
        """The bytes of this hash, if kept or remembered, else NotFound. ToolError above `limit` bytes (0: any size)."""

    def is_after_image(self, digest: str) -> bool:
        """True if a change left bytes of this hash, as far as remembered: then they were not written by a person."""

    def remember(self, files: Sequence[FileChange]) -> None:
        """Remember the texts that these changes left, if they are small: the base for merging later edits of others
        with an undo. Never fails; without it there is no merging. `change`, `commit`, `compare` call it themselves."""

    # -- commands on a view (W-08) --------------------------------------------------------------------------------

    def read_effect(self, view: str, changed_paths: frozenset[str] = frozenset()) -> Effect:
        """Return the effect of the command in the view folder (which contains `upper` and `work`) on the current
        project. Read-only. Ignore files count as of the beginning of the run: those among `changed_paths`, which the
        run changed before, are not used."""

    def render_diff(self, view: str, effect: Effect) -> str:
        """Return the effect as shown for an approval, with a diff: bounded, inert, deterministic."""

    def commit(self, name: str, view: str, changed_paths: frozenset[str] = frozenset()) -> Effect:
        """Apply the effect of a view to the project: pre-images stored, with a journal, all or none, safe against a
        crash at any time. `name` is the name of the call. The decision to commit or discard its effect, and by which
        view, is made once. Later calls complete that decision and return the same effect. With conflicts nothing is
        committed, and that is also a decision."""

    def freeze(self, view: str, into: str, changed_paths: frozenset[str] = frozenset()) -> None:
        """Copy what a running command has changed in its view by now into the folder `into`, which is then a view for
        `effect`, `diff` and `commit`. Harmless when it exists. Reads only."""

    def note_committed(self, view: str, frozen_view: str) -> None:
        """Note that a frozen state of a view was committed: the effect of the view is what changed since then."""

    def discard(self, name: str) -> Effect | None:
        """Decide that the effect is never committed. A commit that was decided before is completed and returned."""

    def is_decided(self, name: str) -> bool: ...

    def is_apply_decided(self, name: str) -> bool:
        """True if it is decided that the changes of this name are applied: now, or by the next call for them."""

    # -- commands that write through (W-10) -----------------------------------------------------------------------

    def capture(self, name: str) -> tuple[Uncaptured, ...]:
        """Store the current state of the project under this name. Return the paths that are left out. Costs a stat of
        every file, and a read of those changed since the last capture. No effect if the capture exists."""

    def compare(self, name: str) -> Effect:
        """Return the changes since the capture. The capture stays until `release`."""

    def withdraw(self, name: str, effect: Effect) -> Effect:
        """Undo at once what is never made (S-16) and give back the rest; all, if that cannot be undone."""

    def release(self, name: str) -> None:
        """Forget a capture, or what is left of a commit or an undo whose outcome is recorded."""

    # -- going back (W-02, W-03) ----------------------------------------------------------------------------------

    def plan(self, request: UndoRequest) -> Plan:
        """Return the changes to make now, and the paths to leave alone with the reasons. Read-only."""

    def read_texts(self, change: FileChange) -> tuple[bytes | None, bytes | None]:
        """The texts at both ends of a change, as far as they can be had: kept, remembered, or still on disk. Empty for
        nothing; None for what is no text, too large, or gone."""

    def keep_hunks(self, trail: Trail, hunks: Sequence[int]) -> FileChange:
        """Return the change from the oldest state of a trail to that state with these hunks: a moved baseline.
        ToolError if the file is not text, or if others changed it in between."""

    def apply(self, name: str, request: UndoRequest) -> Effect:
        """Plan and make it, all or none, with what is there now kept. Called again with the same name after a crash it
        completes what was begun and gives back the same."""


class SnapshotsOf(Protocol):
    def __call__(self, root: str, root_id: str, world: str = "", /) -> Snapshots:
        """The snapshots of a root; see `WorkspaceOf`."""
