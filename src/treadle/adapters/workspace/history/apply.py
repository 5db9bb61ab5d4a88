"""Applies changes of files: old entries are removed, new files were staged beforehand and are moved into place, modes
of folders are set last (W-08). Every step can be repeated after a crash: it is done only if its path is still as
before. The new bytes come from the upper folder of a view, or from the content store. Other modules decide which
changes are made."""

import errno
import os
import stat as st
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress

from treadle.adapters.workspace.history.content_store import ContentStore
from treadle.adapters.workspace.history.progress import CHANGED, PathProgress
from treadle.adapters.workspace.history.staging import StagingFolder
from treadle.adapters.workspace.history.states import Folders, is_folder, parts_of, reading, signature
from treadle.adapters.workspace.paths import entries
from treadle.adapters.workspace.paths.durable import FEW, sync_all
from treadle.adapters.workspace.paths.entries import closing_fd, lstat
from treadle.adapters.workspace.paths.freeing import Freeing
from treadle.base.faultpoint import faultpoint
from treadle.base.file_system import sync_folder
from treadle.errors import ToolError
from treadle.ports.workspace import inert
from treadle.protocol.files import FileChange, FileConflict, FileState, decode_path


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

    def mtime_ns(self, path: str) -> int:
        """The time that the file shall have; 0: whenever it is written."""
        return 0

    def time_of(self, fd: int) -> int:
        """The same for a file that `open` gave."""
        return 0

    def touched(self) -> Iterable[tuple[str, int]]:
        """Files that stay as they are but for this time."""
        return ()


class StoreSource(ContentSource):
    """The stored content of earlier states. Verified before it is used."""

    def __init__(self, images: ContentStore) -> None:
        self._images = images

    def open(self, path: str, state: FileState) -> int:
        fd = self._images.open(state.digest)
        os.lseek(fd, 0, os.SEEK_SET)
        return fd


class GivenContent(ContentSource):
    """Bytes that the caller provides, by their hash."""

    def __init__(self, contents: Mapping[str, bytes]) -> None:
        self._contents = contents

    def open(self, path: str, state: FileState) -> int:
        if state.digest not in self._contents:
            raise ToolError(f"The new bytes of {inert(decode_path(path))} are not at hand; nothing was changed.")
        with tempfile.TemporaryFile() as file:
            file.write(self._contents[state.digest])
            file.flush()
            file.seek(0)
            return os.dup(file.fileno())


_IN_THE_WAY = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EEXIST, errno.ENOTEMPTY, errno.EISDIR)
"""Error numbers of the system when another entry is in the way of a change."""
_WRITE = os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class ChangeApplier:
    """The making of changes that were surveyed. `prepare` may fail and leaves the project as it is; `make` gives back
    what was in its way and left alone. `numbers` are the names on the stage, by path."""

    def __init__(
        self,
        folders: Folders,
        progress: Sequence[PathProgress],
        source: ContentSource,
        stage: StagingFolder,
        numbers: Mapping[str, str],
    ) -> None:
        self._folders = folders
        self._open = [each for each in progress if each.standing in ("before", "half")]
        self._found = progress
        self._source = source
        self._stage = stage
        self._numbers = numbers
        self._conflicts: list[FileConflict] = []
        self._freeing = Freeing()
        self._touched: dict[tuple[str, ...], None] = {}
        self._adopted: list[str] = []

    # -- before it is decided -----------------------------------------------------------------------------------

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
        with self._source.lend() as lent:
            for each in self._open:
                new_state, name = each.change.after, self._numbers[each.change.path]
                if new_state is None or new_state.kind == "directory" or _mode_only(each) or self._stage.has(name):
                    continue
                if new_state.kind == "file":
                    self._ready(each, new_state, name, lent)
                elif new_state.kind == "link":
                    self._stage.link(name, new_state)
                elif new_state.kind == "fifo":
                    self._stage.fifo(name, new_state)
                else:
                    shown_path = inert(decode_path(each.change.path))
                    raise ToolError(f"{shown_path} is a socket or device, which cannot be made.")
        synced_device = self._stage.sync(names=lasting)
        faultpoint("transaction.ready")
        return synced_device

    def _ready(self, each: PathProgress, new_state: FileState, name: str, lent: Folders | None) -> None:
        path, old_state = each.change.path, each.change.before
        old = each.stat if each.stat is not None and st.S_ISREG(each.stat.st_mode) else None
        if (
            old_state is not None and old_state.digest == new_state.digest
        ):  # another mode, and other names that keep theirs
            with reading(*self._folders.of(path)) as source:
                self._stage.file(name, source, new_state, self._source.mtime_ns(path), old)
            return
        if lent is not None and self._stage.adopt(name, *lent.of(path), new_state, old):
            self._adopted.append(path)
            return
        with closing_fd(self._source.open(path, new_state)) as source:
            self._stage.file(name, source, new_state, self._source.time_of(source), old)

    def from_here(self, progress: Sequence[PathProgress]) -> "ChangeApplier":
        """Return an applier for the remaining changes, by their current progress."""
        return ChangeApplier(self._folders, progress, self._source, self._stage, self._numbers)

    def let_go(self) -> None:
        """All is made, and stays."""
        self._source.let_go(self._adopted)

    # -- afterwards ---------------------------------------------------------------------------------------------

    def make(self, closed_modes: Mapping[str, int]) -> list[FileConflict]:
        """`closed` are folders that must be opened for it, with the modes that they get back."""
        final_modes = self._open_up(closed_modes)
        with self._freeing:
            self._remove()
            self._folders.forget()
            for each in self._open:
                if is_folder(each.change.after) and not is_folder(each.change.before):
                    self._step(each, self._mkdir)
            for each in self._open:
                if each.change.after is not None and each.change.after.kind != "directory":
                    self._step(each, self._put)
            self._touch()
            self._close_again(final_modes)
            self._sync()
        return self._conflicts

    def _remove(self) -> None:
        """Remove the entries that must be gone before others can take their place: files, then folders from the bottom
        up."""
        going = [each for each in self._open if _goes(each)]
        for each in going:
            if not is_folder(each.change.before):
                self._step(each, self._unlink)
        for each in reversed(going):
            if is_folder(each.change.before):
                self._step(each, self._rmdir)

    def _step(self, each: PathProgress, step: Callable[[PathProgress, int, str], None]) -> None:
        path = each.change.path
        try:
            folder, name = self._folders.of(path)
            step(each, folder, name)
        except OSError as error:
            if error.errno not in _IN_THE_WAY:
                raise
            self._conflicts.append(FileConflict(path, CHANGED))
        self._touched[parts_of(path)[:-1]] = None

    def _untouched(self, each: PathProgress, folder: int, name: str) -> bool:
        """True if an entry is unchanged since the survey, by its signature or else by its content; otherwise record a
        conflict."""
        if signature(lstat(folder, name)) == signature(each.stat) or self._folders.matches(
            each.change.path, each.change.before
        ):
            return True
        self._conflicts.append(FileConflict(each.change.path, CHANGED))
        return False

    def _unlink(self, each: PathProgress, folder: int, name: str) -> None:
        if self._untouched(each, folder, name):
            self._freeing.hold(name, folder)
            os.unlink(name, dir_fd=folder)
            faultpoint("transaction.removed")

    def _rmdir(self, each: PathProgress, folder: int, name: str) -> None:
        os.rmdir(name, dir_fd=folder)
        faultpoint("transaction.folder_removed")

    def _mkdir(self, each: PathProgress, folder: int, name: str) -> None:
        status = lstat(folder, name)
        if each.standing == "half" and status is not None and st.S_ISDIR(status.st_mode):
            return
        os.mkdir(name, 0o700, dir_fd=folder)
        faultpoint("transaction.folder_made")

    def _put(self, each: PathProgress, folder: int, name: str) -> None:
        change = each.change
        assert change.after is not None
        new = change.before is None or change.before.kind == "directory"  # which was removed before
        if each.standing == "before" and not new and not self._untouched(each, folder, name):
            return
        if _mode_only(each):
            entries.chmod(folder, name, change.after.mode)
            self._set_time(folder, name, change.path)
        else:
            if not new:
                self._freeing.hold(name, folder)
            self._stage.put(self._numbers[change.path], folder, name, new=new)
        faultpoint("transaction.put")

    # -- modes and times ----------------------------------------------------------------------------------------

    def _open_up(self, closed_modes: Mapping[str, int]) -> dict[str, int]:
        """Open folders from the top down. Which modes folders have in the end, by path."""
        modes = dict(closed_modes)
        for path in sorted(closed_modes, key=_folder_parts):
            with suppress(OSError):  # it was removed before the crash
                parts = _folder_parts(path)
                self._folders.set_mode(parts, self._folders.mode(parts) | st.S_IRWXU)
                faultpoint("transaction.opened")
        for each in self._found:
            if each.standing == "other":
                continue
            if each.change.after is not None and each.change.after.kind == "directory":
                modes[each.change.path] = each.change.after.mode
            else:
                modes.pop(each.change.path, None)
        return modes

    def _close_again(self, modes: Mapping[str, int]) -> None:
        """Modes of folders from the bottom up: one may close what lies below it."""
        conflict_paths = {conflict.path for conflict in self._conflicts}
        paths = {path: _folder_parts(path) for path in modes if path not in conflict_paths}
        for path in sorted(paths, key=lambda path: paths[path], reverse=True):
            try:
                if self._folders.mode(paths[path]) == modes[path]:
                    continue
            except OSError as error:
                if error.errno not in _IN_THE_WAY:
                    raise
                continue
            self._folders.set_mode(paths[path], modes[path])
            faultpoint("transaction.mode_set")
        self._folders.forget()

    def _set_time(self, folder: int, name: str, path: str) -> None:
        with suppress(OSError, ToolError):
            if time := self._source.mtime_ns(path):
                os.utime(name, ns=(time, time), dir_fd=folder, follow_symlinks=False)

    def _touch(self) -> None:
        """Files that stay as they are but for their time: `make` goes by that."""
        with suppress(OSError, ToolError):
            for path, time in self._source.touched():
                status = self._folders.lstat(path)
                if status is not None and st.S_ISREG(status.st_mode):
                    folder, name = self._folders.of(path)
                    os.utime(name, ns=(time, time), dir_fd=folder, follow_symlinks=False)

    def _sync(self) -> None:
        if len(self._touched) > FEW:
            with closing_fd(
                os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self._folders.at(()))
            ) as fd:
                sync_all(fd)
        else:
            for parts in self._touched:
                with suppress(FileNotFoundError, NotADirectoryError):
                    sync_folder(".", self._folders.at(parts))
        faultpoint("transaction.synced")


def _mode_only(each: PathProgress) -> bool:
    """True if only the mode changes, and the file has no other name outside the changes."""
    old_state, new_state = each.change.before, each.change.after
    if old_state is None or new_state is None or old_state.kind != new_state.kind or not each.alone:
        return False
    if each.standing == "half" and old_state.kind == "file":
        return False
    return old_state.kind in ("directory", "fifo") or (
        old_state.kind == "file" and old_state.digest == new_state.digest
    )


def _goes(each: PathProgress) -> bool:
    """True if an entry must be removed before another can take its place, and is still there."""
    old_state, new_state = each.change.before, each.change.after
    if old_state is None or each.stat is None or is_folder(old_state) != st.S_ISDIR(each.stat.st_mode):
        return False
    return new_state is None or is_folder(old_state) != is_folder(new_state)


def _folder_parts(path: str) -> tuple[str, ...]:
    return () if path == "." else parts_of(path)


def backwards(changes: Sequence[FileChange]) -> list[FileChange]:
    """The changes that take these back."""
    return [FileChange(each.path, "modified", before=each.after, after=each.before) for each in changes]
