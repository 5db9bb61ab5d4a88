"""A file replaced in one step that survives a power cut: temporary file, fsync, rename, fsync of the directory.
Works on a directory that is already open; where it is and whether it may be written is decided before."""

import errno
import hashlib
import os
import stat as st
from contextlib import suppress

from treadle.errors import Conflict, ToolError
from treadle.faultpoint import faultpoint
from treadle.ports.workspace import ANY, inert

_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EACCES)
"""What a file system says that has no hard links."""


def replace_file(
    directory: int,
    name: str,
    data: bytes,
    *,
    old: os.stat_result | None,
    mode: int | None,
    temp: str,
    expected: str | None = ANY,
) -> None:
    """Make `name` in the open directory a file with these bytes; `old` is what lies there now. `expected` is its
    SHA-256, looked at once more at the last moment; None: there must be none."""
    with suppress(FileNotFoundError):
        os.unlink(temp, dir_fd=directory)
    fd = os.open(temp, _CREATE, 0o666, dir_fd=directory)
    try:
        with open(fd, "wb", closefd=False) as file:
            file.write(data)
        _keep_owner_and_mode(fd, old, mode)
        os.fsync(fd)
        faultpoint("workspace.temp_written")
        # Someone else may have swept our name and made it anew; their bytes are not ours to move.
        if not _is_ours(directory, temp, fd):
            raise ToolError(f"{inert(name)} is being written by another process; try again.")
        _put(directory, temp, name, expected)
        faultpoint("workspace.renamed")
        os.fsync(directory)
    except BaseException:
        with suppress(OSError):
            if _is_ours(directory, temp, fd):
                os.unlink(temp, dir_fd=directory)
        raise
    finally:
        os.close(fd)


def _put(directory: int, temp: str, name: str, expected: str | None) -> None:
    """The step itself. What must not exist is not replaced even if it comes into being right now: a link fails."""
    if expected is None:
        try:
            os.link(temp, name, src_dir_fd=directory, dst_dir_fd=directory)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise _conflict(name) if isinstance(error, FileExistsError) else error from error
        else:
            os.unlink(temp, dir_fd=directory)
            return
    require(directory, name, expected)
    os.rename(temp, name, src_dir_fd=directory, dst_dir_fd=directory)


def require(directory: int, name: str, expected: str | None) -> None:
    """Conflict, unless the name is a file with this SHA-256 (None: unless nothing lies there)."""
    if expected == ANY:
        return
    try:
        fd = os.open(name, _READ, dir_fd=directory)
    except FileNotFoundError:
        if expected is None:
            return
        raise _conflict(name) from None
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):  # a link or a socket by now
            raise _conflict(name) from error
        raise
    with open(fd, "rb") as file:
        if not st.S_ISREG(os.fstat(fd).st_mode) or hashlib.file_digest(file, "sha256").hexdigest() != expected:
            raise _conflict(name)


def _conflict(name: str) -> Conflict:
    return Conflict(f"{inert(name)} was changed by someone else at this moment. Read it again before you change it.")


def _is_ours(directory: int, temp: str, fd: int) -> bool:
    return os.stat(temp, dir_fd=directory, follow_symlinks=False).st_ino == os.fstat(fd).st_ino


def _keep_owner_and_mode(fd: int, old: os.stat_result | None, mode: int | None) -> None:
    if old is not None:
        now = os.fstat(fd)
        if (now.st_uid, now.st_gid) != (old.st_uid, old.st_gid):
            with suppress(PermissionError):  # only root may give files away
                os.fchown(fd, old.st_uid, old.st_gid)
        mode = st.S_IMODE(old.st_mode) if mode is None else mode
    if mode is not None:
        os.fchmod(fd, mode)


def temp_name(name: str, token: str) -> str:
    """Short, so that a name of 255 bytes has room; the same for the same writer, so that it can be swept."""
    salt = token or os.urandom(16).hex()
    return f".treadle-{hashlib.sha256(os.fsencode(name) + b'/' + salt.encode()).hexdigest()[:24]}.tmp"
