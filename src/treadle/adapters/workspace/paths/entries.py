"""Single directory entries, named relative to a directory that is held open: their kind, bytes and modes; and the
errors of a path, in words that a model can act on. The directory was resolved before."""

import errno
import os
import stat as st
from collections.abc import Iterator
from contextlib import contextmanager

from treadle.errors import OutsideRoot, ToolError
from treadle.ports.workspace import Child, FileKind, FileStat, inert

READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
"""For a file: a link is not followed, and a FIFO does not hang."""
LIST = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
"""For a folder: a link is not followed."""
_BARE = getattr(os, "O_PATH", os.O_RDONLY | os.O_NONBLOCK) | os.O_NOFOLLOW | os.O_CLOEXEC


@contextmanager
def closing_fd(fd: int) -> Iterator[int]:
    try:
        yield fd
    finally:
        os.close(fd)


def lstat(directory: int, name: str) -> os.stat_result | None:
    """The status of this name; a link is not followed. None if it does not exist."""
    try:
        return os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return None


def kind(mode: int) -> FileKind:
    if st.S_ISREG(mode):
        return "file"
    if st.S_ISDIR(mode):
        return "directory"
    return "link" if st.S_ISLNK(mode) else "other"


def stat_of(status: os.stat_result | None) -> FileStat | None:
    return None if status is None else FileStat(kind(status.st_mode), status.st_size, st.S_IMODE(status.st_mode))


def child(each: os.DirEntry[str], fd: int) -> Child:
    if each.is_symlink():
        try:
            return Child(each.name, "link", os.readlink(each.name, dir_fd=fd))
        except OSError:  # gone, or no longer a link
            return Child(each.name, "link")
    if each.is_dir(follow_symlinks=False):
        return Child(each.name, "directory")
    return Child(each.name, "file" if each.is_file(follow_symlinks=False) else "other")


def bytes_at(directory: int, name: str, most: int) -> bytes | None:
    """The bytes of a regular file in an open directory; None if it is none, cannot be read, or has more than `most`.
    Nothing else is opened: that would wake a process that waits at the other end of a FIFO."""
    try:
        if not st.S_ISREG(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode):
            return None
        fd = os.open(name, READ, dir_fd=directory)
    except OSError:
        return None
    with open(fd, "rb") as file:
        status = os.fstat(fd)
        if not st.S_ISREG(status.st_mode) or status.st_size > most:
            return None
        try:
            data = file.read(most + 1)
        except OSError:
            return None
    return data if len(data) <= most else None


def chmod_held(fd: int, mode: int) -> None:
    """The mode of what is held, by the descriptor's own name: it leads nowhere else."""
    os.chmod(f"/proc/self/fd/{fd}", mode)


def open_up(folder: int) -> int | None:
    """See to it that a held folder can be looked into; the mode that it had. None if it can be, or is not ours."""
    status = os.fstat(folder)
    need = st.S_IRUSR | st.S_IXUSR
    if status.st_uid != os.geteuid() or status.st_mode & need == need:
        return None
    chmod_held(folder, st.S_IMODE(status.st_mode) | need)
    return st.S_IMODE(status.st_mode)


def chmod(directory: int, name: str, mode: int) -> None:
    """Change the mode of a name, never of what a link with that name points to; the file need not be readable."""
    if os.chmod in os.supports_follow_symlinks:  # not on Linux with Python 3.11
        os.chmod(name, mode, dir_fd=directory, follow_symlinks=False)
        return
    with closing_fd(os.open(name, _BARE, dir_fd=directory)) as fd:
        chmod_held(fd, mode)  # a link refuses


# -- errors, in words -------------------------------------------------------------------------------------------------


class Missing(ToolError):
    """Nothing lies at the path."""


def missing(path: str) -> Missing:
    return Missing(f"{inert(path)} does not exist.")


def outside(path: str) -> OutsideRoot:
    return OutsideRoot(f"{inert(path)} is outside the project root; use a path inside it.")


def require_file(status: os.stat_result, path: str) -> None:
    if st.S_ISDIR(status.st_mode):
        raise ToolError(f"{inert(path)} is a directory, not a file.")
    if not st.S_ISREG(status.st_mode):
        raise ToolError(f"{inert(path)} is a FIFO, socket or device, not a regular file; it is not opened.")


def explain(error: OSError, path: str) -> ToolError:
    match error.errno:
        case errno.ENOENT:
            return missing(path)
        case errno.ENOTDIR | errno.ELOOP:
            return ToolError(f"{inert(path)}: a part of the path is not a directory.")
        case errno.ENAMETOOLONG:
            return ToolError(f"{inert(path)}: the name is too long for the file system.")
        case errno.EEXIST:
            return ToolError(f"{inert(path)} exists already.")
        case errno.ENOTEMPTY:
            return ToolError(f"{inert(path)} is a directory that is not empty.")
        case _:
            return ToolError(f"{inert(path)}: {os.strerror(error.errno or 0)}.")
