"""What lies under `.git` is one: a part of it alone, brought back, would be a damaged repository. So it is undone as a
unit, and only as long as nobody else has touched it, which a fingerprint tells.

The index is read for what it says, not for its bytes: git writes into it when it last looked at each file, and any
`git status` does that anew. Objects are left out: they are named by their content, and nothing points to a new one
before something else changes.
"""

import hashlib
import os
import stat as st
from collections.abc import Iterator

from treadle.errors import ToolError
from treadle.workspace.history.git_index import index_digest
from treadle.workspace.paths.entries import LIST, READ, held
from treadle.workspace.root import Root

UNIT = ".git"
INDEX = ".git/index"
NONE = "none"
_LEFT_OUT = frozenset({"objects", "index.lock"})
_MAX_INDEX = 256 << 20


def git_fingerprint(root: Root) -> str:
    """A hash of all that lies under the root's `.git`, but for objects; `none` if there is no such folder."""
    total = hashlib.sha256()
    try:
        with root.named(UNIT) as place:
            fd = os.open(place.name, LIST, dir_fd=place.fd)
    except (ToolError, OSError):
        return NONE
    with held(fd):
        for line in _lines(fd, "", _LEFT_OUT):
            total.update(line)
    return total.hexdigest()


def _lines(folder: int, above: str, left_out: frozenset[str] = frozenset()) -> Iterator[bytes]:
    for name in sorted(os.listdir(folder)):
        if name in left_out:
            continue
        path = f"{above}{name}"
        try:
            found = os.stat(name, dir_fd=folder, follow_symlinks=False)
            what = _what(folder, name, found)
        except FileNotFoundError:  # gone at this moment
            continue
        except OSError as error:  # whoever cannot read it cannot change it
            what = f"unreadable {error.errno}"
        yield b"%s\0%o\0%s\n" % (os.fsencode(path), found.st_mode, what.encode("utf-8", "surrogateescape"))
        if st.S_ISDIR(found.st_mode):
            yield from _inside(folder, name, path)


def _inside(folder: int, name: str, path: str) -> Iterator[bytes]:
    try:
        inner = os.open(name, LIST, dir_fd=folder)
    except OSError:
        return
    with held(inner):
        yield from _lines(inner, f"{path}/")


def _what(folder: int, name: str, found: os.stat_result) -> str:
    if st.S_ISLNK(found.st_mode):
        return os.readlink(name, dir_fd=folder)
    if not st.S_ISREG(found.st_mode):
        return ""
    fd = os.open(name, READ, dir_fd=folder)
    with open(fd, "rb") as file:
        if name == "index" and found.st_size <= _MAX_INDEX:
            return index_digest(file.read())
        return hashlib.file_digest(file, "sha256").hexdigest()
