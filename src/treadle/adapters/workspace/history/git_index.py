"""The index of git, entry by entry: the paths that git tracks, the gitlinks among them (each stands for a repository
inside the project into which git would go), the paths that git is told not to look at, and a hash of all entries.
Changed files that git tracks count as files of the project, though they lie in a folder of caches or .gitignore names
them (S-23), so that nothing that is kept in git can be changed out of sight.

The files under `.git` are one unit: restoring only a part of them would damage the repository. So they are undone
together, and only as long as no other program has changed them, which a fingerprint detects. In it the index counts by
its entries, not by its bytes: git writes into it when it last looked at each file, and any `git status` does that anew.
Objects are left out: they are named by their content, and nothing points to a new one before something else changes."""

import hashlib
import os
import stat as st
import struct
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import lru_cache

import msgspec
from msgspec.structs import replace

from treadle.adapters.workspace.git import find_repository
from treadle.adapters.workspace.paths.entries import LIST, READ, hold_fd
from treadle.adapters.workspace.root import Root
from treadle.diff.changes import get_cache, is_folder, is_in_git
from treadle.errors import ToolError
from treadle.protocol.files import FileChange, decode_path

_HEADER = struct.Struct(">4sII")
_FIXED = 62  # The bytes of an entry before its name: the mode stands at 24, the object at 40, the flags at 60
_EXTENDED = 0x4000
_ASSUME_UNCHANGED = 0x8000
_SKIP_WORKTREE = 0x4000  # Among the flags of later versions
_KIND, _GITLINK = 0o170000, 0o160000
_NO_INDEX = (struct.error, ValueError, IndexError)
GITLINK = "it links repositories inside the project, into which git would go"


class IndexMarks(msgspec.Struct, frozen=True):
    """The paths of an index with a mark of some kind; none of what is no index."""

    gitlinks: frozenset[bytes] = frozenset()
    hidden_paths: frozenset[bytes] = frozenset()
    """Marked `assume-unchanged` or `skip-worktree`: git shows no change of them."""


def read_index_marks(data: bytes) -> IndexMarks:
    links, hidden_names = [], []
    with suppress(*_NO_INDEX):
        for fixed, more, name in _parse_entries(data):
            if int.from_bytes(fixed[24:28], "big") & _KIND == _GITLINK:
                links.append(name)
            if fixed[60] & _ASSUME_UNCHANGED >> 8 or (more and more[0] & _SKIP_WORKTREE >> 8):
                hidden_names.append(name)
        return IndexMarks(frozenset(links), frozenset(hidden_names))
    return IndexMarks()


def parse_tracked_paths(data: bytes) -> frozenset[bytes]:
    with suppress(*_NO_INDEX):
        return frozenset(name for _, _, name in _parse_entries(data))
    return frozenset()


def read_index_digest(data: bytes) -> str:
    """A hash of the paths of an index with their modes, objects and flags; of its bytes, where it is not understood."""
    try:
        total = hashlib.sha256(b"index\0")
        for fixed, more, name in _parse_entries(data, require_whole=True):
            flags = int.from_bytes(fixed[60:], "big") & 0xF000
            total.update(b"%s %s %04x%s %s\0" % (fixed[24:28], fixed[40:60], flags, more, name))
        return total.hexdigest()
    except _NO_INDEX:
        return hashlib.sha256(data).hexdigest()


def _parse_entries(data: bytes, *, require_whole: bool = False) -> Iterator[tuple[bytes, bytes, bytes]]:
    """Of each entry what comes before its name, the flags of later versions, and its name. ValueError, or an error of
    bytes that are not there, for what is no index; with `require_whole` also for one that is only a part."""
    mark, version, number = _HEADER.unpack_from(data)
    if mark != b"DIRC" or version not in (2, 3, 4):
        raise ValueError("no index")
    at, name = _HEADER.size, b""
    for _ in range(number):
        (fixed,) = struct.unpack_from(f"{_FIXED}s", data, at)
        start = at + _FIXED
        extended = version > 2 and int.from_bytes(fixed[60:], "big") & _EXTENDED
        more = data[start : start + 2] if extended else b""
        start += len(more)
        if version == 4:  # each name goes on from the one before it
            dropped_length, start = _parse_number(data, start)
            if dropped_length > len(name):
                raise ValueError("a name that is shorter than nothing")
            end = data.index(b"\0", start)
            name, at = name[: len(name) - dropped_length] + data[start:end], end + 1
        else:
            end = data.index(b"\0", start)
            name, at = data[start:end], at + (end - at) // 8 * 8 + 8
        yield fixed, more, name
    end = len(data) - 20
    while require_whole and at + 8 <= end:
        kind, size = struct.unpack_from(">4sI", data, at)
        if kind == b"link":
            raise ValueError("a shared index")
        at += 8 + size
    if require_whole and at != end:  # it may be kept for another kind of hash
        raise ValueError("something else behind the entries")


def _parse_number(data: bytes, at: int) -> tuple[int, int]:
    """A number of variable length, as in packs with an offset; and where it ends."""
    value = data[at] & 0x7F
    while data[at] & 0x80:
        at += 1
        value = ((value + 1) << 7) | (data[at] & 0x7F)
    return value, at + 1


UNIT = ".git"
INDEX = ".git/index"
NONE = "none"
_UNCHECKED = frozenset({"objects", "index.lock"})
_MAX_INDEX = 256 << 20


def compute_git_fingerprint(root: Root) -> str:
    """A hash of all that lies under the root's `.git`, but for objects; `none` if there is no such folder."""
    try:
        with root.locate_name(UNIT) as place:
            fd = os.open(place.name, LIST, dir_fd=place.fd)
    except (ToolError, OSError):
        return NONE
    total = hashlib.sha256()
    with hold_fd(fd):
        for line in _iterate_fingerprint_lines(fd, "", _UNCHECKED):
            total.update(line)
    return total.hexdigest()


def _iterate_fingerprint_lines(folder: int, above: str, left_out: frozenset[str] = frozenset()) -> Iterator[bytes]:
    for name in sorted(set(os.listdir(folder)) - left_out):
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
            try:
                inner = os.open(name, LIST, dir_fd=folder)
            except OSError:
                continue
            with hold_fd(inner):
                yield from _iterate_fingerprint_lines(inner, f"{path}/")


def _digest_entry(folder: int, name: str, status: os.stat_result) -> str:
    if not st.S_ISREG(status.st_mode):
        return os.readlink(name, dir_fd=folder) if st.S_ISLNK(status.st_mode) else ""
    with open(os.open(name, READ, dir_fd=folder), "rb") as file:
        if name == "index" and status.st_size <= _MAX_INDEX:
            return read_index_digest(file.read())
        return hashlib.file_digest(file, "sha256").hexdigest()


def mark_tracked(root: Root, files: Sequence[FileChange]) -> tuple[FileChange, ...]:
    """The changes, with those marked that git tracks by the project's index as it is. The index is read only if there
    are changes in caches or ignored ones."""
    aside = (file for file in files if file.ignored or get_cache(file))
    doubtful = {file.path for file in aside if not is_folder(file) and not is_in_git(file.path)}
    tracked = _find_tracked_paths(root) if doubtful else frozenset()
    marked = {path for path in doubtful if os.fsencode(decode_path(path)) in tracked}
    return tuple(replace(file, ignored=False, tracked=True) if file.path in marked else file for file in files)


def _find_tracked_paths(root: Root) -> frozenset[bytes]:
    """Relative to the root. A root inside of a repository has the index of that one."""
    if root.ground is not None:  # a world: its index may be its own
        with suppress(ToolError):
            return parse_tracked_paths(root.read_bytes(INDEX, _MAX_INDEX))
        return frozenset()
    top = os.path.realpath(root.path)
    folder = top
    while not os.path.lexists(f"{folder}/.git"):
        if folder == os.path.dirname(folder):
            return frozenset()
        folder = os.path.dirname(folder)
    repository, names = find_repository(folder), frozenset[bytes]()
    if repository is None:
        return names
    with suppress(OSError):
        for name in os.listdir(repository.folder):
            if name == "index" or name.startswith("sharedindex."):
                path = f"{repository.folder}/{name}"
                stat = os.stat(path, follow_symlinks=False)
                names |= _read_tracked_paths(path, stat.st_ino, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_size)
    if folder == top:
        return names
    prefix = os.fsencode(os.path.relpath(top, folder)) + b"/"
    return frozenset(name[len(prefix) :] for name in names if name.startswith(prefix))


@lru_cache(maxsize=4)
def _read_tracked_paths(path: str, _inode: int, _mtime_ns: int, _ctime_ns: int, size: int) -> frozenset[bytes]:
    with suppress(OSError), open(path, "rb") as file:
        return parse_tracked_paths(file.read()) if size <= _MAX_INDEX else frozenset()
    return frozenset()
