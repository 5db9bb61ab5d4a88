"""Single directory entries, named relative to a directory that is held open: their kind, bytes and modes; and the
errors of a path, in words that a model can act on. The directory was resolved before."""

import errno
import os
import stat as st
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache

from treadle.errors import OutsideRoot, ToolError
from treadle.ports.workspace import Child, FileKind, FileStat, escape_name

# For a file: a link is not followed, and a FIFO does not hang.
READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
LIST = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC  # For a folder: a link is not followed
HOLD = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC  # The same, to look up names
_BARE = getattr(os, "O_PATH", os.O_RDONLY | os.O_NONBLOCK) | os.O_NOFOLLOW | os.O_CLOEXEC


@contextmanager
def hold_fd(fd: int) -> Iterator[int]:
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


def get_file_kind(mode: int) -> FileKind:
    kinds: dict[int, FileKind] = {st.S_IFREG: "file", st.S_IFDIR: "directory", st.S_IFLNK: "link"}
    return kinds.get(st.S_IFMT(mode), "other")


def make_file_stat(status: os.stat_result | None) -> FileStat | None:
    return (
        None if status is None else FileStat(get_file_kind(status.st_mode), status.st_size, st.S_IMODE(status.st_mode))
    )


def make_child(each: os.DirEntry[str], fd: int) -> Child:
    if each.is_symlink():
        try:
            return Child(each.name, "link", os.readlink(each.name, dir_fd=fd))
        except OSError:  # gone, or no longer a link
            return Child(each.name, "link")
    if each.is_dir(follow_symlinks=False):
        return Child(each.name, "directory")
    return Child(each.name, "file" if each.is_file(follow_symlinks=False) else "other")


def read_bytes_at(directory: int, name: str, most: int) -> bytes | None:
    """The bytes of a regular file in an open directory; None if it is none, cannot be read, or has more than `most`.
    Nothing else is opened: that would wake a process that waits at the other end of a FIFO."""
    with suppress(OSError):
        if not st.S_ISREG(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode):
            return None
        with open(os.open(name, READ, dir_fd=directory), "rb") as file:
            status = os.fstat(file.fileno())
            if st.S_ISREG(status.st_mode) and status.st_size <= most and len(data := file.read(most + 1)) <= most:
                return data
    return None


def chmod_held(fd: int, mode: int) -> None:
    """The mode of what is held, by the descriptor's own name: it leads nowhere else."""
    os.chmod(f"/proc/self/fd/{fd}", mode)


def open_up(folder: int) -> int | None:
    """See to it that a held folder can be looked into; the mode that it had. None if it can be, or is not ours."""
    status, need = os.fstat(folder), st.S_IRUSR | st.S_IXUSR
    mode = st.S_IMODE(status.st_mode)
    if status.st_uid != os.geteuid() or mode & need == need:
        return None
    chmod_held(folder, mode | need)
    return mode


def chmod(directory: int, name: str, mode: int) -> None:
    """Change the mode of a name, never of what a link with that name points to; the file need not be readable."""
    if os.chmod in os.supports_follow_symlinks:  # not on Linux with Python 3.11
        return os.chmod(name, mode, dir_fd=directory, follow_symlinks=False)
    with hold_fd(os.open(name, _BARE, dir_fd=directory)) as fd:
        chmod_held(fd, mode)  # a link refuses


def exchange_entries(source: int, name: str, folder: int, goal: str) -> bool:
    """Exchange two entries in one step. False if this system or this file system cannot."""
    if (call := _find_exchange_call()) is None:
        return False
    if (number := call(source, os.fsencode(name), folder, os.fsencode(goal))) in (errno.ENOENT, errno.EXDEV):
        raise OSError(number, os.strerror(number), goal)
    return number == 0  # after another error the caller's `rename` either succeeds or reports the error


@cache
def _find_exchange_call() -> Callable[[int, bytes, int, bytes], int] | None:
    """The system call of Linux or macOS, which returns the number of its error or 0."""
    with suppress(ImportError, AttributeError):  # some C libraries have neither
        import ctypes

        library = ctypes.CDLL(None, use_errno=True)
        call = library.renameat2 if sys.platform == "linux" else library.renameatx_np
        call.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint)
        swap = ctypes.c_uint(2)  # RENAME_EXCHANGE of the one is RENAME_SWAP of the other
        return lambda *places: ctypes.get_errno() if call(*places, swap) else 0
    return None


# -- errors, in words -------------------------------------------------------------------------------------------------


class Missing(ToolError):
    """Nothing lies at the path."""


def make_missing_error(path: str) -> Missing:
    return Missing(f"{escape_name(path)} does not exist.")


def make_outside_error(path: str) -> OutsideRoot:
    return OutsideRoot(f"{escape_name(path)} is outside the project root; use a path inside it.")


def require_file(status: os.stat_result, path: str) -> None:
    if st.S_ISDIR(status.st_mode):
        raise ToolError(f"{escape_name(path)} is a directory, not a file.")
    if not st.S_ISREG(status.st_mode):
        raise ToolError(f"{escape_name(path)} is a FIFO, socket or device, not a regular file; it is not opened.")


def explain(error: OSError, path: str) -> ToolError:
    number = error.errno or 0
    if number == errno.ENOENT:
        return make_missing_error(path)
    reasons = {
        errno.ENOTDIR: ": a part of the path is not a directory.",
        errno.ELOOP: ": a part of the path is not a directory.",
        errno.ENAMETOOLONG: ": the name is too long for the file system.",
        errno.EEXIST: " exists already.",
        errno.ENOTEMPTY: " is a directory that is not empty.",
    }
    return ToolError(f"{escape_name(path)}{reasons.get(number) or f': {os.strerror(number)}.'}")
