"""The snapshots of one project (`treadle.ports.snapshots`): a front for the modules that each do one part. Everything
that is kept lies in `<home>/snapshots`, outside the project; what changes the project goes through `transaction`.

A command may not bring into a project by its view, although nothing lay there to be protected (S-03): hooks and
settings of git, which would run code later and outside, and Treadle's own folder. Such changes are left out of an
effect, and said; one that would lead such a path elsewhere is a conflict.
"""

import hashlib
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from treadle.errors import ToolError
from treadle.lines.hunks import is_text
from treadle.ports.sandbox import IN_A_REPOSITORY, OWN_FOLDER
from treadle.ports.snapshots import Effect, Plan, UndoRequest
from treadle.protocol.files import (
    FileChange,
    FileConflict,
    FileState,
    Trail,
    Uncaptured,
    decode_path,
    encode_path,
    git_unit,
)
from treadle.workspace.history.content_store import ContentStore, after_images
from treadle.workspace.history.journal import Journals
from treadle.workspace.history.states import Folders, keep_all, reading, state_of
from treadle.workspace.history.transaction import Transactions
from treadle.workspace.root import Root

if TYPE_CHECKING:
    from treadle.workspace.history.capture import Captures


class ProjectSnapshots:
    """Holds nothing open between calls. Several of one home and root work side by side, in any number of processes."""

    def __init__(self, root: Root, home: Path) -> None:
        folder = home / "snapshots"
        self._root = root
        self._folder = folder
        self.images = ContentStore(folder)
        self.journals = Journals(folder / "journals")
        self._transactions = Transactions(root, self.images, self.journals, self._fingerprint)

    # -- single files -------------------------------------------------------------------------------------------

    def state(self, path: str) -> FileState | None:
        return state_of(self._root, path)

    def keep(self, paths: Sequence[str]) -> dict[str, FileState | None]:
        return keep_all(self._root, self.images, paths)

    def content(self, digest: str, limit: int = 0) -> bytes:
        return self.images.read(digest, limit)

    def remember(self, files: Sequence[FileChange]) -> None:
        remember(self._root.path, after_images(self._folder), files)

    # -- commands on a view -------------------------------------------------------------------------------------

    def effect(self, view: str) -> Effect:
        from treadle.workspace.history import effects

        return withhold(self._root, effects.read(self._root, view))

    def diff(self, view: str, effect: Effect) -> str:
        from treadle.workspace.history import effects

        return effects.describe(self._root, view, effect)

    def commit(self, name: str, view: str) -> Effect:
        from treadle.workspace.history import effects

        def read() -> Effect:
            return withhold(self._root, effects.read(self._root, view, opening=True))

        effect = self._transactions.commit(name, view, read, effects.source)
        self.remember(effect.files)
        return effect

    def discard(self, name: str) -> Effect | None:
        from treadle.workspace.history import effects

        return self._transactions.discard(name, effects.source)

    def decided(self, name: str) -> bool:
        return self.journals.read(name) is not None

    def begun(self, name: str) -> bool:
        journal = self.journals.read(name)
        return journal is not None and journal.verdict in ("commit", "restore")

    # -- commands that write through ----------------------------------------------------------------------------

    def capture(self, name: str) -> tuple[Uncaptured, ...]:
        return self._captures().capture(name)

    def compare(self, name: str) -> Effect:
        effect = self._captures().compare(name)
        self.remember(effect.files)
        return effect

    def release(self, name: str) -> None:
        self._captures().release(name)
        self.journals.release(name)

    def _captures(self) -> "Captures":
        from treadle.workspace.history.capture import Captures

        return Captures(self._root, self.images, self._folder)

    # -- going back ---------------------------------------------------------------------------------------------

    def plan(self, wanted: UndoRequest) -> Plan:
        from treadle.workspace.history import undo_plan as undoing

        return undoing.plan(self._root, self.images, wanted)

    def texts(self, change: FileChange) -> tuple[bytes | None, bytes | None]:
        from treadle.workspace.history import undo_plan as undoing

        return undoing.texts(self._root, self.images, change)

    def keep_hunks(self, trail: Trail, hunks: Sequence[int]) -> FileChange:
        from treadle.workspace.history import undo_plan as undoing

        return undoing.keep_hunks(self._root, self.images, trail, hunks)

    def apply(self, name: str, wanted: UndoRequest) -> Effect:
        from treadle.workspace.history import undo_plan as undoing

        return self._transactions.restore(name, lambda: undoing.prepared(self._root, self.images, wanted))

    def _fingerprint(self) -> str:
        from treadle.workspace.history.git_unit import git_fingerprint

        return git_fingerprint(self._root)


# -- what changes left -------------------------------------------------------------------------------------------------

_MOST_REMEMBERED = 500
"""So many files of one set of changes are remembered …"""
_LARGEST_REMEMBERED = 1 << 20
"""… of this size at most."""


def remember(root: str, after_images: ContentStore, changes: Sequence[FileChange]) -> None:
    """Keep the small texts that these changes left, as they are on disk now. Never fails."""
    wanted = [(each.path, each.after) for each in changes if each.after is not None and _is_wanted(each)]
    if not wanted:
        return
    with suppress(OSError, ToolError), Folders(root) as folders, after_images.batch() as batch:
        for path, state in wanted[:_MOST_REMEMBERED]:
            with suppress(OSError, ToolError):
                if batch.known(state.digest):
                    continue
                with reading(*folders.of(path)) as fd:
                    data = os.pread(fd, _LARGEST_REMEMBERED + 1, 0)
                if hashlib.sha256(data).hexdigest() == state.digest and is_text(data):
                    batch.put(data)


def _is_wanted(change: FileChange) -> bool:
    after = change.after
    small = after is not None and after.kind == "file" and after.size <= _LARGEST_REMEMBERED
    return small and not change.ignored and not git_unit(change.path)


# -- what a view may not bring in --------------------------------------------------------------------------------------

LEFT_OUT = "it is protected: a command may not make it, so it was left out"
IN_THE_WAY = "a command may put nothing but a folder here, because protected paths lie below it"


def withhold(root: Root, effect: Effect) -> Effect:
    """The effect without what is protected."""
    made = {decode_path(file.path) for file in effect.files if file.before is None}
    kept, left, conflicts = [], dict[str, None](), []
    for file in effect.files:
        path = decode_path(file.path)
        if guarded := _guarded(root, path, made):
            left[guarded] = None
        elif path == ".git" and file.after is not None and file.after.kind != "directory":
            conflicts.append(FileConflict(file.path, IN_THE_WAY))
        else:
            kept.append(file)
    if not left and not conflicts:
        return effect
    said = tuple(Uncaptured(encode_path(path), LEFT_OUT) for path in left)
    return replace(
        effect,
        files=tuple(kept),
        conflicts=(*effect.conflicts, *conflicts),
        uncaptured=(*effect.uncaptured, *said),
    )


def _guarded(root: Root, path: str, made: set[str]) -> str:
    """The protected path that this one is or lies below; empty if there is none."""
    parts = path.split("/")
    if parts[0] == OWN_FOLDER:
        return OWN_FOLDER
    if parts[0] != ".git" or len(parts) < 2:
        return ""
    if parts[1] in IN_A_REPOSITORY:
        return "/".join(parts[:2])
    if parts[1] != "modules":
        return ""
    for depth in range(3, len(parts)):  # the repository of a submodule, whose name may have slashes
        if parts[depth] in IN_A_REPOSITORY:
            repository = "/".join(parts[:depth])
            if f"{repository}/HEAD" not in made and root.inspect(f"{repository}/HEAD") is not None:
                return "/".join(parts[: depth + 1])
    return ""
