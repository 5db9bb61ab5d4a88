"""The bytes of files by their SHA-256, in a folder outside every project (W-01). An object has its name only when it is
complete; it is verified whenever it is read. Knows nothing of paths in a project.

Two stores share the folder. `objects` holds the content of files before they were changed; it is durable, because an
undo relies on it. `left` holds the small texts that changes left: the base for a merge of later edits by others with an
undo, and one side of the diff that shows those edits. It is a cache: nothing is lost without it.

A process that finds an object there relies on it from then on. So a batch holds a lock that excludes a sweep, and marks
the objects that it found as used: a sweep does not remove recently used objects."""

import fcntl
import hashlib
import os
import secrets
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from treadle.adapters.workspace.paths import durable
from treadle.adapters.workspace.paths.durable import Syncing, compute_digest, write_at
from treadle.adapters.workspace.paths.entries import READ, hold_fd
from treadle.base.file_system import reach_faultpoint
from treadle.errors import NotFound, ToolError

SMALL = 1 << 15  # Objects up to so many bytes are packed, …
FULL = 1 << 20  # … until the pack has so many. It stays as long as one of its names.
OVERHEAD = 256  # The bytes that each object counts beside its own: a file can have only so many names
FEWEST = 4
_SIGN = b"TREADLE PACK 1\n"
_HEAD = len(_SIGN) + 8
_LARGEST_INDEX = 1 << 24

_MOST_KNOWN = 4
Places = dict[str, tuple[int, int]]  # By hash, where an object begins behind the index, and how long it is
_index = msgspec.msgpack.Decoder(Places)
_index_cache: dict[tuple[int, ...], Places] = {}
"""The indexes that were read last: a caller that needs one object often needs its neighbours."""


def write_pack(fd: int, objects: Mapping[str, bytes]) -> None:
    places, offset = Places(), 0
    for digest, data in objects.items():
        places[digest] = (offset, len(data))
        offset += len(data)
    index = msgspec.msgpack.encode(places)
    write_at(fd, b"".join((_SIGN, len(index).to_bytes(8, "big"), index, *objects.values())), 0)


def read_from_pack(fd: int, digest: str) -> bytes | None:
    """The object with this hash, verified; None if the file is no pack with it."""
    head = os.pread(fd, _HEAD, 0)
    size = int.from_bytes(head[len(_SIGN) :], "big")
    if not head.startswith(_SIGN) or size > _LARGEST_INDEX:
        return None
    status = os.fstat(fd)
    key = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, size)
    places = _index_cache.get(key)
    if places is None:
        try:
            places = _index.decode(os.pread(fd, size, _HEAD))
        except msgspec.DecodeError:
            return None
        if len(_index_cache) >= _MOST_KNOWN:
            _index_cache.clear()
        _index_cache[key] = places
    if (place := places.get(digest)) is None:
        return None
    data = os.pread(fd, place[1], _HEAD + size + place[0])
    return data if hashlib.sha256(data).hexdigest() == digest else None


def make_unnamed_file(data: bytes) -> int:
    """Return a descriptor of an unnamed file with these bytes, open for reading at its beginning."""
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("treadle", os.MFD_CLOEXEC)
    else:
        with tempfile.TemporaryFile() as file:
            fd = os.dup(file.fileno())
    write_at(fd, data, 0)
    return fd


_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_FRESH_S = 3600.0  # Seconds for which an object that was marked as used is not marked again


class StoreBatch:
    """`put` and `put_file` may be called from several threads."""

    def __init__(self, objects: str, incoming: str, *, durable: bool = True) -> None:
        self._objects, self._incoming, self._durable = objects, incoming, durable
        self._sync, self._lock = Syncing(objects, durable=durable), threading.Lock()
        self._made: dict[str, str] = {}  # By hash, where it lies until it has its name
        self._packs: set[str] = set()
        self._small: dict[str, bytes] = {}  # Objects that wait for a pack
        self._room, self._named, self._finished = FULL, False, False
        self._temps: list[str] = []

    def put(self, data: bytes) -> str:
        digest = hashlib.sha256(data).hexdigest()
        if not self.has_content(digest):
            self.add(digest, data)
        return digest

    def add(self, digest: str, data: bytes) -> None:
        """Bytes of which is known that they are not kept."""
        if len(data) > SMALL:
            self._write(digest, data)
            return
        with self._lock:
            self._small[digest] = data
            self._room -= len(data) + OVERHEAD
            if self._room < 0:
                self._close_pack()

    def put_file(self, fd: int) -> str:
        """Store the bytes of a regular file. The hash is theirs, even if another program writes to it meanwhile."""
        size = os.fstat(fd).st_size
        if size <= durable.CHUNK:
            data = os.pread(fd, size + 1, 0)
            if len(data) <= size:
                return self.put(data)
        digest = compute_digest(fd)
        if self.has_content(digest):
            return digest
        temp, goal = self._create_temp_file()
        with hold_fd(goal):
            durable.copy_bytes(fd, goal)
            digest = compute_digest(goal)
            if not self.has_content(digest):
                self._note_temp_file(temp, digest)
        return digest

    def give_names(self) -> None:
        """Make all bytes durable, and only then known by their hashes."""
        with self._lock:
            self._close_pack()
        self._sync.sync_data()
        self._strike("snapshot.written")
        for digest, temp in self._made.items():
            self._give_name(temp, digest)
        named_files = set(self._made.values()) - self._packs
        self._temps = [temp for temp in self._temps if temp not in named_files]
        self._made.clear()
        self._named = True
        self._strike("snapshot.named")

    def finish(self) -> None:
        if self._finished:
            return
        if not self._named:
            self.give_names()
        self._sync.sync_names()
        self._finished = True
        self._strike("snapshot.kept")

    def note_synced(self, device: int | None) -> None:
        """Note that named objects on this file system are safe already: it was synced as a whole."""
        self._sync.note_synced(device)

    def clear(self) -> None:
        durable.unlink_all(self._temps)

    def has_content(self, digest: str) -> bool:
        """True if the object is there already; then it is marked as used. Another process may have named it a moment
        ago: its folder is synced with ours."""
        if digest in self._made or digest in self._small:
            return True
        path = make_object_path(self._objects, digest)
        try:
            last_used_s = os.lstat(path).st_mtime
        except FileNotFoundError:
            return False
        self._sync.add_folder(os.path.dirname(path))
        if time.time() - last_used_s > _FRESH_S:
            os.utime(path)
        return True

    def _give_name(self, temp: str, digest: str) -> None:
        path = make_object_path(self._objects, digest)
        shard = os.path.dirname(path)
        move = os.link if temp in self._packs else os.rename
        with suppress(FileExistsError):  # another process has stored it, too
            try:
                move(temp, path)
            except FileNotFoundError:  # the first one there
                os.makedirs(shard, 0o700, exist_ok=True)
                self._sync.add_folder(self._objects)
                move(temp, path)
        self._sync.add_folder(shard)

    def _close_pack(self) -> None:
        small, self._small, self._room = self._small, {}, FULL
        if len(small) < FEWEST:
            for digest, data in small.items():
                self._write(digest, data)
            return
        temp, fd = self._create_temp_file()
        with hold_fd(fd):
            write_pack(fd, small)
        self._sync.add_file(temp)
        self._packs.add(temp)
        self._made.update(dict.fromkeys(small, temp))

    def _write(self, digest: str, data: bytes) -> None:
        temp, fd = self._create_temp_file()
        with hold_fd(fd):
            write_at(fd, data, 0)
            self._note_temp_file(temp, digest)

    def _create_temp_file(self) -> tuple[str, int]:
        temp = os.path.join(self._incoming, secrets.token_hex(16))
        self._temps.append(temp)
        return temp, os.open(temp, _NEW, 0o600)

    def _note_temp_file(self, temp: str, digest: str) -> None:
        self._made[digest] = temp
        self._sync.add_file(temp)

    def _strike(self, name: str) -> None:
        if self._durable:
            reach_faultpoint(name)


def make_object_path(objects: str, digest: str) -> str:
    return f"{objects}/{digest[:2]}/{digest}"


AFTER_IMAGES = "left"
_ABANDONED_S = 86_400.0  # Seconds after which an unfinished file of a writer counts as abandoned


class StoredContent(msgspec.Struct, frozen=True):
    """One kept object; of one in a pack the size is its share. Last used: put or found there, in seconds since 1970."""

    digest: str
    size: int
    last_used_s: float


class Swept(msgspec.Struct, frozen=True):
    count: int = 0
    size: int = 0
    left_at: str = ""  # The shard where it was told to stop; empty if it came to the end


class ContentStore:
    """Objects in `<folder>/<name>`, half-written ones in `<folder>/incoming`. The folder is made when first needed."""

    def __init__(self, folder: Path, name: str = "objects", *, durable: bool = True) -> None:
        self.folder, self._durable = folder, durable
        self._objects = os.path.join(folder, name)
        self._incoming = os.path.join(folder, "incoming")

    @contextmanager
    def open_batch(self) -> Iterator["StoreBatch"]:
        """Keep several things, durably when the block is left; with an error, none. ToolError if that is impossible."""
        try:
            with self._lock(fcntl.LOCK_SH):
                batch = StoreBatch(self._objects, self._incoming, durable=self._durable)
                try:
                    yield batch
                    batch.finish()
                finally:
                    batch.clear()
        except OSError as error:
            reason = f"{os.strerror(error.errno or 0)} (in {self.folder}). So nothing was changed."
            raise ToolError(f"The content before the change cannot be stored: {reason}") from error

    def put(self, data: bytes) -> str:
        with self.open_batch() as batch:
            return batch.put(data)

    def put_file(self, fd: int) -> str:
        with self.open_batch() as batch:
            return batch.put_file(fd)

    def has_object(self, digest: str) -> bool:
        return os.path.isfile(make_object_path(self._objects, digest))

    def open(self, digest: str) -> int:
        """Return a descriptor of the object, verified, open for reading at its beginning; the caller closes it."""
        try:
            fd = os.open(make_object_path(self._objects, digest), READ)
        except OSError as error:
            raise NotFound(f"What was there before ({digest[:12]}) is not kept any more.") from error
        with hold_fd(fd):
            if (data := read_from_pack(fd, digest)) is not None:
                return make_unnamed_file(data)
            if compute_digest(fd) != digest:
                raise ToolError(f"What was kept ({digest[:12]}) is damaged, so it is not used. See `treadle fsck`.")
            return os.dup(fd)

    def read(self, digest: str, limit: int = 0) -> bytes:
        fd = self.open(digest)
        with open(fd, "rb") as file:
            size = os.fstat(fd).st_size
            if limit and size > limit:
                raise ToolError(f"The file had {size:,} bytes; at most {limit:,} can be read at once.")
            return file.read()

    def iterate_objects(self) -> Iterator[StoredContent]:
        for shard in _list_names(self._objects):
            with suppress(FileNotFoundError), os.scandir(os.path.join(self._objects, shard)) as entries:
                for each in entries:
                    with suppress(FileNotFoundError):
                        stat = each.stat(follow_symlinks=False)
                        yield StoredContent(each.name, stat.st_size // stat.st_nlink, stat.st_mtime)

    def verify(self) -> Iterator[str]:
        for image in self.iterate_objects():
            try:
                os.close(self.open(image.digest))
            except NotFound:  # swept meanwhile
                continue
            except (ToolError, OSError):
                yield image.digest

    def drop(self, digest: str) -> None:
        with suppress(FileNotFoundError), self._lock(fcntl.LOCK_EX):
            os.unlink(make_object_path(self._objects, digest))

    def list_unfinished_files(self) -> list[str]:
        """The files that writers left unfinished, or are writing at this moment."""
        return [os.path.join(self._incoming, name) for name in _list_names(self._incoming) if name != ".lock"]

    def sweep(
        self, keep: Collection[str], older_than_s: float, *, dry: bool = False, since: str = "",
        going: Callable[[], bool] | None = None,
    ) -> Swept:  # fmt: skip
        """Remove objects that are not in `keep` and were not used for `older_than_s`; and files that were left
        unfinished long ago. With `going` it stops when that returns False, or where it would have to wait for a process
        that stores something; `since` is the shard where it stopped the last time."""
        count = size = 0
        for number, shard in enumerate(sorted(name for name in _list_names(self._objects) if name >= since)):
            if going is not None and number and not going():
                return Swept(count, size, shard)
            try:
                for removed_size in self._sweep_shard(shard, keep, older_than_s, dry=dry, wait=going is None):
                    count, size = count + 1, size + removed_size
                    if going is not None and not going():
                        return Swept(count, size, shard)
            except BlockingIOError:
                return Swept(count, size, shard)
        if not dry:
            old = time.time() - max(older_than_s, _ABANDONED_S)
            with suppress(FileNotFoundError):
                durable.unlink_all(path for path in self.list_unfinished_files() if os.lstat(path).st_mtime < old)
        return Swept(count, size)

    def _sweep_shard(
        self, shard: str, keep: Collection[str], older_than_s: float, *, dry: bool, wait: bool
    ) -> Iterator[int]:
        with self.lock_exclusively(wait=wait), os.scandir(os.path.join(self._objects, shard)) as entries:
            cutoff = time.time() - older_than_s
            for each in entries:
                stat = each.stat(follow_symlinks=False)
                if each.name in keep or stat.st_mtime > cutoff:
                    continue
                if not dry:
                    os.unlink(each.path)
                    reach_faultpoint("snapshot.swept")
                yield stat.st_size // stat.st_nlink

    @contextmanager
    def lock_exclusively(self, *, wait: bool = True) -> Iterator[None]:
        """While the block lasts, no process stores an object or begins to rely on one. Not for a sweep, which takes the
        lock itself. BlockingIOError, without `wait`, if a process stores something at this moment."""
        with self._lock(fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB):
            yield

    @contextmanager
    def _lock(self, operation: int) -> Iterator[None]:
        path, flags = os.path.join(self._incoming, ".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        try:
            lock = os.open(path, flags, 0o600)
        except FileNotFoundError:
            for folder in (self._objects, self._incoming):
                durable.make_private_folder(folder)
            lock = os.open(path, flags, 0o600)
        with hold_fd(lock):
            fcntl.flock(lock, operation)
            yield


def open_after_images(folder: Path) -> ContentStore:
    return ContentStore(folder, AFTER_IMAGES, durable=False)


def _list_names(folder: str) -> list[str]:
    with suppress(FileNotFoundError):
        return os.listdir(folder)
    return []
