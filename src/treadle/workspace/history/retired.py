"""Old files of a project that are kept as they are: under a second name, their hash, while new files take their places.
No bytes are copied, and nothing is made or freed: those two take most of the time when many small files change.

What is kept must never change, so nobody may write to such a file any more:

- It has no other name once the change is made; else a copy takes its place.
- Nobody has it open for writing. A lease tells so, and until the file has left its place it makes whoever would open
  it wait: then, too, a copy is made before the lease is given back.
- Until all that is known, its mode tells that it does not count as kept (`counts`): whoever dies on the way leaves
  nothing behind that another batch would rely on.
"""

import fcntl
import os
import resource
import stat as st
from contextlib import suppress

from treadle.workspace.paths.durable import copy, digest_of

_MOST = 200
"""So many at once: each is held open."""
_SIGNAL = 23
"""SIGURG, which is ignored: that somebody waits is looked for, not heard."""
KEPT_MODE = 0o600
_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def counts(found: os.stat_result) -> bool:
    """Whether what lies under a hash is kept for good."""
    return st.S_IMODE(found.st_mode) == KEPT_MODE


class RetiredFiles:
    def __init__(self) -> None:
        self._held: list[tuple[int, str]] = []
        self._most = min(_MOST, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4)

    def lease(self, fd: int) -> bool:
        """Whether the file can be kept so, and nobody writes to it as long as `fd` is open."""
        found = os.fstat(fd)
        fits = found.st_nlink == 1 and found.st_uid == os.geteuid() and found.st_mode & st.S_IRUSR
        if not fits or counts(found) or len(self._held) >= self._most:
            return False
        try:
            fcntl.fcntl(fd, fcntl.F_SETSIG, _SIGNAL)
            fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        except (OSError, AttributeError):  # somebody writes to it, or there are no leases here
            return False
        return True

    def keep(self, fd: int, folder: int, name: str, place: str) -> bool:
        """Give a leased file its second name. False if that cannot be, or it is another file by now."""
        try:
            os.link(name, place, src_dir_fd=folder, follow_symlinks=False)
        except OSError:
            return False
        try:
            if os.stat(place, follow_symlinks=False).st_ino == os.fstat(fd).st_ino:
                self._held.append((os.dup(fd), place))
                return True
        except OSError:
            pass
        os.unlink(place)
        return False

    def settle(self) -> None:
        """The files have left their places, or stay where they are: see to it that what is kept stays the same."""
        for fd, place in self._held:
            try:
                with suppress(OSError):  # then it does not count as kept
                    if fcntl.fcntl(fd, fcntl.F_GETLEASE) == fcntl.F_RDLCK and os.fstat(fd).st_nlink == 1:
                        os.utime(fd)
                        os.fchmod(fd, KEPT_MODE)
                    else:
                        _copy(fd, place)
            finally:
                os.close(fd)
        self._held.clear()


def _copy(fd: int, place: str) -> None:
    temp = f"{place}.{os.urandom(6).hex()}"
    goal = os.open(temp, _NEW, KEPT_MODE)
    try:
        copy(fd, goal)
        os.fsync(goal)
        if digest_of(goal) == os.path.basename(place):
            os.rename(temp, place)
    finally:
        os.close(goal)
        with suppress(FileNotFoundError):
            os.unlink(temp)
