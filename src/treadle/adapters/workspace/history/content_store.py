"""The bytes of files by their SHA-256, in a folder outside every project (W-01). An object has its name only when it is
complete; it is verified whenever it is read. Knows nothing of paths in a project.

Two stores share the folder. `objects` holds the content of files before they were changed; it is durable, because an
undo relies on it. `left` holds the small texts that changes left: the base for a merge of later edits by others with an
undo, and one side of the diff that shows those edits. It is a cache: nothing is lost without it.

A process that finds an object there relies on it from then on. So a batch holds a lock that excludes a sweep, and marks
the objects that it found as used: a sweep does not remove recently used objects.
"""

import fcntl
import os
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from treadle.adapters.workspace.history.packs import packed, passing_file
from treadle.adapters.workspace.history.store_batch import StoreBatch, place_of
from treadle.adapters.workspace.paths.durable import digest_of, private_folder, unlink_all
from treadle.adapters.workspace.paths.entries import closing_fd
from treadle.base.faultpoint import faultpoint
from treadle.errors import NotFound, ToolError

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
AFTER_IMAGES = "left"
_ABANDONED_S = 86_400.0
"""Seconds after which an unfinished file of a writer counts as abandoned."""


class StoredContent(msgspec.Struct, frozen=True):
    """One kept object; of one in a pack the size is its share. `used` is when it was last put or found there, in
    seconds since 1970."""

    digest: str
    size: int
    last_used_s: float


class Swept(msgspec.Struct, frozen=True):
    count: int = 0
    size: int = 0
    left_at: str = ""
    """The shard where it was told to stop; empty if it came to the end."""


class ContentStore:
    """Objects in `<folder>/<name>`, half-written ones in `<folder>/incoming`. The folder is made when first needed."""

    def __init__(self, folder: Path, name: str = "objects", *, durable: bool = True) -> None:
        self.folder = folder
        self._durable = durable
        self._objects = os.path.join(folder, name)
        self._incoming = os.path.join(folder, "incoming")

    # -- keeping ------------------------------------------------------------------------------------------------

    @contextmanager
    def batch(self) -> Iterator["StoreBatch"]:
        """Keep several things at once: all are durable when the block is left, or, with an error, as if nothing had
        been. ToolError if they cannot be kept."""
        try:
            with self._lock(fcntl.LOCK_SH):
                batch = StoreBatch(self._objects, self._incoming, durable=self._durable)
                try:
                    yield batch
                    batch.finish()
                finally:
                    batch.clear()
        except OSError as error:
            raise ToolError(
                f"The content before the change cannot be stored: {os.strerror(error.errno or 0)} (in {self.folder}). "
                "So nothing was changed."
            ) from error

    def put(self, data: bytes) -> str:
        with self.batch() as batch:
            return batch.put(data)

    def put_file(self, fd: int) -> str:
        with self.batch() as batch:
            return batch.put_file(fd)

    # -- having -------------------------------------------------------------------------------------------------

    def has(self, digest: str) -> bool:
        return os.path.isfile(place_of(self._objects, digest))

    def open(self, digest: str) -> int:
        """Return a descriptor of the object, verified, open for reading at its beginning; the caller closes it."""
        try:
            fd = os.open(place_of(self._objects, digest), _READ)
        except OSError as error:
            raise NotFound(f"What was there before ({digest[:12]}) is not kept any more.") from error
        try:
            data = packed(fd, digest)
            if data is None and digest_of(fd) != digest:
                raise ToolError(f"What was kept ({digest[:12]}) is damaged, so it is not used. See `treadle fsck`.")
        except BaseException:
            os.close(fd)
            raise
        if data is None:
            return fd
        os.close(fd)
        return passing_file(data)

    def read(self, digest: str, limit: int = 0) -> bytes:
        fd = self.open(digest)
        with open(fd, "rb") as file:
            size = os.fstat(fd).st_size
            if limit and size > limit:
                raise ToolError(f"The file had {size:,} bytes; at most {limit:,} can be read at once.")
            return file.read()

    # -- looking after ------------------------------------------------------------------------------------------

    def all(self) -> Iterator[StoredContent]:
        """Everything that is kept, in no order."""
        for shard in _names(self._objects):
            with suppress(FileNotFoundError), os.scandir(os.path.join(self._objects, shard)) as entries:
                for each in entries:
                    with suppress(FileNotFoundError):
                        stat = each.stat(follow_symlinks=False)
                        yield StoredContent(each.name, stat.st_size // stat.st_nlink, stat.st_mtime)

    def size(self) -> int:
        """How many bytes are kept."""
        return sum(image.size for image in self.all())

    def verify(self) -> Iterator[str]:
        """The hashes of objects that are damaged."""
        for image in self.all():
            try:
                os.close(self.open(image.digest))
            except NotFound:  # swept meanwhile
                continue
            except (ToolError, OSError):
                yield image.digest

    def drop(self, digest: str) -> None:
        """Remove an object, because it is damaged."""
        with suppress(FileNotFoundError), self._lock(fcntl.LOCK_EX):
            os.unlink(place_of(self._objects, digest))

    def half_done(self) -> list[str]:
        """The files that writers left unfinished, or are writing at this moment."""
        return [os.path.join(self._incoming, name) for name in _names(self._incoming) if name != ".lock"]

    def sweep(
        self,
        keep: Collection[str],
        older_than_s: float,
        *,
        dry: bool = False,
        since: str = "",
        going: Callable[[], bool] | None = None,
    ) -> Swept:
        """Remove objects that are not in `keep` and were not used for `older_than_s`; and files that were left
        unfinished long ago. With `going` it stops when that returns False, or where it would have to wait for a process
        that stores something; `since` is the shard where it stopped the last time."""
        count = size = 0
        first = True
        for shard in sorted(name for name in _names(self._objects) if name >= since):
            if going is not None and not first and not going():
                return Swept(count, size, shard)
            first = False
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
                unlink_all(path for path in self.half_done() if os.lstat(path).st_mtime < old)
        return Swept(count, size)

    def _sweep_shard(
        self, shard: str, keep: Collection[str], older_than_s: float, *, dry: bool, wait: bool
    ) -> Iterator[int]:
        """The sizes of what is removed, one by one."""
        with self.alone(wait=wait), os.scandir(os.path.join(self._objects, shard)) as entries:
            cutoff = time.time() - older_than_s
            for each in entries:
                stat = each.stat(follow_symlinks=False)
                if each.name in keep or stat.st_mtime > cutoff:
                    continue
                if not dry:
                    os.unlink(each.path)
                    faultpoint("snapshot.swept")
                yield stat.st_size // stat.st_nlink

    @contextmanager
    def alone(self, *, wait: bool = True) -> Iterator[None]:
        """While the block lasts, no process stores an object or begins to rely on one. Not for a sweep, which takes the
        lock itself. BlockingIOError, without `wait`, if a process stores something at this moment."""
        with self._lock(fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB):
            yield

    @contextmanager
    def _lock(self, operation: int) -> Iterator[None]:
        with closing_fd(self._lock_file()) as fd:
            fcntl.flock(fd, operation)
            yield

    def _lock_file(self) -> int:
        path = os.path.join(self._incoming, ".lock")
        try:
            return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:
            for folder in (self._objects, self._incoming):
                private_folder(folder)
            return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def after_images(folder: Path) -> ContentStore:
    """The texts that changes left, in the folder of snapshots."""
    return ContentStore(folder, AFTER_IMAGES, durable=False)


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except FileNotFoundError:
        return []
