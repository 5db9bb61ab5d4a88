"""Race-free paths: from the words of a path to a directory that is held open and a name in it (S-01). Opens nothing but
directories; other modules work on the name.

Why not realpath-then-open: between the check and the open a directory can be swapped for a link. Two ways are safe.
openat2 lets the kernel walk and refuses every path that leaves the root, at any moment; one call for any depth. Where
it is missing, and where it cannot answer (it refuses absolute links even when they stay inside), we walk: each step
opens one name with O_NOFOLLOW below a directory that is already held, links are read and spliced in by hand, and `..`
goes back to the descriptor that was held before. A link that stays inside the root is followed; one that leaves it is
refused. The user of a place works on its name with O_NOFOLLOW relative to its descriptor, and so stays inside.

The root itself: a path is only a name, and a program that can write to the folder above can put a link or another
folder in its place. So a chat is bound to the folder, by its volume and inode, and every use of the root opens it and
looks. The volume is the id of the file system, which survives a reboot and a new mount; where a file system has none,
it is the number of the device."""

import errno
import os
import stat as st
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache

import msgspec

from treadle.adapters.workspace.paths.entries import (
    HOLD,
    explain,
    hold_fd,
    lstat,
    make_missing_error,
    make_outside_error,
)
from treadle.base.file_system import find_path_below
from treadle.errors import OutsideRoot, RootChanged, ToolError
from treadle.ports.workspace import WorldFiles, escape_name

_NUMBER = 437  # The same on every architecture that Python runs on
_RESOLVE_NO_MAGICLINKS = 0x02
_RESOLVE_BENEATH = 0x08

Open = Callable[[int, str, int], int]


@cache
def open_beneath() -> Open | None:
    """`open(directory, path, flags)`, a descriptor; OSError if the path leaves the directory, by `..`, by a link or by
    an absolute path, at any moment of the walk. None where the kernel or a filter of its calls lacks it: tried once."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    try:
        call = _make_open_call()
        here = os.open("/", flags)
    except (ImportError, AttributeError, OSError):
        return None
    with hold_fd(here):
        try:
            for path in (".", "/"):
                os.close(call(here, path, flags))
        except OSError as error:
            return call if error.errno == errno.EXDEV else None
    return None  # it opened what it must refuse


def _make_open_call() -> Open:
    import ctypes  # here, because it is only needed when files are

    class OpenHow(ctypes.Structure):
        _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))

    syscall = ctypes.CDLL(None, use_errno=True).syscall
    syscall.restype = ctypes.c_long
    syscall.argtypes = (ctypes.c_long, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t)

    def call(directory: int, path: str, flags: int) -> int:
        open_how = OpenHow(flags, 0, _RESOLVE_BENEATH | _RESOLVE_NO_MAGICLINKS)
        fd = int(syscall(_NUMBER, directory, os.fsencode(path), ctypes.byref(open_how), ctypes.sizeof(open_how)))
        if fd < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), path)
        return fd

    return call


_MAX_LINKS = 40
_DIRECTORY = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC


class HeldPath(msgspec.Struct, frozen=True):
    """Where a path leads: a held directory, and the name in it (empty: the directory itself)."""

    fd: int
    name: str
    parts: tuple[str, ...]  # The components from the root; links are resolved if that was asked for
    stat_result: os.stat_result | None


class Resolver:
    """Turns paths into places. Holds no descriptor between calls."""

    def __init__(
        self, given_path: str, real: str, root_id: str = "", ground: WorldFiles | None = None, *, openat2: bool = True
    ) -> None:
        self._names = tuple(dict.fromkeys(filter(None, (real, given_path, ground.folder if ground else ""))))
        self._real = real
        self._top = BoundFolder(real, root_id, given_path, ground)
        self._beneath = open_beneath() if openat2 else None

    def open_top(self) -> int:
        """The root itself, open for looking names up in it; the caller closes it."""
        try:
            return self._top.open(HOLD)
        except OSError as error:
            raise explain(error, self._real) from error

    def normalize_path(self, path: str) -> str:
        """Normalize a path by its words alone (`a/../b` is `b`); links are looked at when the path is used."""
        parts: list[str] = []
        for part in self._split_path(path):
            if part == ".." and not parts:
                raise make_outside_error(path)
            parts = parts[:-1] if part == ".." else [*parts, part]
        return "/".join(parts) or "."

    @contextmanager
    def hold_path(self, path: str, *, follow: bool = True, exact: bool = False) -> Iterator[HeldPath]:
        """The place of a path, held until the end of the block. Without `follow` the last name is taken as it is, be
        it a link or a directory. `exact`: the place's parts must be free of links. An OSError in the block becomes a
        ToolError about the path."""
        descriptors: list[int] = []
        try:
            descriptors.append(self._top.open(HOLD))
            parts = self._split_path(path)
            place = None if exact else self._ask(parts, descriptors, follow)
            yield place or self._walk(path, parts, descriptors, follow=follow)
        except OSError as error:
            raise explain(error, path) from error
        finally:
            _release(descriptors, 0)

    def _split_path(self, path: str) -> list[str]:
        """The components below the root; `.` and empty ones are dropped, `..` is kept."""
        if "\0" in path:
            raise ToolError("A path cannot contain a NUL character.")
        if os.path.isabs(path):
            path = self._strip_root(path)
        return [part for part in path.split("/") if part not in ("", ".")]

    def _strip_root(self, path: str) -> str:
        path = "/" + path.lstrip("/")
        below = next((below for root in self._names if (below := find_path_below(path, root)) is not None), None)
        if below is None:
            raise make_outside_error(path)
        return below

    def _ask(self, parts: list[str], descriptors: list[int], follow: bool) -> HeldPath | None:
        """The kernel's answer; None where it has none, and the walk finds out why."""
        if self._beneath is None or not parts or parts[-1] == "..":
            return None
        *above, name = parts
        if above:
            try:
                descriptors.append(self._beneath(descriptors[0], "/".join(above), _DIRECTORY))
            except OSError:
                return None
        status = lstat(descriptors[-1], name)
        if status is None:
            return HeldPath(descriptors[-1], name, tuple(parts), None)
        if follow and st.S_ISLNK(status.st_mode):
            _release(descriptors, 1)
            return None
        return self._hold_last(descriptors, tuple(above), name, status, follow)

    def _hold_last(
        self, descriptors: list[int], above: tuple[str, ...], name: str, status: os.stat_result, follow: bool
    ) -> HeldPath:
        if not follow or not st.S_ISDIR(status.st_mode):
            return HeldPath(descriptors[-1], name, (*above, name), status)
        descriptors.append(os.open(name, HOLD, dir_fd=descriptors[-1]))
        return HeldPath(descriptors[-1], "", (*above, name), os.fstat(descriptors[-1]))

    def _walk(self, path: str, parts: list[str], descriptors: list[int], *, follow: bool) -> HeldPath:
        """Hold one descriptor per directory on the way; `held[0]` is the root's."""
        todo = parts[::-1]
        at: list[str] = []
        links = 0
        while todo:
            part = todo.pop()
            if part == "..":
                if not at:
                    raise make_outside_error(path)
                at.pop()
                os.close(descriptors.pop())
                continue
            status = lstat(descriptors[-1], part)
            if status is None:
                if todo:
                    raise make_missing_error(path)
                return HeldPath(descriptors[-1], part, (*at, part), None)
            if st.S_ISLNK(status.st_mode) and (todo or follow):
                links += 1
                if links > _MAX_LINKS:
                    raise ToolError(f"{escape_name(path)} goes through too many symbolic links.")
                target = os.readlink(part, dir_fd=descriptors[-1])
                if os.path.isabs(target):
                    try:
                        target = self._strip_root(target)
                    except OutsideRoot:
                        leads = f"{escape_name(path)} is a symbolic link that leads outside the project root."
                        raise OutsideRoot(leads) from None
                    at.clear()
                    _release(descriptors, 1)
                todo.extend(self._split_path(target)[::-1])
            elif todo:
                descriptors.append(os.open(part, HOLD, dir_fd=descriptors[-1]))
                at.append(part)
            else:
                return self._hold_last(descriptors, tuple(at), part, status, follow)
        return HeldPath(descriptors[-1], "", tuple(at), os.fstat(descriptors[-1]))


def _release(descriptors: list[int], keep: int) -> None:
    while len(descriptors) > keep:
        os.close(descriptors.pop())


def identify(path: str) -> str:
    """Which folder a path leads to; empty if it leads to none."""
    return (locate(path) or ("", ""))[1]


def locate(path: str) -> tuple[str, str] | None:
    """The path of the folder without links, and its identity: both of the same folder, even if the path is changed
    meanwhile. None if the path leads to no folder."""
    try:
        fd = os.open(path, _DIRECTORY)
    except (OSError, ValueError):
        return None
    with hold_fd(fd):
        try:
            place = os.readlink(f"/proc/self/fd/{fd}")
        except OSError:  # no /proc: by the words, if they still lead to the same folder
            real = os.path.realpath(path)
            place = real if os.path.samestat(os.stat(real), os.fstat(fd)) else path
        return place, read_identity(fd)


def read_identity(fd: int) -> str:
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
                raise make_root_changed_error(self._given) from error
            raise
        if self._identity and not self._is_bound_folder(fd):
            os.close(fd)
            raise make_root_changed_error(self._given)
        return fd

    def _is_bound_folder(self, fd: int) -> bool:
        status = os.fstat(fd)
        if (status.st_dev, status.st_ino) != self._seen and read_identity(fd) != self._identity:
            return False
        self._seen = (status.st_dev, status.st_ino)
        return True


def make_root_changed_error(root: str) -> RootChanged:
    return RootChanged(
        f"The project root {escape_name(root)} is not the folder that this chat was bound to: another one, or a link, "
        "stands in its place. Nothing in it was touched. If it is the right one, "
        "bind the chat to it by naming its root again."
    )
