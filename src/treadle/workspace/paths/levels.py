"""A folder on the way down through a project, held open, and what the .gitignore files from the root to here say of
what lies in it. They are read only if somebody asks; whether they have changed is told by a key, without reading."""

import errno
import hashlib
import os
import stat as st
from collections.abc import Iterator
from contextlib import contextmanager

from treadle.workspace.paths.entries import bytes_at, chmod_held, open_up
from treadle.workspace.paths.ignore import MAX_BYTES, NAME, Rules, lines_of

GIT = ".git"
GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO)
"""What the system says of something that has gone, or is something else by now."""
_CLOSED = (errno.EACCES, errno.EPERM)
_FOLDER = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_HELD = getattr(os, "O_PATH", os.O_RDONLY) | _FOLDER

Listing = list[tuple[str, os.stat_result]]


class Level:
    """`path` ends with a slash, but for the root's, which is empty. What lies in a `.git` is never ignored."""

    def __init__(self, fd: int, listing: Listing, path: str = "", above: "Level | None" = None) -> None:
        self.fd = fd
        self.listing = listing
        self.path = path
        self.above = above
        self.depth: int = 0 if above is None else above.depth + 1
        self.git: bool = above is not None and (above.git or path.endswith(f"/{GIT}/") or path == f"{GIT}/")
        self.ignored = False
        self.key: bytes = b"" if above is None or self.git else above.key
        """Stands for all the rules that hold here."""
        self._has_rules = False
        self._rules: Rules | None = None
        if not self.git:
            self._find_rules()

    def ignores(self, name: str, *, directory: bool) -> bool:
        """By the nearest list that says anything."""
        if self.ignored or self.git:
            return self.ignored and not self.git
        level: Level | None = self
        while level is not None:
            if level._has_rules:
                verdict = level._own().verdict((self.path + name)[len(level.path) :], directory=directory)
                if verdict is not None:
                    return verdict
            level = level.above
        return False

    def _find_rules(self) -> None:
        for name, found in self.listing:
            if name == NAME and st.S_ISREG(found.st_mode):
                self._has_rules = True
                sign = f"{found.st_ino} {found.st_mtime_ns} {found.st_ctime_ns} {found.st_size}"
                self.key = hashlib.sha256(self.key + sign.encode()).digest()[:12]

    def _own(self) -> Rules:
        if self._rules is None:
            self._rules = Rules(lines_of(bytes_at(self.fd, NAME, MAX_BYTES) or b""))
        return self._rules


def listing_of(fd: int) -> Listing:
    """What lies in a folder, links not followed. PermissionError if the folder may not be looked into."""
    with os.scandir(fd) as entries:
        found = list(entries)
    try:
        return [(entry.name, entry.stat(follow_symlinks=False)) for entry in found]
    except FileNotFoundError:  # some are gone already
        listing = []
        for entry in found:
            try:
                listing.append((entry.name, entry.stat(follow_symlinks=False)))
            except FileNotFoundError:
                continue
        return listing


class NotEntered(Exception):
    """A folder that is gone by now, or closed to us."""

    def __init__(self, closed: bool) -> None:
        super().__init__()
        self.closed = closed


@contextmanager
def entered(above: int, name: str) -> Iterator[tuple[int, Listing]]:
    """A folder held open, and what lies in it. One that its owner has closed to himself is open while it is held."""
    held, mode, fd = -1, None, -1
    try:
        try:
            try:
                fd = os.open(name, os.O_RDONLY | _FOLDER, dir_fd=above)
                listing = listing_of(fd)
            except PermissionError:
                held = os.open(name, _HELD, dir_fd=above)
                if (mode := open_up(held)) is None:
                    raise
                fd = fd if fd >= 0 else os.open(".", os.O_RDONLY | _FOLDER, dir_fd=held)
                listing = listing_of(fd)
        except OSError as error:
            if error.errno not in (*GONE, *_CLOSED):
                raise
            raise NotEntered(error.errno in _CLOSED) from error
        yield fd, listing
    finally:
        if mode is not None:
            chmod_held(held, mode)
        for each in (fd, held):
            if each >= 0:
                os.close(each)
