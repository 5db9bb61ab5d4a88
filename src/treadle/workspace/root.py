"""Race-free paths: every file operation of a project starts from a descriptor of its root and walks one component
at a time, never letting the kernel follow a link (S-01). Knows nothing of tools or chats.

Why a walk and not realpath-then-open: between the check and the open a directory can be swapped for a link. Here
each step opens one name with O_NOFOLLOW below a directory that is already held, links are read and spliced in by
hand, and `..` goes back to the descriptor that was held before; so nothing outside is ever reached, whatever
others do meanwhile. A link that stays inside the root is followed; one that leaves it is refused.
"""

import errno
import hashlib
import os
import stat as st
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import msgspec

from treadle.errors import OutsideRoot, ToolError
from treadle.ports.workspace import Child, FileKind, FileStat, inert
from treadle.workspace.atomic import replace_file, temp_name

_MAX_LINKS = 40
_CHUNK = 1 << 20
_STEP = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class _Place(msgspec.Struct, frozen=True):
    """Where a walk ended: a held directory, and the name in it (empty: the directory itself)."""

    fd: int
    name: str
    parts: tuple[str, ...]
    """The components from the root, links resolved."""
    found: os.stat_result | None


class Root:
    """The project at `path`. Holds no descriptor between calls, so it needs no closing."""

    def __init__(self, path: str) -> None:
        if not path:  # not the working directory of whichever process happens to ask (S-02)
            raise ToolError("This chat has no project root, so there are no files to work on.")
        self._given = os.path.abspath(path)
        self.path = os.path.realpath(path)
        if not os.path.isdir(self.path):
            raise ToolError(f"The project root {inert(path)} is not a directory.")

    # -- what is where ------------------------------------------------------------------------------------------

    def relative(self, path: str) -> str:
        """By its words alone: `a/../b` is `b`. Whether it leads outside through a link shows when it is used."""
        parts: list[str] = []
        for part in self._parts(path):
            if part != "..":
                parts.append(part)
            elif not parts:
                raise _outside(path)
            else:
                parts.pop()
        return "/".join(parts) or "."

    def stat(self, path: str) -> FileStat | None:
        try:
            with self._at(path) as place:
                found = place.found
        except _Missing:
            return None
        return None if found is None else FileStat(_kind(found.st_mode), found.st_size, st.S_IMODE(found.st_mode))

    def directory(self, path: str) -> str:
        with self._at(path) as place:
            _require_directory(place, path)
            return os.path.join(self.path, *place.parts)

    def listdir(self, path: str) -> list[Child]:
        with self._at(path) as place:
            _require_directory(place, path)
            fd = os.open(place.name or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=place.fd)
            try:
                with os.scandir(fd) as entries:
                    return [_child(entry, fd) for entry in entries]
            finally:
                os.close(fd)

    # -- reading ------------------------------------------------------------------------------------------------

    def read_bytes(self, path: str, limit: int = 0) -> bytes:
        with self._open(path) as fd:
            size = os.fstat(fd).st_size
            if limit and size > limit:
                raise ToolError(f"{inert(path)} has {size:,} bytes; at most {limit:,} can be read at once.")
            with open(fd, "rb", closefd=False) as file:
                data = file.read(limit + 1) if limit else file.read()
            if limit and len(data) > limit:
                raise ToolError(f"{inert(path)} grew past {limit:,} bytes while it was read.")
            return data

    def digest(self, path: str) -> str | None:
        try:
            with self._open(path) as fd:
                total = hashlib.sha256()
                while chunk := os.read(fd, _CHUNK):
                    total.update(chunk)
                return total.hexdigest()
        except _Missing:
            return None

    # -- writing ------------------------------------------------------------------------------------------------

    def write_atomic(self, path: str, data: bytes, mode: int | None = None, *, token: str = "") -> None:
        with self._at(path, make_parents=True) as place:
            _require_writable(place, path)
            directory = os.open(".", os.O_RDONLY | os.O_DIRECTORY, dir_fd=place.fd)
            try:
                temp = temp_name(place.name, token)
                replace_file(directory, place.name, data, old=place.found, mode=mode, temp=temp)
            finally:
                os.close(directory)

    def sweep(self, path: str, token: str) -> None:
        with suppress(ToolError), self._at(path) as place, suppress(OSError):
            os.unlink(temp_name(place.name, token), dir_fd=place.fd)

    # -- the walk -----------------------------------------------------------------------------------------------

    def _parts(self, path: str) -> list[str]:
        """The components below the root; `.` and empty ones are dropped, `..` is kept."""
        if "\0" in path:
            raise ToolError("A path cannot contain a NUL character.")
        if os.path.isabs(path):
            path = self._inside(path)
        return [part for part in path.split("/") if part not in ("", ".")]

    def _inside(self, path: str) -> str:
        """An absolute path, made relative to the root."""
        path = "/" + path.lstrip("/")
        for root in (self.path, self._given):
            if path == root:
                return "."
            if path.startswith(root.rstrip("/") + "/"):
                return path[len(root.rstrip("/")) + 1 :]
        raise _outside(path)

    @contextmanager
    def _at(self, path: str, *, make_parents: bool = False) -> Iterator[_Place]:
        held: list[int] = []
        try:
            held.append(os.open(self.path, _STEP))
            yield self._walk(path, held, make_parents)
        except OSError as error:
            raise _explain(error, path) from error
        finally:
            for fd in held:
                os.close(fd)

    def _walk(self, path: str, held: list[int], make_parents: bool) -> _Place:
        """Hold one descriptor per directory on the way; `held[0]` is the root's."""
        todo = self._parts(path)[::-1]
        at: list[str] = []
        links = 0
        while todo:
            part = todo.pop()
            if part == "..":
                if not at:
                    raise _outside(path)
                at.pop()
                os.close(held.pop())
                continue
            try:
                found = os.stat(part, dir_fd=held[-1], follow_symlinks=False)
            except FileNotFoundError:
                if not todo:
                    return _Place(held[-1], part, (*at, part), None)
                if not make_parents or todo[-1] == "..":
                    raise
                with suppress(FileExistsError):
                    os.mkdir(part, dir_fd=held[-1])
                found = os.stat(part, dir_fd=held[-1], follow_symlinks=False)
            if st.S_ISLNK(found.st_mode):
                links += 1
                if links > _MAX_LINKS:
                    raise ToolError(f"{inert(path)} goes through too many symbolic links.")
                target = os.readlink(part, dir_fd=held[-1])
                if os.path.isabs(target):
                    target = self._through(target, path)
                    while at:
                        at.pop()
                        os.close(held.pop())
                todo.extend(self._parts(target)[::-1])
            elif todo or st.S_ISDIR(found.st_mode):
                held.append(os.open(part, _STEP, dir_fd=held[-1]))
                at.append(part)
            else:
                return _Place(held[-1], part, (*at, part), found)
        return _Place(held[-1], "", tuple(at), os.fstat(held[-1]))

    def _through(self, target: str, path: str) -> str:
        try:
            return self._inside(target)
        except OutsideRoot:
            raise OutsideRoot(f"{inert(path)} is a symbolic link that leads outside the project root.") from None

    @contextmanager
    def _open(self, path: str) -> Iterator[int]:
        """A regular file, open for reading. Nothing else is opened: a FIFO would hang, a device might act."""
        with self._at(path) as place:
            if place.found is None:
                raise _Missing(f"{inert(path)} does not exist.")
            _require_file(place.found, path)
            fd = os.open(place.name, _READ, dir_fd=place.fd)
            try:
                _require_file(os.fstat(fd), path)
                yield fd
            finally:
                os.close(fd)


class _Missing(ToolError):
    """Nothing lies at the path."""


def _kind(mode: int) -> FileKind:
    if st.S_ISREG(mode):
        return "file"
    if st.S_ISDIR(mode):
        return "directory"
    return "link" if st.S_ISLNK(mode) else "other"


def _child(entry: os.DirEntry[str], fd: int) -> Child:
    if entry.is_symlink():
        try:
            return Child(entry.name, "link", os.readlink(entry.name, dir_fd=fd))
        except OSError:  # gone, or no longer a link
            return Child(entry.name, "link")
    if entry.is_dir(follow_symlinks=False):
        return Child(entry.name, "directory")
    return Child(entry.name, "file" if entry.is_file(follow_symlinks=False) else "other")


def _require_directory(place: _Place, path: str) -> None:
    if place.found is None:
        raise _Missing(f"{inert(path)} does not exist.")
    if not st.S_ISDIR(place.found.st_mode):
        raise ToolError(f"{inert(path)} is not a directory.")


def _require_file(found: os.stat_result, path: str) -> None:
    if st.S_ISDIR(found.st_mode):
        raise ToolError(f"{inert(path)} is a directory, not a file.")
    if not st.S_ISREG(found.st_mode):
        raise ToolError(f"{inert(path)} is a FIFO, socket or device, not a regular file; it is not opened.")


def _require_writable(place: _Place, path: str) -> None:
    if not place.name:
        raise ToolError(f"{inert(path)} is a directory, not a file.")
    if place.found is not None:
        _require_file(place.found, path)
        # By the rights that a write would have: those of the effective user, not of the one who logged in.
        if not os.access(place.name, os.W_OK, dir_fd=place.fd, effective_ids=os.access in os.supports_effective_ids):
            raise ToolError(f"{inert(path)} is read-only: its permissions do not allow writing.")


def _outside(path: str) -> OutsideRoot:
    return OutsideRoot(f"{inert(path)} is outside the project root; use a path inside it.")


def _explain(error: OSError, path: str) -> ToolError:
    if isinstance(error, FileNotFoundError):
        return _Missing(f"{inert(path)} does not exist.")
    if error.errno in (errno.ENOTDIR, errno.ELOOP):
        return ToolError(f"{inert(path)}: a part of the path is not a directory.")
    if error.errno == errno.ENAMETOOLONG:
        return ToolError(f"{inert(path)}: the name is too long for the file system.")
    return ToolError(f"{inert(path)}: {os.strerror(error.errno or 0)}.")
