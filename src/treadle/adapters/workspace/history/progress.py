"""How far a set of changes has come: for each path whether it is as before, as after, half-way, or something else.
Keeps what is there before, if so wanted. Changes nothing.

Half-way are only folders, whose modes come last. No file is ever written in place: a file with several names (hard
links) gets a file of its own for each name that is changed, and the other names keep their bytes.
"""

import os
import stat as st
from collections.abc import Iterable
from typing import Literal

import msgspec

from treadle.adapters.workspace.history.seen import SeenFiles
from treadle.adapters.workspace.history.states import Folders, parts_of
from treadle.adapters.workspace.history.store_batch import StoreBatch
from treadle.adapters.workspace.paths.entries import closing_fd
from treadle.ports.workspace import inert
from treadle.protocol.files import FileChange, FileState, decode_path, encode_path

Standing = Literal["before", "after", "half", "other"]
CHANGED = "it was changed by someone else meanwhile"
FOREIGN = "there is something in it that was not there before"
_BLOCK = 4096
_OPEN = st.S_IRWXU


class PathProgress(msgspec.Struct, frozen=True):
    """How a change stands. `stat` is what its path was when it was looked at."""

    change: FileChange
    standing: Standing
    stat: os.stat_result | None
    reason: str = ""

    @property
    def alone(self) -> bool:
        """True if this is the file's only name."""
        return self.stat is None or _is_folder(self.stat) or self.stat.st_nlink == 1


class Surveyor:
    """With a batch, what will be lost is kept. Without it changes may have been begun."""

    def __init__(
        self,
        folders: Folders,
        batch: StoreBatch | None = None,
        seen_files: SeenFiles | None = None,
        *,
        is_retry: bool = False,
    ) -> None:
        """`seen_files`: files that were read just before.
        `is_retry`: an earlier, undecided try may have made folders.
        """
        self._folders = folders
        self._batch = batch
        self._seen = seen_files
        self._tried = is_retry

    def survey(self, changes: Iterable[FileChange]) -> list[PathProgress]:
        """In the order of paths: folders before what is in them."""
        changes = sorted(changes, key=lambda change: parts_of(change.path))
        stats = {change.path: self._folders.lstat(change.path) for change in changes}
        removed_paths = {change.path for change in changes if change.after is None or change.after.kind != "directory"}
        progress = []
        for change in changes:
            stat = stats[change.path]
            standing = self._standing(change, stat)
            reason = CHANGED if standing == "other" else ""
            if standing in ("before", "half") and change.path in removed_paths and _is_folder(stat):
                foreign = _foreign(self._folders, change.path, removed_paths)
                standing, reason = ("other", f"{FOREIGN}: {foreign}") if foreign else (standing, "")
            progress.append(PathProgress(change, standing, stat, reason))
        self._folders.forget()
        return progress

    def _standing(self, change: FileChange, stat: os.stat_result | None) -> Standing:
        if self._batch is not None:
            if self._seen is not None and self._seen_before(self._seen, change, stat, self._batch):
                return "before"
            standing = _find_standing(self._folders, change, self._batch)
            is_half_made = self._tried and standing == "other" and change.before is None and mode_pending(change, stat)
            return "half" if is_half_made else standing
        if self._folders.matches(change.path, change.after):
            return "after"
        if self._folders.matches(change.path, change.before):
            return "before"
        if mode_pending(change, stat) or _is_replacement_pending(change, stat):
            return "half"
        return "other"

    def _seen_before(
        self, seen_files: SeenFiles, change: FileChange, stat: os.stat_result | None, batch: StoreBatch
    ) -> bool:
        old_state, new_state = change.before, change.after
        data = (
            None if old_state is None or new_state is None else seen_files.get_old_bytes(change.path, old_state, stat)
        )
        if old_state is None or new_state is None or data is None:
            return False
        if old_state.digest != new_state.digest and not batch.has_content(old_state.digest):
            batch.add(old_state.digest, data)
        return True


def _find_standing(folders: Folders, change: FileChange, batch: StoreBatch) -> Standing:
    old_state, new_state = change.before, change.after
    same_bytes = old_state is not None and new_state is not None and old_state.digest == new_state.digest
    if old_state is None or old_state.kind != "file" or same_bytes:
        if folders.matches(change.path, old_state):
            return "before"
        return "after" if folders.matches(change.path, new_state) else "other"
    now = folders.look(change.path, batch)
    return "before" if now == old_state else "after" if now == new_state else "other"


def mode_pending(change: FileChange, stat: os.stat_result | None) -> bool:
    """True for a folder that was made or opened for the changes in it, and gets its mode at the end. A folder that
    inherits the group of the folder above has that bit from the beginning."""
    if stat is None or not st.S_ISDIR(stat.st_mode):
        return False
    states = [state for state in (change.before, change.after) if state is not None and state.kind == "directory"]
    modes = {_OPEN, *((state.mode | _OPEN) & ~st.S_ISGID for state in states)}
    return bool(states) and st.S_IMODE(stat.st_mode) & ~st.S_ISGID in modes


def _is_replacement_pending(change: FileChange, stat: os.stat_result | None) -> bool:
    """True if an entry was removed so that a folder can take its place, or the other way round."""
    if stat is not None or change.before is None or change.after is None:
        return False
    return (change.before.kind == "directory") != (change.after.kind == "directory")


def _is_folder(stat: os.stat_result | None) -> bool:
    return stat is not None and st.S_ISDIR(stat.st_mode)


def _is_file(state: FileState | None) -> bool:
    return state is not None and state.kind == "file"


def _foreign(folders: Folders, path: str, removed_paths: set[str]) -> str:
    """Something in a folder that is to go which does not go itself."""
    with closing_fd(os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folders.at(parts_of(path)))) as fd:
        names = os.listdir(fd)
    above = decode_path(path)
    return next((inert(name) for name in sorted(names) if encode_path(f"{above}/{name}") not in removed_paths), "")


def closed_folders(folders: Folders, changes: Iterable[FileChange]) -> dict[str, int]:
    """Folders in which something changes although their own modes forbid that to their owner."""
    if os.geteuid() == 0:
        return {}
    above = {parts_of(change.path)[:-1] for change in changes}
    above |= {parts[:length] for parts in above for length in range(len(parts))}
    closed_modes: dict[str, int] = {}
    for parts in sorted(above):
        try:
            owner, mode = os.fstat(folders.at(parts)).st_uid, folders.mode(parts)
        except OSError:
            continue
        if owner == os.geteuid() and mode & _OPEN != _OPEN:
            closed_modes[encode_path("/".join(parts)) or "."] = mode
    return closed_modes
