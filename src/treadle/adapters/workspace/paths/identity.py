"""The identity of a root's folder (S-01). A path is only a name: a program that can write to the folder above can put a
link or another folder in its place. So a chat is bound to the folder itself, by its volume and inode, and every use of
the root opens it and looks. Knows nothing of the folder's content.

The volume is the id of the file system, which survives a reboot and a new mount; where a file system has none, it is
the number of the device.
"""

import errno
import os

from treadle.adapters.workspace.paths.entries import closing_fd
from treadle.errors import RootChanged
from treadle.ports.workspace import WorldFiles, inert

_LOOK = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC


def identify(path: str) -> str:
    """Which folder a path leads to; empty if it leads to none."""
    location = locate(path)
    return "" if location is None else location[1]


def locate(path: str) -> tuple[str, str] | None:
    """The path of the folder without links, and its identity: both of the same folder, even if the path is changed
    meanwhile. None if the path leads to no folder."""
    try:
        fd = os.open(path, _LOOK)
    except (OSError, ValueError):
        return None
    with closing_fd(fd):
        try:
            place = os.readlink(f"/proc/self/fd/{fd}")
        except OSError:  # no /proc: by the words, if they still lead to the same folder
            real = os.path.realpath(path)
            place = real if os.path.samestat(os.stat(real), os.fstat(fd)) else path
        return place, identity(fd)


def identity(fd: int) -> str:
    volume = os.fstatvfs(fd).f_fsid
    status = os.fstat(fd)
    return f"v{volume:x}.{status.st_ino}" if volume else f"d{status.st_dev:x}.{status.st_ino}"


class BoundFolder:
    """The folder at `path`, if it is the one of this identity; with an empty one whichever is there. `given` is what it
    is called in errors: where a link leads is not told. On a `ground` its files lie elsewhere, and who opens that has
    looked at the folder."""

    def __init__(self, path: str, identity: str, given_path: str, ground: WorldFiles | None = None) -> None:
        self._path, self._ground, self._given, self._identity = path, ground, given_path, identity
        self._seen: tuple[int, int] | None = None
        """Device and inode of the folder, once it was found to be the one: the cheaper look."""

    def open(self, flags: int) -> int:
        """A descriptor of the folder. RootChanged if another one stands there, or a link in its place."""
        if self._ground is not None:
            return self._ground.open(flags)
        try:
            fd = os.open(self._path, flags)
        except OSError as error:
            if self._identity and error.errno in (errno.ELOOP, errno.ENOTDIR):
                raise root_changed_error(self._given) from error
            raise
        if self._identity and not self._is(fd):
            os.close(fd)
            raise root_changed_error(self._given)
        return fd

    def _is(self, fd: int) -> bool:
        status = os.fstat(fd)
        if (status.st_dev, status.st_ino) == self._seen:
            return True
        if identity(fd) != self._identity:
            return False
        self._seen = (status.st_dev, status.st_ino)
        return True


def root_changed_error(root: str) -> RootChanged:
    return RootChanged(
        f"The project root {inert(root)} is not the folder that this chat was bound to: another one, or a link, stands "
        "in its place. Nothing in it was touched. If it is the right one, bind the chat to it by naming its root again."
    )
