"""The files under `.git` are one unit: restoring only a part of them would damage the repository. So they are undone
together, and only as long as no other program has changed them, which a fingerprint detects.

The index is read for its entries, not for its bytes: git writes into it when it last looked at each file, and any `git
status` does that anew. Objects are left out: they are named by their content, and nothing points to a new one before
something else changes.
"""

import hashlib
import os
import stat as st
from collections.abc import Iterator

from treadle.adapters.workspace.history.git_index import index_digest
from treadle.adapters.workspace.paths.entries import LIST, READ, closing_fd
from treadle.adapters.workspace.root import Root
from treadle.errors import ToolError

UNIT = ".git"
INDEX = ".git/index"
NONE = "none"
_LEFT_OUT = frozenset({"objects", "index.lock"})
_MAX_INDEX = 256 << 20


def git_fingerprint(root: Root) -> str:
    """A hash of all that lies under the root's `.git`, but for objects; `none` if there is no such folder."""
    total = hashlib.sha256()
    try:
        with root.locate_name(UNIT) as place:
            fd = os.open(place.name, LIST, dir_fd=place.fd)
    except (ToolError, OSError):
        return NONE
    with closing_fd(fd):
        for line in _lines(fd, "", _LEFT_OUT):
            total.update(line)
    return total.hexdigest()


def _lines(folder: int, above: str, left_out: frozenset[str] = frozenset()) -> Iterator[bytes]:
    for name in sorted(os.listdir(folder)):
        if name in left_out:
            continue
        path = f"{above}{name}"
        try:
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
            content = _digest_entry(folder, name, status)
        except FileNotFoundError:  # gone at this moment
            continue
        except OSError as error:  # a command that cannot read it cannot change it
            content = f"unreadable {error.errno}"
        yield b"%s\0%o\0%s\n" % (os.fsencode(path), status.st_mode, content.encode("utf-8", "surrogateescape"))
        if st.S_ISDIR(status.st_mode):
            yield from _inside(folder, name, path)


def _inside(folder: int, name: str, path: str) -> Iterator[bytes]:
    try:
        inner = os.open(name, LIST, dir_fd=folder)
    except OSError:
        return
    with closing_fd(inner):
        yield from _lines(inner, f"{path}/")


def _digest_entry(folder: int, name: str, status: os.stat_result) -> str:
    if st.S_ISLNK(status.st_mode):
        return os.readlink(name, dir_fd=folder)
    if not st.S_ISREG(status.st_mode):
        return ""
    fd = os.open(name, READ, dir_fd=folder)
    with open(fd, "rb") as file:
        if name == "index" and status.st_size <= _MAX_INDEX:
            return index_digest(file.read())
        return hashlib.file_digest(file, "sha256").hexdigest()
