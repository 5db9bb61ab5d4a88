"""Bytes from one descriptor to another, and the ways to make them survive a power cut: one file at a time where there
are few, the whole file system at once where there are many. Knows nothing of projects."""

import errno
import hashlib
import os
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from typing import Protocol

from treadle.file_system import sync_folder

FEW = 32
"""So many files are synced one by one. Beyond that one syncfs is cheaper, though it may find others' data to write."""
CHUNK = 1 << 20
_FICLONE = 0x40049409
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class _Sync(Protocol):
    def __call__(self, fd: int) -> int: ...


def digest_of(fd: int) -> str:
    """The SHA-256 of a file from its beginning to its end."""
    total = hashlib.sha256()
    offset = 0
    while chunk := os.pread(fd, CHUNK, offset):
        total.update(chunk)
        offset += len(chunk)
    return total.hexdigest()


def copy(source: int, goal: int) -> None:
    """All bytes of a file into an empty one: shared where the file system can, holes left as holes."""
    size = os.fstat(source).st_size
    if size > CHUNK and _clone(source, goal):
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
        written = os.pwrite(fd, view, offset)
        offset += written
        view = view[written:]


def _clone(source: int, goal: int) -> bool:
    import fcntl

    try:
        fcntl.ioctl(goal, _FICLONE, source)
    except OSError:
        return False
    return True


class Syncing:
    """What has been written and must last. Files are synced as they come, until there are many; then `data` does it by
    the file system that `place` lies on. Names come later, and `names` makes them last."""

    def __init__(self, place: str | int) -> None:
        self._place = place
        self._files = 0
        self._folders: set[str] = set()

    def file(self, fd: int) -> None:
        self._files += 1
        if self._files <= FEW:
            os.fsync(fd)

    def folder(self, path: str) -> None:
        self._folders.add(path)

    def data(self) -> None:
        if self._files > FEW:
            sync_all(self._place)

    def names(self) -> None:
        if len(self._folders) > FEW:
            sync_all(self._place)
        else:
            for path in self._folders:
                sync_folder(path)


def sync_all(place: str | int) -> None:
    """Make all of the file system last on which a folder lies."""
    fd = os.open(place, _DIRECTORY) if isinstance(place, str) else place
    try:
        call = _syncfs()
        if call is None:
            os.sync()
        elif call(fd) != 0:
            import ctypes

            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
    finally:
        if isinstance(place, str):
            os.close(fd)


@cache
def _syncfs() -> _Sync | None:
    import ctypes

    try:
        call = ctypes.CDLL(None, use_errno=True).syncfs
    except (OSError, AttributeError):
        return None
    call.argtypes = (ctypes.c_int,)
    call.restype = ctypes.c_int
    return lambda fd: int(call(fd))


def private_folder(path: str) -> None:
    """A folder that nobody else may look into, and the one it lies in."""
    for each in (os.path.dirname(path), path):
        os.makedirs(each, 0o700, exist_ok=True)


def unlink_all(paths: Iterable[str]) -> None:
    for path in paths:
        with suppress(OSError):
            os.unlink(path)
