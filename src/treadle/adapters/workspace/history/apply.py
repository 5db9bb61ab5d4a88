"""Applies changes of files: old entries are removed, new files were staged beforehand and are moved into place, modes
of folders are set last (W-08). Every step can be repeated after a crash: it is done only if its path is still as
before. The new bytes come from the upper folder of a view, or from the content store. Other modules decide which
changes are made. No file is ever written in place: a file with several names (hard links) gets a file of its own for
each name that is changed, and the other names keep their bytes.

The survey before that tells for each path whether it is as before, as after, half-way, or something else. Half-way are
only folders, whose modes come last."""

import errno
import os
import stat as st
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Literal

import msgspec

from treadle.adapters.workspace.history.content_store import ContentStore, StoreBatch, make_unnamed_file
from treadle.adapters.workspace.history.staging import KnownEntry, StagingFolder
from treadle.adapters.workspace.history.states import (
    Folders,
    SeenFiles,
    hold_file,
    is_folder,
    make_signature,
    matches_state,
    split_path,
)
from treadle.adapters.workspace.paths import entries
from treadle.adapters.workspace.paths.durable import FEW, Freeing, sync_all
from treadle.adapters.workspace.paths.entries import LIST, hold_fd, lstat
from treadle.base.file_system import reach_faultpoint, sync_folder
from treadle.errors import ToolError
from treadle.ports.workspace import escape_name
from treadle.protocol.files import FileChange, FileConflict, FileState, decode_path, encode_path

Standing = Literal["before", "after", "half", "other"]
CHANGED = "it was changed by someone else meanwhile"
FOREIGN = "there is something in it that was not there before"
_OPEN = st.S_IRWXU


class PathProgress(msgspec.Struct, frozen=True):
    """How a change stands. `stat` is what its path was when it was looked at."""

    change: FileChange
    standing: Standing
    stat: os.stat_result | None
    reason: str = ""


class Surveyor:
    """Looks how far changes have come. With a batch, what will be lost is kept; without it changes may have been begun.
    `seen` files were read just before. `retry`: an earlier, undecided try may have made folders."""

    def __init__(
        self, folders: Folders, batch: StoreBatch | None = None, seen: SeenFiles | None = None, retry: bool = False
    ) -> None:
        self._folders, self._batch, self._seen, self._tried = folders, batch, seen, retry

    def survey(self, changes: Iterable[FileChange]) -> list[PathProgress]:
        """In the order of paths: folders before what is in them."""
        changes = sorted(changes, key=lambda change: split_path(change.path))
        stats = {change.path: self._folders.lstat(change.path) for change in changes}
        removed_paths = {change.path for change in changes if change.after is None or change.after.kind != "directory"}
        progress = []
        for change in changes:
            stat = stats[change.path]
            standing = self._assess_standing(change, stat)
            reason = CHANGED if standing == "other" else ""
            goes = standing in ("before", "half") and change.path in removed_paths and _is_folder(stat)
            if goes and (foreign := self._find_foreign(change.path, removed_paths)):
                standing, reason = "other", f"{FOREIGN}: {foreign}"
            progress.append(PathProgress(change, standing, stat, reason))
        self._folders.forget()
        return progress

    def _assess_standing(self, change: FileChange, stat: os.stat_result | None) -> Standing:
        if self._batch is not None:
            standing = self._find_standing(change, stat, self._batch)
            is_half_made = (
                self._tried and standing == "other" and change.before is None and is_mode_pending(change, stat)
            )
            return "half" if is_half_made else standing
        if self._folders.matches_state(change.path, change.after):
            return "after"
        if self._folders.matches_state(change.path, change.before):
            return "before"
        # An entry may have been removed so that a folder can take its place, or the other way round.
        replaced = change.before and change.after and is_folder(change.before) != is_folder(change.after)
        return "half" if is_mode_pending(change, stat) or (stat is None and replaced) else "other"

    def _find_standing(self, change: FileChange, stat: os.stat_result | None, batch: StoreBatch) -> Standing:
        old_state, new_state = change.before, change.after
        same_bytes = old_state is not None and new_state is not None and old_state.digest == new_state.digest
        if self._seen is not None and old_state is not None and new_state is not None:
            data = self._seen.get_old_bytes(change.path, old_state, stat)
            if data is not None and not same_bytes and not batch.has_content(old_state.digest):
                batch.add(old_state.digest, data)
            if data is not None:
                return "before"
        if old_state is None or old_state.kind != "file" or same_bytes:
            if self._folders.matches_state(change.path, old_state):
                return "before"
            return "after" if self._folders.matches_state(change.path, new_state) else "other"
        now = self._folders.read_state(change.path, batch)
        return "before" if now == old_state else "after" if now == new_state else "other"

    def _find_foreign(self, path: str, removed_paths: set[str]) -> str:
        """Something in a folder that is to go which does not go itself."""
        with hold_fd(os.open(".", LIST, dir_fd=self._folders.hold_folder(split_path(path)))) as fd:
            names = os.listdir(fd)
        above = decode_path(path)
        return next(
            (escape_name(name) for name in sorted(names) if encode_path(f"{above}/{name}") not in removed_paths), ""
        )


def is_mode_pending(change: FileChange, stat: os.stat_result | None) -> bool:
    """True for a folder that was made or opened for the changes in it, and gets its mode at the end. A folder that
    inherits the group of the folder above has that bit from the beginning."""
    if stat is None or not st.S_ISDIR(stat.st_mode):
        return False
    states = [state for state in (change.before, change.after) if state is not None and state.kind == "directory"]
    modes = {_OPEN, *((state.mode | _OPEN) & ~st.S_ISGID for state in states)}
    return bool(states) and st.S_IMODE(stat.st_mode) & ~st.S_ISGID in modes


def _is_folder(stat: os.stat_result | None) -> bool:
    return stat is not None and st.S_ISDIR(stat.st_mode)


def find_closed_folders(folders: Folders, changes: Iterable[FileChange]) -> dict[str, int]:
    """Folders in which something changes although their own modes forbid that to their owner."""
    if os.geteuid() == 0:
        return {}
    above = {split_path(change.path)[:-1] for change in changes}
    above |= {parts[:length] for parts in above for length in range(len(parts))}
    closed_modes: dict[str, int] = {}
    for parts in sorted(above):
        try:
            owner, mode = os.fstat(folders.hold_folder(parts)).st_uid, folders.get_mode(parts)
        except OSError:
            continue
        if owner == os.geteuid() and mode & _OPEN != _OPEN:
            closed_modes[encode_path("/".join(parts)) or "."] = mode
    return closed_modes


def open_folders(folders: Folders, closed_modes: Mapping[str, int]) -> None:
    for path in sorted(closed_modes, key=_split_folder_path):
        with suppress(OSError):  # it was removed before the crash
            parts = _split_folder_path(path)
            folders.set_mode(parts, folders.get_mode(parts) | st.S_IRWXU)
            reach_faultpoint("transaction.opened")


def restore_saves(
    folders: Folders, changes: Iterable[FileChange], stage: StagingFolder, numbers: Mapping[str, str],
    closed_modes: Mapping[str, int],
) -> None:  # fmt: skip
    """Put back what others saved just before a crash or error, if it had come out of the project at that moment."""
    open_folders(folders, closed_modes)
    for change in changes:
        if change.before is not None and not is_folder(change.before):
            with suppress(FileNotFoundError, NotADirectoryError):  # its folder is gone
                stage.restore_save(numbers[change.path], *folders.locate(change.path), change)
    folders.forget()


class ContentSource(ABC):
    """Paths are relative to the root, in the form of `encode_path`."""

    @abstractmethod
    def open(self, path: str, state: FileState) -> int:
        """Return a descriptor of a regular file with the bytes that `path` shall have, open for reading at its
        beginning; the caller closes it. The file does not change until the changes are made. ToolError if the bytes are
        not available."""

    def lend(self) -> AbstractContextManager[Folders | None]:
        """The folders in which those files lie, if they may become the project's own; else None."""
        return nullcontext()

    def let_go(self, paths: Iterable[str]) -> None:  # noqa: B027 - most have lent nothing
        """These have become the project's own: they have no other name any more."""

    def read_mtime_ns(self, path: str) -> int:
        """The time that the file shall have; 0: whenever it is written."""
        return 0

    def list_touched_files(self) -> Iterable[tuple[str, int]]:
        return ()


class StoreSource(ContentSource):
    """The stored content of earlier states. Verified before it is used."""

    def __init__(self, images: ContentStore) -> None:
        self._images = images

    def open(self, path: str, state: FileState) -> int:
        return self._images.open(state.digest)


class GivenContent(ContentSource):
    def __init__(self, contents: Mapping[str, bytes]) -> None:
        self._contents = contents

    def open(self, path: str, state: FileState) -> int:
        if state.digest not in self._contents:
            raise ToolError(f"The new bytes of {escape_name(decode_path(path))} are not at hand; nothing was changed.")
        return make_unnamed_file(self._contents[state.digest])


_IN_THE_WAY = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EEXIST, errno.ENOTEMPTY, errno.EISDIR)
"""Error numbers of the system when another entry is in the way of a change."""


class ChangeApplier:
    """The making of changes that were surveyed. `prepare` may fail and leaves the project as it is; `make` gives back
    what was in its way and left alone. `numbers` are the names on the stage, by path."""

    def __init__(
        self, folders: Folders, progress: Sequence[PathProgress], source: ContentSource, stage: StagingFolder,
        numbers: Mapping[str, str],
    ) -> None:  # fmt: skip
        self._open = [each for each in progress if each.standing in ("before", "half")]
        self._folders, self._found, self.source = folders, progress, source
        self._stage, self._numbers = stage, numbers
        self._conflicts: list[FileConflict] = []
        self._freeing = Freeing()
        self._touched: dict[tuple[str, ...], None] = {}
        self.adopted: list[str] = []

    @property
    def single(self) -> bool:
        """True if the change is one step, beside folders that are made for it: done or not done."""
        steps = [each.change for each in self._open if each.change.before or not is_folder(each.change.after)]
        return len(steps) == 1 and not is_folder(steps[0].before)

    @property
    def is_complete(self) -> bool:
        return not self._open

    def prepare(self, *, lasting: bool = True) -> int | None:
        """Make every new file ready that is not: from here on no space is needed any more. The file system that was
        synced as a whole for it, if one was. Unless it must be found again after a power cut, only the bytes are."""
        with self.source.lend() as lent:
            for each in self._open:
                new_state, name = each.change.after, self._numbers[each.change.path]
                if (
                    new_state is None
                    or new_state.kind == "directory"
                    or _is_mode_only(each)
                    or self._stage.has_entry(name)
                ):
                    continue
                if new_state.kind == "file":
                    self._stage_file(each, new_state, name, lent)
                elif new_state.kind in ("link", "fifo"):
                    (self._stage.add_link if new_state.kind == "link" else self._stage.add_fifo)(name, new_state)
                else:
                    shown_path = escape_name(decode_path(each.change.path))
                    raise ToolError(f"{shown_path} is a socket or device, which cannot be made.")
        synced_device = self._stage.sync(names=lasting)
        reach_faultpoint("transaction.ready")
        return synced_device

    def _stage_file(self, each: PathProgress, new_state: FileState, name: str, lent: Folders | None) -> None:
        path, old_state = each.change.path, each.change.before
        old = each.stat if each.stat is not None and st.S_ISREG(each.stat.st_mode) else None
        if old_state is not None and old_state.digest == new_state.digest:  # another mode; other names keep theirs
            with hold_file(*self._folders.locate(path)) as source:
                self._stage.add_file(name, source, new_state, self.source.read_mtime_ns(path), old)
            return
        if lent is not None and self._stage.adopt(name, *lent.locate(path), new_state, old):
            self.adopted.append(path)
            return
        with hold_fd(self.source.open(path, new_state)) as source:
            self._stage.add_file(name, source, new_state, self.source.read_mtime_ns(path), old)

    def make(self, closed_modes: Mapping[str, int]) -> list[FileConflict]:
        """`closed_modes` are folders that must be opened for it, with the modes that they get back."""
        final_modes = self._open_up(closed_modes)
        with self._freeing:
            # Entries that must be gone before others can take their place: files, then folders from the bottom up.
            going = [each for each in self._open if _needs_removal(each)]
            folders = [each for each in reversed(going) if is_folder(each.change.before)]
            for each in (*(each for each in going if not is_folder(each.change.before)), *folders):
                self._run_step(each, self._remove)
            self._folders.forget()
            for each in self._open:
                if is_folder(each.change.after) and not is_folder(each.change.before):
                    self._run_step(each, self._mkdir)
            for each in self._open:
                if each.change.after is not None and each.change.after.kind != "directory":
                    self._run_step(each, self._put)
            self._touch()
            self._close_again(final_modes)
            self._sync()
        return self._conflicts

    def _run_step(self, each: PathProgress, step: Callable[[PathProgress, int, str], bool]) -> None:
        """Make one step, which returns False if the entry was changed by others."""
        path = each.change.path
        try:
            folder, name = self._folders.locate(path)
            is_done = step(each, folder, name)
        except OSError as error:
            if error.errno not in _IN_THE_WAY:
                raise
            is_done = False
        if not is_done:
            self._conflicts.append(FileConflict(path, CHANGED))
        self._touched[split_path(path)[:-1]] = None

    def _find_unchanged(self, each: PathProgress, folder: int, name: str) -> KnownEntry | None:
        """An entry that is unchanged since the survey, by its signature or content; None if it is not."""
        status, state = lstat(folder, name), each.change.before
        if status is None or state is None:
            return None
        is_same = make_signature(status) == make_signature(each.stat) or matches_state(folder, name, state)
        reach_faultpoint("transaction.checked")
        return KnownEntry(status, state) if is_same else None

    def _remove(self, each: PathProgress, folder: int, name: str) -> bool:
        if is_folder(each.change.before):
            os.rmdir(name, dir_fd=folder)
            reach_faultpoint("transaction.folder_removed")
            return True
        if (old := self._find_unchanged(each, folder, name)) is None:
            return False
        self._freeing.hold(name, folder)
        is_removed = self._stage.remove_entry(self._numbers[each.change.path], folder, name, old)
        reach_faultpoint("transaction.removed")
        return is_removed

    def _mkdir(self, each: PathProgress, folder: int, name: str) -> bool:
        if each.standing != "half" or not _is_folder(lstat(folder, name)):
            os.mkdir(name, 0o700, dir_fd=folder)
            reach_faultpoint("transaction.folder_made")
        return True

    def _put(self, each: PathProgress, folder: int, name: str) -> bool:
        change, old, is_put = each.change, None, True
        assert change.after is not None
        if each.standing == "before" and change.before is not None and change.before.kind != "directory":
            old = self._find_unchanged(each, folder, name)
            if old is None:
                return False
        if _is_mode_only(each):
            entries.chmod(folder, name, change.after.mode)
            with suppress(OSError, ToolError):
                if time := self.source.read_mtime_ns(change.path):
                    os.utime(name, ns=(time, time), dir_fd=folder, follow_symlinks=False)
        else:
            if old is not None:
                self._freeing.hold(name, folder)
            is_put = self._stage.put(self._numbers[change.path], folder, name, old)
        reach_faultpoint("transaction.put")
        return is_put

    def _open_up(self, closed_modes: Mapping[str, int]) -> dict[str, int]:
        """Open folders from the top down. Which modes folders have in the end, by path."""
        modes = dict(closed_modes)
        open_folders(self._folders, closed_modes)
        for change in (each.change for each in self._found if each.standing != "other"):
            modes.pop(change.path, None)
            if change.after is not None and change.after.kind == "directory":
                modes[change.path] = change.after.mode
        return modes

    def _close_again(self, modes: Mapping[str, int]) -> None:
        """Modes of folders from the bottom up: one may close what lies below it."""
        conflict_paths = {conflict.path for conflict in self._conflicts}
        paths = {path: _split_folder_path(path) for path in modes if path not in conflict_paths}
        for path in sorted(paths, key=lambda path: paths[path], reverse=True):
            try:
                is_set = self._folders.get_mode(paths[path]) == modes[path]
            except OSError as error:
                if error.errno not in _IN_THE_WAY:
                    raise
                continue
            if not is_set:
                self._folders.set_mode(paths[path], modes[path])
                reach_faultpoint("transaction.mode_set")
        self._folders.forget()

    def _touch(self) -> None:
        """Files that stay as they are but for their time: `make` goes by that."""
        with suppress(OSError, ToolError):
            for path, time in self.source.list_touched_files():
                status = self._folders.lstat(path)
                if status is not None and st.S_ISREG(status.st_mode):
                    folder, name = self._folders.locate(path)
                    os.utime(name, ns=(time, time), dir_fd=folder, follow_symlinks=False)

    def _sync(self) -> None:
        if len(self._touched) > FEW:
            with hold_fd(os.open(".", LIST, dir_fd=self._folders.hold_folder(()))) as fd:
                sync_all(fd)
        else:
            for parts in self._touched:
                with suppress(FileNotFoundError, NotADirectoryError):
                    sync_folder(".", self._folders.hold_folder(parts))
        reach_faultpoint("transaction.synced")


def _is_mode_only(each: PathProgress) -> bool:
    """True if only the mode changes, and the file has no other name outside the changes."""
    old_state, new_state = each.change.before, each.change.after
    has_other_names = each.stat is not None and not _is_folder(each.stat) and each.stat.st_nlink != 1
    if old_state is None or new_state is None or old_state.kind != new_state.kind or has_other_names:
        return False
    same_file = old_state.kind == "file" and each.standing != "half" and old_state.digest == new_state.digest
    return same_file or old_state.kind in ("directory", "fifo")


def _needs_removal(each: PathProgress) -> bool:
    """True if an entry must be removed before another can take its place, and is still there."""
    old_state, new_state = each.change.before, each.change.after
    if old_state is None or each.stat is None or is_folder(old_state) != st.S_ISDIR(each.stat.st_mode):
        return False
    return new_state is None or is_folder(old_state) != is_folder(new_state)


def _split_folder_path(path: str) -> tuple[str, ...]:
    return () if path == "." else split_path(path)


def reverse_changes(changes: Sequence[FileChange]) -> list[FileChange]:
    return [FileChange(each.path, "modified", before=each.after, after=each.before) for each in changes]
