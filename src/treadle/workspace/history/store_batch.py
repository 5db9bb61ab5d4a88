"""Things that are kept together in a content store: written under passing names, then made durable, and only then known
by their hashes."""

import hashlib
import os
import secrets
import threading
import time
from contextlib import suppress

from treadle.faultpoint import faultpoint
from treadle.workspace.history.packs import FEWEST, FULL, OVERHEAD, SMALL, write_pack
from treadle.workspace.paths.durable import CHUNK, Syncing, copy, digest_of, unlink_all, write_at
from treadle.workspace.paths.entries import held

_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_FRESH_S = 3600.0
"""What was marked as used so lately is not marked again."""


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
        """What waits for a pack."""
        self._room = FULL
        self._lock = threading.Lock()
        self._temps: list[str] = []
        self._named = self._finished = False

    def put(self, data: bytes) -> str:
        digest = hashlib.sha256(data).hexdigest()
        if not self.known(digest):
            self.add(digest, data)
        return digest

    def add(self, digest: str, data: bytes) -> None:
        """Bytes of which is known that they are not kept."""
        if len(data) > SMALL:
            self._write(digest, data)
        else:
            self._pack(digest, data)

    def put_file(self, fd: int) -> str:
        """The bytes of a regular file, from its beginning; its hash is that of what was kept, whoever writes to the
        file meanwhile."""
        size = os.fstat(fd).st_size
        if size <= CHUNK:
            data = os.pread(fd, size + 1, 0)
            if len(data) <= size:
                return self.put(data)
        digest = digest_of(fd)
        if self.known(digest):
            return digest
        temp, goal = self._new()
        with held(goal):
            copy(fd, goal)
            digest = digest_of(goal)
            if not self.known(digest):
                self._written(temp, digest)
        return digest

    def give_names(self) -> None:
        """Make all bytes durable, and only then known by their hashes."""
        with self._lock:
            self._close_pack()
        self._sync.data()
        self._strike("snapshot.written")
        for digest, temp in self._made.items():
            self._name(temp, digest)
        named = set(self._made.values()) - self._packs
        self._temps = [temp for temp in self._temps if temp not in named]
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
        """What has its name is safe already, if it lies on this file system: that was synced as a whole."""
        self._sync.lasts(device)

    def clear(self) -> None:
        """Remove what did not get its name."""
        unlink_all(self._temps)

    def known(self, digest: str) -> bool:
        """Whether it is there already; then it is marked as used. Another process may have given it its name a moment
        ago: its folder is synced with ours."""
        if digest in self._made or digest in self._small:
            return True
        path = place_of(self._objects, digest)
        try:
            used = os.lstat(path).st_mtime
        except FileNotFoundError:
            return False
        self._sync.folder(_shard(self._objects, digest))
        if time.time() - used > _FRESH_S:
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
        with held(fd):
            write_pack(fd, small)
        self._sync.file(temp)
        self._packs.add(temp)
        self._made.update(dict.fromkeys(small, temp))

    def _link(self, pack: str, path: str) -> None:
        with suppress(FileExistsError):  # somebody else keeps it, too
            os.link(pack, path)

    def _write(self, digest: str, data: bytes) -> None:
        temp, fd = self._new()
        with held(fd):
            write_at(fd, data, 0)
            self._written(temp, digest)

    def _new(self) -> tuple[str, int]:
        temp = os.path.join(self._incoming, secrets.token_hex(16))
        self._temps.append(temp)
        return temp, os.open(temp, _NEW, 0o600)

    def _written(self, temp: str, digest: str) -> None:
        self._made[digest] = temp
        self._sync.file(temp)

    def _strike(self, name: str) -> None:
        if self._durable:
            faultpoint(name)


def place_of(objects: str, digest: str) -> str:
    return f"{objects}/{digest[:2]}/{digest}"


def _shard(objects: str, digest: str) -> str:
    return f"{objects}/{digest[:2]}"
