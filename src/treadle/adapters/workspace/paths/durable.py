"""Bytes that survive a power cut: copied from one descriptor to another and synced, one file at a time where there are
few, the whole file system at once where there are many. Where that is, and whether it may be, is decided before."""

import _thread
import errno
import hashlib
import os
import resource
import stat as st
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache
from typing import Self

from treadle.adapters.workspace.paths.entries import READ, hold_fd
from treadle.base.file_system import sync_folder

FEW = 32  # Files that are synced one by one; beyond, one syncfs is cheaper, though it may find others' data to write
CHUNK = 1 << 20
_FICLONE = 0x40049409
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


def compute_digest(fd: int) -> str:
    total, offset = hashlib.sha256(), 0
    while chunk := os.pread(fd, CHUNK, offset):
        total.update(chunk)
        offset += len(chunk)
    return total.hexdigest()


def copy_bytes(source: int, goal: int) -> None:
    """All bytes of a file into an empty one: shared where the file system can, holes left as holes."""
    size = os.fstat(source).st_size
    if size > CHUNK:
        import fcntl

        with suppress(OSError):
            fcntl.ioctl(goal, _FICLONE, source)
            return
    offset = 0
    while offset < size:
        try:
            offset = os.lseek(source, offset, os.SEEK_DATA)
            end = os.lseek(source, offset, os.SEEK_HOLE)
        except OSError as error:
            if error.errno == errno.ENXIO:  # nothing but a hole from here on
                break
            if error.errno != errno.EINVAL:
                raise
            end = size  # no such question can be asked here
        while offset < end and (chunk := os.pread(source, min(CHUNK, end - offset), offset)):
            write_at(goal, chunk, offset)
            offset += len(chunk)
        if offset < end:  # it has become shorter
            break
    os.ftruncate(goal, size)


def write_at(fd: int, data: bytes, offset: int) -> None:
    view = memoryview(data)
    while view:
        written_bytes = os.pwrite(fd, view, offset)
        offset += written_bytes
        view = view[written_bytes:]


class Syncing:
    """The written files that must survive a power cut. `data` syncs them: file by file, or, if there are many, the
    whole file system of `place`. Names come later, and `names` syncs them. If not `durable`, nothing is synced."""

    def __init__(self, place: str | int, *, durable: bool = True) -> None:
        self._place, self._durable, self._count = place, durable, 0
        self._files: list[tuple[str, int | None]] = []
        self._folders: set[str] = set()

    def add_file(self, name: str, folder: int | None = None) -> None:
        if self._durable:
            self._count += 1
            if self._count <= FEW:
                self._files.append((name, folder))

    def add_folder(self, path: str) -> None:
        if self._durable:
            self._folders.add(path)

    def sync_data(self) -> int | None:
        """The file system that was synced as a whole, by its number, if one was."""
        many = self._count > FEW
        if many:
            sync_all(self._place)
        for name, folder in () if many else self._files:
            with hold_fd(os.open(name, READ, dir_fd=folder)) as fd:
                os.fsync(fd)
        self._count = 0
        self._files.clear()
        return os.stat(self._place).st_dev if many else None

    def note_synced(self, device: int | None) -> None:
        """Note that the whole file system was synced just now by another object, names included."""
        if device is not None and os.stat(self._place).st_dev == device:
            self._count = 0
            self._files.clear()
            self._folders.clear()

    def sync_names(self) -> None:
        if len(self._folders) > FEW:
            return sync_all(self._place)
        for path in self._folders:
            sync_folder(path)


def sync_all(place: str | int) -> None:
    """Make all of the file system last on which a folder lies."""
    if isinstance(place, str):
        with hold_fd(os.open(place, _DIRECTORY)) as fd:
            return sync_all(fd)
    call = _syncfs()
    if call is None:
        os.sync()
    elif call(place) != 0:
        import ctypes

        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


class SyncAhead:
    """A sync of the file system of an open folder, begun in a thread while other work is done: a later sync waits for
    less. It must be checked then, since the system does not report the same error again."""

    def __init__(self, place: int) -> None:
        self._error: OSError | None = None
        self._running = _thread.allocate_lock()
        fd = os.open(".", _DIRECTORY, dir_fd=place)
        self._running.acquire()
        try:
            _thread.start_new_thread(self._sync, (fd,))
        except RuntimeError:  # no more threads
            self._running.release()
            os.close(fd)

    def _sync(self, fd: int) -> None:
        try:
            sync_all(fd)
        except OSError as error:
            self._error = error
        finally:
            os.close(fd)
            self._running.release()

    def check(self) -> None:
        """Wait for its end. OSError if it failed."""
        with self._running:
            if self._error is not None:
                raise self._error


@cache
def _syncfs() -> Callable[[int], int] | None:
    import ctypes

    try:
        call = ctypes.CDLL(None, use_errno=True).syncfs
    except (OSError, AttributeError):
        return None
    call.argtypes, call.restype = (ctypes.c_int,), ctypes.c_int
    return lambda fd: int(call(fd))


def make_private_folder(path: str) -> None:
    """Make a folder that only its owner may read, and the folder above it."""
    if not os.path.isdir(path):
        for each in (os.path.dirname(path), path):
            os.makedirs(each, 0o700, exist_ok=True)


def unlink_all(paths: Iterable[str]) -> None:
    for path in paths:
        with suppress(OSError):
            os.unlink(path)


def read_new_mode(folder: int) -> int:
    """The permissions that a file gets which is made in this folder: by the umask, or by what the folder gives."""
    try:
        fd = os.open(".", os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o666, dir_fd=folder)
    except (OSError, AttributeError):  # this system, or this file system, has no files without a name
        name = make_temp_name("", "")
        fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666, dir_fd=folder)
        os.unlink(name, dir_fd=folder)
    with hold_fd(fd):
        return st.S_IMODE(os.fstat(fd).st_mode)


def make_temp_name(name: str, token: str) -> str:
    """Short, so that a name of 255 bytes has room; the same for the same writer, so that it can be swept."""
    salt = token or os.urandom(16).hex()
    return f".treadle-{hashlib.sha256(os.fsencode(name) + b'/' + salt.encode()).hexdigest()[:24]}.tmp"


_MOST_HELD = 256  # So many are held at a time by this process, or a part of the descriptors that it may have …
_SHARE = 8  # … and beyond that the caller that removes the name waits
_HOLD = getattr(os, "O_PATH", 0) | os.O_NOFOLLOW | os.O_CLOEXEC

_lock = _thread.allocate_lock()
_count = 0


def count_pending() -> int:
    return _count


class Freeing:
    """Holds files while their last names are removed: a thread frees them when the block is left, or when there is no
    room for more. Freeing blocks can take as long as a sync, and the caller needs only the name to be gone. After a
    crash the file system itself frees files without a name."""

    def __init__(self) -> None:
        self._held: list[int] = []
        self._most = min(_MOST_HELD, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // _SHARE)

    def __enter__(self) -> Self:
        return self

    def hold(self, name: str, folder: int | None = None) -> None:
        """Hold a file; to be called before its name is removed. A file that cannot be held is freed at once."""
        if not hasattr(os, "O_PATH"):
            return
        if _add_to_count(1, self._most):
            try:
                self._held.append(os.open(name, _HOLD, dir_fd=folder))
            except OSError:
                _add_to_count(-1)
        elif len(self._held) >= self._most // 2:  # there will be room again
            self._begin()

    def __exit__(self, *_: object) -> None:
        self._begin()

    def _begin(self) -> None:
        descriptors, self._held = self._held, []
        if descriptors:
            try:
                _thread.start_new_thread(_let_go, (descriptors,))  # starting a `Thread` would wait until it runs
            except RuntimeError:  # no more threads
                _let_go(descriptors)


def _let_go(descriptors: list[int]) -> None:
    while descriptors:
        with suppress(OSError):
            os.close(descriptors.pop())
        _add_to_count(-1)


def _add_to_count(number: int, most: int = _MOST_HELD + 1) -> bool:
    """False if as many as `most` are held already."""
    global _count
    with _lock:
        if _count >= most:
            return False
        _count += number
        return True
