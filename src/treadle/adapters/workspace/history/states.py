"""The state of a path, exact enough to restore it, and a comparison with it; for a text the number of lines. Names are
looked at relative to folders that are held open, links never followed; special files are never opened (S-01)."""

import errno
import hashlib
import os
import stat as st
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from functools import lru_cache
from itertools import takewhile
from typing import Self

import msgspec

from treadle.adapters.workspace.history.content_store import SMALL as PACKED
from treadle.adapters.workspace.history.content_store import StoreBatch
from treadle.adapters.workspace.paths import entries
from treadle.adapters.workspace.paths.durable import compute_digest
from treadle.adapters.workspace.paths.entries import HOLD, READ, Missing, hold_fd, lstat
from treadle.adapters.workspace.root import Root
from treadle.diff.diff import count_lines
from treadle.protocol.files import DiffStat, FileState, StateKind, decode_path, encode_path

_CHUNK = 1 << 20
_SNIFFED = 8_000  # A NUL byte within so many bytes makes a file binary, as git has it
SMALL = 256_000  # Texts up to so many bytes are compared line by line
_COMPARED = 400
"""So many pairs of texts are compared in one effect: beyond that, counting lines takes longer than it is worth."""


class FileContent(msgspec.Struct, frozen=True):
    state: FileState
    lines: int = 0  # Of a text; else 0
    text: str | None = None  # The whole of a small text
    data: bytes | None = None  # The whole of a small file
    head: bytes = b""  # The beginning of a large text


def read_file_content(
    parent: int, name: str, status: os.stat_result, mode: int, open_content: Callable[[], int]
) -> FileContent:
    kind = get_state_kind(status.st_mode)
    if kind == "link":
        return FileContent(FileState("link", target=encode_path(os.readlink(name, dir_fd=parent))))
    if kind != "file":
        return FileContent(FileState(kind, mode))
    with hold_fd(open_content()) as fd:
        first = last = os.read(fd, min(status.st_size + 1, _CHUNK))
        total, size, lines = hashlib.sha256(first), len(first), first.count(b"\n")
        if size != status.st_size or size >= _CHUNK:  # the end was not seen
            while chunk := os.read(fd, _CHUNK):
                total.update(chunk)
                lines, size, last = lines + chunk.count(b"\n"), size + len(chunk), chunk
                if size <= SMALL:  # the file grew since its size was read
                    first += chunk
    state, is_complete = FileState("file", mode, total.hexdigest(), size), len(first) == size
    data = first if is_complete and size <= PACKED else None
    if b"\0" in first[:_SNIFFED]:
        return FileContent(state, data=data)
    lines += bool(size) and not last.endswith(b"\n")
    if is_complete and size <= SMALL:
        return FileContent(state, lines, decode_text(first), data)
    return FileContent(state, lines, data=data, head=first)


def decode_text(data: bytes) -> str:
    return data.decode(errors="surrogateescape")


class Counting:
    """Counts added and removed lines. After so many files, all lines of a changed file count as replaced."""

    def __init__(self) -> None:
        self._left = _COMPARED

    def stat(self, old_content: FileContent | None, new_content: FileContent | None) -> DiffStat:
        if old_content is None or new_content is None:
            return DiffStat(new_content.lines if new_content else 0, old_content.lines if old_content else 0)
        if old_content.state.digest == new_content.state.digest:
            return DiffStat()
        self._left -= 1
        if self._left >= 0 and old_content.text is not None and new_content.text is not None:
            return count_lines(old_content.text, new_content.text)
        if self._left >= 0 and old_content.lines and _has_similar_beginning(old_content, new_content):
            return DiffStat()
        return DiffStat(new_content.lines, old_content.lines)


def _has_similar_beginning(old_content: FileContent, new_content: FileContent) -> bool:
    """True if at least a tenth of the lines at the beginning of a text are at the beginning of the other, too."""
    old_lines, new_lines = (
        (each.head if each.text is None else each.text.encode(errors="surrogateescape")).splitlines()
        for each in (old_content, new_content)
    )
    return 10 * (Counter(old_lines) & Counter(new_lines)).total() >= len(old_lines)


def make_signature(status: os.stat_result | None) -> tuple[int, ...] | None:
    """The values by which an unchanged entry is recognized without reading it."""
    if status is None:
        return None
    entry = (status.st_ino, status.st_dev, status.st_mode)
    times = (status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    return entry if st.S_ISDIR(status.st_mode) else entry + times  # changes inside a folder change its times


def is_folder(state: FileState | None) -> bool:
    return state is not None and state.kind == "directory"


def get_state_kind(mode: int) -> StateKind:
    return "fifo" if st.S_ISFIFO(mode) else entries.get_file_kind(mode)


def read_state(folder: int, name: str, batch: StoreBatch | None = None) -> FileState | None:
    """The state of this name in a held folder. With a batch the bytes of a file are kept, too."""
    status = lstat(folder, name)
    if status is None:
        return None
    kind, mode = get_state_kind(status.st_mode), st.S_IMODE(status.st_mode)
    if kind == "link":
        return FileState("link", target=encode_path(os.readlink(name, dir_fd=folder)))
    if kind != "file":
        return FileState(kind, mode)
    with hold_file(folder, name) as fd:
        digest = batch.put_file(fd) if batch is not None else compute_digest(fd)
        return FileState("file", mode, digest, os.fstat(fd).st_size)


def matches_state(folder: int, name: str, expected: FileState | None) -> bool:
    """True if a name has this state; the file is read only if all else fits."""
    status = lstat(folder, name)
    if status is None or expected is None or not st.S_ISREG(status.st_mode):
        return read_state(folder, name) == expected
    attributes = ("file", st.S_IMODE(status.st_mode), status.st_size)
    if attributes != (expected.kind, expected.mode, expected.size):
        return False
    try:
        return read_state(folder, name) == expected
    except PermissionError:  # a recorded file was read once: this one is another
        return False


def hold_file(folder: int, name: str) -> AbstractContextManager[int]:
    return hold_fd(open_file(folder, name))


def open_file(folder: int, name: str) -> int:
    """A regular file, open for reading. One that its owner may not read is made readable for a moment."""
    try:
        fd = os.open(name, READ, dir_fd=folder)
    except PermissionError:
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if status.st_uid != os.geteuid() or status.st_mode & st.S_IRUSR or not st.S_ISREG(status.st_mode):
            raise
        mode = st.S_IMODE(status.st_mode)
        entries.chmod(folder, name, mode | st.S_IRUSR)
        try:
            fd = os.open(name, READ, dir_fd=folder)
        finally:
            entries.chmod(folder, name, mode)
    try:
        entries.require_file(os.fstat(fd), name)
    except BaseException:
        os.close(fd)
        raise
    return fd


class Folders:
    """The folders of a root, held open along one path at a time: neighbours are found at no cost when paths come in
    order. Never through a link: a path that leads through one is not there. A folder that its owner has closed to
    himself is open while it is held, and closed again behind us. `root`: a path, or a descriptor, which is closed at
    the end."""

    def __init__(self, root: str | int) -> None:
        self._held = [os.open(root, HOLD) if isinstance(root, str) else root]
        self._parts: tuple[str, ...] = ()
        self._modes = [_let_in(self._held[0])]

    def locate(self, path: str) -> tuple[int, str]:
        """The folder of a path (as `encode_path` has it), and the name in it. OSError ENOENT, ENOTDIR if missing."""
        parts = split_path(path)
        return self.hold_folder(parts[:-1]), parts[-1]

    def hold_folder(self, parts: tuple[str, ...]) -> int:
        if parts == self._parts:
            return self._held[-1]
        equal = (one == other for one, other in zip(parts, self._parts, strict=False))
        self._shorten(common_length := sum(takewhile(bool, equal)))
        for part in parts[common_length:]:
            self._held.append(os.open(part, HOLD, dir_fd=self._held[-1]))
            self._parts = (*self._parts, part)
            self._modes.append(_let_in(self._held[-1]))
        return self._held[-1]

    def get_mode(self, parts: tuple[str, ...]) -> int:
        """The mode of a folder without the permissions that were added while it is held."""
        fd = self.hold_folder(parts)
        saved_mode = self._modes[-1]
        return st.S_IMODE(os.fstat(fd).st_mode) if saved_mode is None else saved_mode

    def set_mode(self, parts: tuple[str, ...], mode: int) -> None:
        entries.chmod_held(self.hold_folder(parts), mode)
        self._modes[-1] = None

    def forget(self) -> None:
        """Folders may have been replaced: look again from the root on."""
        self._shorten(0)

    def _shorten(self, length: int) -> None:
        while len(self._parts) > length:
            self._parts = self._parts[:-1]
            self._leave()

    def _leave(self) -> None:
        fd, mode = self._held.pop(), self._modes.pop()
        if mode is not None:
            with suppress(OSError):  # it is gone
                entries.chmod_held(fd, mode)
        os.close(fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._shorten(0)
        self._leave()

    # A missing folder means for these that nothing is there.

    def lstat(self, path: str) -> os.stat_result | None:
        place = self._find_place(path)
        return None if place is None else lstat(*place)

    def read_state(self, path: str, batch: StoreBatch | None = None) -> FileState | None:
        place = self._find_place(path)
        return None if place is None else read_state(*place, batch)

    def matches_state(self, path: str, expected: FileState | None) -> bool:
        place = self._find_place(path)
        return expected is None if place is None else matches_state(*place, expected)

    def _find_place(self, path: str) -> tuple[int, str] | None:
        try:
            return self.locate(path)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                raise
            return None


def _let_in(fd: int) -> int | None:
    """See to it that a held folder of ours can be looked into; its mode, if that had to be changed."""
    return None if os.geteuid() == 0 else entries.open_up(fd)


@lru_cache(1 << 12)  # each step of a change asks for them
def split_path(path: str) -> tuple[str, ...]:
    """The components of a recorded path. OutsideRoot if it is none that Treadle would record."""
    parts = tuple(decode_path(path).split("/"))
    if any(part in ("", ".", "..") or "\0" in part for part in parts):
        raise entries.make_outside_error(path)
    return parts


def read_path_state(root: Root, path: str) -> FileState | None:
    """The state of a path that any caller may give; the folders above may be links that stay inside."""
    with suppress(Missing), root.locate_name(path) as place:
        return read_state(place.fd, place.name)
    return None


_ROOM = 16 << 20  # So many bytes are held together
_TICK_NS = 10_000_000  # No clock that stamps files goes in coarser steps, unless all its stamps are multiples of this


class SeenFiles:
    """Small files as they were read for an effect, for the commit that follows at once: it need not read them again.
    Old content counts only while the file's status shows that it is unchanged; new content is known by its hash."""

    def __init__(self) -> None:
        # By path: its signature, its hash and its bytes.
        self._before: dict[str, tuple[tuple[int, ...] | None, str, bytes]] = {}
        self._after: dict[str, bytes] = {}
        self._room = _ROOM

    def note(self, path: str, status: os.stat_result, old_content: FileContent, new_content: FileContent) -> None:
        """Note the old and the new content of a path. `status`: its status before it was read."""
        self._room -= len(old_content.data or b"") + len(new_content.data or b"")
        if self._room < 0:
            return
        # A change from now on must get another ctime than the last one.
        visible = status.st_ctime_ns % _TICK_NS and time.time_ns() - status.st_ctime_ns > 2 * _TICK_NS
        if old_content.data is not None and visible:
            self._before[path] = (make_signature(status), old_content.state.digest, old_content.data)
        if new_content.data is not None:
            self._after[new_content.state.digest] = new_content.data

    def get_old_bytes(self, path: str, state: FileState, now: os.stat_result | None) -> bytes | None:
        """The bytes of what a path was and is, by its status; None if they are not known."""
        status, digest, data = self._before.get(path, (None, "", None))
        return data if digest == state.digest and status == make_signature(now) else None

    def get_new_bytes(self, digest: str) -> bytes | None:
        return self._after.get(digest)
