"""The files of a project, by a guard that lets nothing lead outside (S-01): every operation resolves its path to a held
directory and a name (`resolve`), and touches only that name, links not followed. Knows nothing of tools.

Special files are never opened: a FIFO would hang, a device might act. A file with several names (hard links) may be
read; a write gives this name new bytes and leaves the others, wherever they lie, with the old ones."""

import os
import stat as st
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from msgspec.structs import replace

from treadle.adapters.workspace.paths import entries
from treadle.adapters.workspace.paths.durable import compute_digest, read_new_mode
from treadle.adapters.workspace.paths.entries import LIST, READ, Missing, hold_fd, make_missing_error, require_file
from treadle.adapters.workspace.paths.resolve import HeldPath, Resolver
from treadle.errors import ToolError
from treadle.ports.sandbox import WorldMount
from treadle.ports.workspace import (
    MOST_FOUND,
    Child,
    FileStat,
    Location,
    Matches,
    Paths,
    Query,
    WorldFiles,
    escape_name,
)

if TYPE_CHECKING:
    from treadle.adapters.workspace.search.search import Engine

_CHUNK = 1 << 20


class Root:
    """The project at `path`. With `root_id` it is that folder alone: RootChanged if the path leads to another one at
    any later moment (S-01). With a `ground` its files are those of a world, with the same paths (W-11). Holds no
    descriptor between calls, so it needs no closing. `openat2=False` uses the walk for kernels without openat2."""

    def __init__(self, path: str, root_id: str = "", ground: WorldFiles | None = None, *, openat2: bool = True) -> None:
        if not path:  # not the working directory of whichever process happens to ask (S-02)
            raise ToolError("This chat has no project root, so there are no files to work on.")
        self.path = os.path.realpath(path)
        if not os.path.isdir(self.path):
            raise ToolError(f"The project root {escape_name(path)} is not a directory.")
        self.bound, self.ground = root_id, ground or None
        self.key = self.path if not ground else f"{self.path}@{ground.name}"  # in stores that hold several roots
        self._paths = Resolver(os.path.abspath(path), self.path, root_id, self.ground, openat2=openat2)
        if root_id:
            os.close(self.open_top())

    @property
    def world(self) -> WorldMount | None:
        return None if self.ground is None else self.ground.mount()

    def to_relative(self, path: str) -> str:
        return self._paths.normalize_path(path)

    def stat(self, path: str) -> FileStat | None:
        with suppress(Missing), self._paths.hold_path(path) as place:
            return entries.make_file_stat(place.stat_result)
        return None

    def inspect(self, path: str) -> FileStat | None:
        with suppress(Missing), self._paths.hold_path(path, follow=False) as place:
            return entries.make_file_stat(place.stat_result)
        return None

    def resolve_directory(self, path: str) -> str:
        with self._paths.hold_path(path, exact=True) as place:
            _require_directory(place, path)
            return os.path.join(self.path, *place.parts)

    def locate(self, path: str, *, write: bool = False) -> Location:
        parts = self.to_relative(path).split("/")
        for length in range(len(parts), -1, -1):
            with suppress(Missing), self._paths.hold_path("/".join(parts[:length]), exact=True) as place:
                real = (*place.parts, *parts[length:])
                there = len(place.parts) - (place.stat_result is None)
                location = Location("/".join(real), tuple("/".join(real[:end]) for end in range(there + 1, len(real))))
                if not write:
                    return location
                if place.stat_result is None or length < len(parts):
                    mode = read_new_mode(place.fd)
                    # Users who may read a new file may list a new folder.
                    folder_mode = mode | (mode & 0o444) >> 2 | (os.fstat(place.fd).st_mode & st.S_ISGID)
                    return replace(location, mode=mode, folder_mode=folder_mode)
                require_file(place.stat_result, path)
                # By the rights that a write would have: those of the effective user, not of the one who logged in.
                effective = os.access in os.supports_effective_ids
                if not os.access(place.name, os.W_OK, dir_fd=place.fd, effective_ids=effective):
                    raise ToolError(f"{escape_name(path)} is read-only: its permissions do not allow writing.")
                return replace(location, mode=st.S_IMODE(place.stat_result.st_mode))
        raise make_missing_error(path)

    def listdir(self, path: str) -> list[Child]:
        with self.hold(path) as (fd, _), os.scandir(fd) as children:
            return [entries.make_child(each, fd) for each in children]

    def read_bytes(self, path: str, limit: int = 0) -> bytes:
        with self.open(path) as fd:
            size = os.fstat(fd).st_size
            if limit and size > limit:
                raise ToolError(f"{escape_name(path)} has {size:,} bytes; at most {limit:,} can be read at once.")
            with open(fd, "rb", closefd=False) as file:
                data = file.read(limit + 1) if limit else file.read()
            if limit and len(data) > limit:
                raise ToolError(f"{escape_name(path)} grew past {limit:,} bytes while it was read.")
            return data

    def read_chunks(self, path: str) -> Iterator[bytes]:
        with self.open(path) as fd:
            while chunk := os.read(fd, _CHUNK):
                yield chunk

    def hash_file(self, path: str) -> str | None:
        with suppress(Missing), self.open(path) as fd:
            return compute_digest(fd)
        return None

    def find(
        self, pattern: str, path: str = ".", *, ignore_case: bool = False, stop: threading.Event | None = None
    ) -> Paths:
        return self._make_engine().find(pattern, path, ignore_case=ignore_case, most=MOST_FOUND, stop=stop)

    def search(self, query: Query, stop: threading.Event | None = None) -> Matches:
        return self._make_engine().search(query, stop)

    def _make_engine(self) -> "Engine":
        # Imported here because most runs of a command look for nothing.
        from treadle.adapters.workspace.search.search import Engine, find_ripgrep

        return Engine(self, find_ripgrep(self.path))

    def open_top(self) -> int:
        """The root itself, open for looking names up in it; the caller closes it."""
        return self._paths.open_top()

    @contextmanager
    def open(self, path: str) -> Iterator[int]:
        """A regular file, open for reading. Nothing else is opened: a FIFO would hang, a device might act."""
        with self._paths.hold_path(path) as place:
            require_file(_require_existing(place, path), path)
            with hold_fd(os.open(place.name, READ, dir_fd=place.fd)) as fd:
                require_file(os.fstat(fd), path)
                yield fd

    @contextmanager
    def hold(self, path: str, *, exact: bool = False) -> Iterator[tuple[int, tuple[str, ...]]]:
        """A directory, open for listing, and its components from the root: links resolved if `exact`."""
        with self._paths.hold_path(path, exact=exact) as place:
            _require_directory(place, path)
            with hold_fd(os.open(".", LIST, dir_fd=place.fd)) as fd:
                yield fd, place.parts

    @contextmanager
    def locate_name(self, path: str) -> Iterator[HeldPath]:
        """The place of a name itself, which cannot be the root's own."""
        with self._paths.hold_path(path, follow=False) as place:
            if not place.name:
                raise ToolError(
                    f"{escape_name(path)} is the project root or a way up; name a file or directory below it."
                )
            yield place


def make_plain_root(root: str, root_id: str = "", world: str = "") -> Root:
    """`WorkspaceOf` for callers without worlds."""
    if world:
        raise ToolError("There are no worlds here.")
    return Root(root, root_id)


def _require_existing(place: HeldPath, path: str) -> os.stat_result:
    if place.stat_result is None:
        raise make_missing_error(path)
    return place.stat_result


def _require_directory(place: HeldPath, path: str) -> None:
    if not st.S_ISDIR(_require_existing(place, path).st_mode):
        raise ToolError(f"{escape_name(path)} is not a directory.")
