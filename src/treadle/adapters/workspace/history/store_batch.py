"""Things that are kept together in a content store: written under passing names, then made durable, and only then known
by their hashes."""

import hashlib
import os
import secrets
import threading
import time
from contextlib import suppress

from treadle.adapters.workspace.history.packs import FEWEST, FULL, OVERHEAD, SMALL, write_pack
from treadle.adapters.workspace.paths.durable import CHUNK, Syncing, copy, digest_of, unlink_all, write_at
from treadle.adapters.workspace.paths.entries import closing_fd
from treadle.base.faultpoint import faultpoint

_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_FRESH_S = 3600.0
"""Seconds for which an object that was marked as used is not marked again."""


class StoreBatch:
    """`put` and `put_file` may be called from several threads."""

    def __init__(self, objects: str, incoming: str, *, durable: bool = True) -> None:
        self._objects = objects
        self._incoming = incoming
        self._durable = durable
        self._sync = Syncing(objects, durable=durable)
        self._made: dict[str, str] = {}
        """By hash, where it lies until it has its name."""
        self._packs: set[str] = set()
        self._small: dict[str, bytes] = {}
        """Objects that wait for a pack."""
        self._room = FULL
        self._lock = threading.Lock()
        self._temps: list[str] = []
        self._named = self._finished = False

    def put(self, data: bytes) -> str:
        digest = hashlib.sha256(data).hexdigest()
        if not self.has_content(digest):
            self.add(digest, data)
        return digest

    def add(self, digest: str, data: bytes) -> None:
        """Bytes of which is known that they are not kept."""
        if len(data) > SMALL:
            self._write(digest, data)
        else:
            self._pack(digest, data)

    def put_file(self, fd: int) -> str:
        """Store the bytes of a regular file, from its beginning. The hash is that of the stored bytes, even if another
        program writes to the file meanwhile."""
        size = os.fstat(fd).st_size
        if size <= CHUNK:
            data = os.pread(fd, size + 1, 0)
            if len(data) <= size:
                return self.put(data)
        digest = digest_of(fd)
        if self.has_content(digest):
            return digest
        temp, goal = self._new()
        with closing_fd(goal):
            copy(fd, goal)
            digest = digest_of(goal)
            if not self.has_content(digest):
                self._note_temp_file(temp, digest)
        return digest

    def give_names(self) -> None:
        """Make all bytes durable, and only then known by their hashes."""
        with self._lock:
            self._close_pack()
        self._sync.data()
        self._strike("snapshot.written")
        for digest, temp in self._made.items():
            self._name(temp, digest)
        named_files = set(self._made.values()) - self._packs
        self._temps = [temp for temp in self._temps if temp not in named_files]
        self._made.clear()
        self._named = True
        self._strike("snapshot.named")

    def finish(self) -> None:
        """Make the names durable, too."""
        if self._finished:
            return
        if not self._named:
            self.give_names()
        self._sync.names()
        self._finished = True
        self._strike("snapshot.kept")

    def lasts(self, device: int | None) -> None:
        """Note that named objects on this file system are safe already: it was synced as a whole."""
        self._sync.lasts(device)

    def clear(self) -> None:
        """Remove what did not get its name."""
        unlink_all(self._temps)

    def has_content(self, digest: str) -> bool:
        """True if the object is there already; then it is marked as used. Another process may have named it a moment
        ago: its folder is synced with ours."""
        if digest in self._made or digest in self._small:
            return True
        path = place_of(self._objects, digest)
        try:
            last_used_s = os.lstat(path).st_mtime
        except FileNotFoundError:
            return False
        self._sync.folder(_shard(self._objects, digest))
        if time.time() - last_used_s > _FRESH_S:
            os.utime(path)
        return True

    # -- files ----------------------------------------------------------------------------------------------------

    def _name(self, temp: str, digest: str) -> None:
        path = place_of(self._objects, digest)
        shard = _shard(self._objects, digest)
        name = self._link if temp in self._packs else os.rename
        try:
            name(temp, path)
        except FileNotFoundError:  # the first one there
            os.makedirs(shard, 0o700, exist_ok=True)
            self._sync.folder(self._objects)
            name(temp, path)
        self._sync.folder(shard)

    def _pack(self, digest: str, data: bytes) -> None:
        with self._lock:
            self._small[digest] = data
            self._room -= len(data) + OVERHEAD
            if self._room < 0:
                self._close_pack()

    def _close_pack(self) -> None:
        small, self._small, self._room = self._small, {}, FULL
        if len(small) < FEWEST:
            for digest, data in small.items():
                self._write(digest, data)
            return
        temp, fd = self._new()
        with closing_fd(fd):
            write_pack(fd, small)
        self._sync.file(temp)
        self._packs.add(temp)
        self._made.update(dict.fromkeys(small, temp))

    def _link(self, pack: str, path: str) -> None:
        with suppress(FileExistsError):  # another process has stored it, too
            os.link(pack, path)

    def _write(self, digest: str, data: bytes) -> None:
        temp, fd = self._new()
        with closing_fd(fd):
            write_at(fd, data, 0)
            self._note_temp_file(temp, digest)

    def _new(self) -> tuple[str, int]:
        temp = os.path.join(self._incoming, secrets.token_hex(16))
        self._temps.append(temp)
        return temp, os.open(temp, _NEW, 0o600)

    def _note_temp_file(self, temp: str, digest: str) -> None:
        self._made[digest] = temp
        self._sync.file(temp)

    def _strike(self, name: str) -> None:
        if self._durable:
            faultpoint(name)


def place_of(objects: str, digest: str) -> str:
    return f"{objects}/{digest[:2]}/{digest}"


def _shard(objects: str, digest: str) -> str:
    return f"{objects}/{digest[:2]}"
