"""A folder on the way down through a project, held open, and the rules of the .gitignore files from the root to here
for its entries. The files are read only when a caller needs the rules; a key shows without reading if they have
changed."""

import errno
import hashlib
import os
import stat as st
from collections.abc import Iterator
from contextlib import contextmanager

from treadle.adapters.workspace.paths.entries import bytes_at, chmod_held, open_up
from treadle.adapters.workspace.paths.ignore import MAX_BYTES, NAME, Rules, lines_of

GIT = ".git"
GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO)
"""Error numbers of the system for an entry that is gone, or has become another kind."""
_CLOSED = (errno.EACCES, errno.EPERM)
_FOLDER = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_HELD = getattr(os, "O_PATH", os.O_RDONLY) | _FOLDER

Listing = list[tuple[str, os.stat_result]]


class Level:
    """`path` ends with a slash, except the root's, which is empty. Entries of a `.git` are never ignored."""

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
                verdict = level._load_rules().verdict((self.path + name)[len(level.path) :], directory=directory)
                if verdict is not None:
                    return verdict
            level = level.above
        return False

    def _find_rules(self) -> None:
        for name, status in self.listing:
            if name == NAME and st.S_ISREG(status.st_mode):
                self._has_rules = True
                sign = f"{status.st_ino} {status.st_mtime_ns} {status.st_ctime_ns} {status.st_size}"
                self.key = hashlib.sha256(self.key + sign.encode()).digest()[:12]

    def _load_rules(self) -> Rules:
        if self._rules is None:
            self._rules = Rules(lines_of(bytes_at(self.fd, NAME, MAX_BYTES) or b""))
        return self._rules


def listing_of(fd: int) -> Listing:
    """The entries of a folder, links not followed. PermissionError if the folder may not be listed."""
    with os.scandir(fd) as entries:
        dir_entries = list(entries)
    try:
        return [(entry.name, entry.stat(follow_symlinks=False)) for entry in dir_entries]
    except FileNotFoundError:  # some are gone already
        listing = []
        for entry in dir_entries:
            try:
                listing.append((entry.name, entry.stat(follow_symlinks=False)))
            except FileNotFoundError:
                continue
        return listing


class NotEntered(Exception):
    """A folder that is gone by now, or closed to us."""

    def __init__(self, is_closed: bool) -> None:
        super().__init__()
        self.closed = is_closed


@contextmanager
def entered(above: int, name: str) -> Iterator[tuple[int, Listing]]:
    """A folder held open, and what lies in it. One that its owner has closed to himself is open while it is held."""
    folder_fd, mode, fd = -1, None, -1
    try:
        try:
            try:
                fd = os.open(name, os.O_RDONLY | _FOLDER, dir_fd=above)
                listing = listing_of(fd)
            except PermissionError:
                folder_fd = os.open(name, _HELD, dir_fd=above)
                if (mode := open_up(folder_fd)) is None:
                    raise
                fd = fd if fd >= 0 else os.open(".", os.O_RDONLY | _FOLDER, dir_fd=folder_fd)
                listing = listing_of(fd)
        except OSError as error:
            if error.errno not in (*GONE, *_CLOSED):
                raise
            raise NotEntered(error.errno in _CLOSED) from error
        yield fd, listing
    finally:
        if mode is not None:
            chmod_held(folder_fd, mode)
        for each in (fd, folder_fd):
            if each >= 0:
                os.close(each)
