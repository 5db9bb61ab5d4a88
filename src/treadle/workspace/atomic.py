"""A file replaced in one step that survives a power cut: temporary file, fsync, rename, fsync of the directory.
Works on a directory that is already open; where it is and whether it may be written is decided before."""

import hashlib
import os
import stat as st
from contextlib import suppress

from treadle.errors import ToolError
from treadle.faultpoint import faultpoint
from treadle.ports.workspace import inert

_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def replace_file(
    directory: int, name: str, data: bytes, *, old: os.stat_result | None, mode: int | None, temp: str
) -> None:
    """Make `name` in the open directory a file with these bytes; `old` is what lies there now."""
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
        os.rename(temp, name, src_dir_fd=directory, dst_dir_fd=directory)
        faultpoint("workspace.renamed")
        os.fsync(directory)
    except BaseException:
        with suppress(OSError):
            if _is_ours(directory, temp, fd):
                os.unlink(temp, dir_fd=directory)
        raise
    finally:
        os.close(fd)


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
