"""Where logs live. The only coordination between processes: appends are fenced, leases are numbered, commits are
atomic. The memory store is the executable specification; the contract suite in `treadle.testing` is the judge.

A store never folds and never decides: it keeps records, a summary per chat, leases, blobs and snapshots.
"""

from collections.abc import Iterable, Sequence
from typing import Protocol

import msgspec

from treadle.protocol.views import ChatSummary
from treadle.protocol.wire import Record
from treadle.types import ChatId

LEASE_S = 30.0
RENEW_S = 10.0


class Lease(msgspec.Struct, frozen=True):
    """A worker's right to write to a chat, by its number. Only the highest epoch may write."""

    chat: ChatId
    epoch: int
    worker: str
    head: int = 0
    """The chat's head when the lease was taken: what a worker must know before it does anything."""


class Snapshot(msgspec.Struct, frozen=True):
    """A folded state as of `seq`. A cache: deleting all of them is safe."""

    seq: int
    body: bytes


class Listed(msgspec.Struct, frozen=True):
    """A chat in a list: its summary, and whether a live worker holds it."""

    summary: ChatSummary
    leased: bool


class Store(Protocol):
    """Every method is atomic. `chat` unknown: NotFound. Any number of tasks and processes may call at once."""

    async def create(self, summary: ChatSummary, records: Sequence[Record]) -> None:
        """Begin a chat with its first records (seq from 1, gapless). ChatExists if the id is taken. A chat that
        comes from elsewhere brings epochs along: those of its leases here are higher."""
        ...

    async def append(
        self,
        chat: ChatId,
        records: Sequence[Record],
        summary: ChatSummary,
        *,
        lease: Lease | None,
        durable: bool,
        release: bool = False,
        take: Lease | None = None,
    ) -> None:
        """Add records and replace the summary, or change nothing; with `release` give the lease back as well, also one
        that is taken here: its epoch is then used up.

        The first record's seq must be the chat's head + 1, else HeadMoved. With a lease, its epoch must be the
        newest and not released, else LeaseLost (checked first). Without one it is a command: any time, by anyone.
        With `take` (and no lease) the chat is claimed in the same commit, under exactly this lease: its epoch must be
        the next one and nobody may hold the chat, else ChatBusy.
        `durable` asks for the commit to survive a power cut, not only the death of the process.
        """
        ...

    async def read(self, chat: ChatId, after: int = 0, limit: int = 0) -> list[Record]:
        """Records with seq > after, in order; at most `limit` of them if it is not 0."""
        ...

    async def head(self, chat: ChatId) -> int: ...

    async def wait(self, chat: ChatId, after: int, timeout_s: float) -> int:
        """Return the head as soon as it is > `after`, or what it is when the time is up. Sees other processes'
        appends too (within a quarter of a second)."""
        ...

    async def get(self, chat: ChatId) -> Listed: ...

    async def list(self, *, owner: str | None = None, archived: bool | None = None, limit: int = 0) -> list[Listed]:
        """Chats, newest change first."""
        ...

    async def claim(self, worker: str, chat: ChatId | None = None, *, now_ms: int = 0) -> Lease | None:
        """Take the lease of `chat`, or of any chat that is runnable (or whose wake time is <= now_ms), is not
        archived, and is not held by a live worker: released, expired, or its worker is known to be dead. The
        epoch grows by one. For a named chat: NotFound, or ChatBusy while a live worker holds it (whether or not
        it is runnable); None only when no chat is to be had."""
        ...

    async def renew(self, leases: Sequence[Lease]) -> Sequence[Lease]:
        """Extend leases by LEASE_S from now; returns those that are still held. One statement for all."""
        ...

    async def release(self, lease: Lease) -> None:
        """Give the lease back. Silent when it is no longer held."""
        ...

    async def put_blob(self, data: bytes) -> str:
        """Keep bytes by their SHA-256 (hex), which is returned. The same bytes are kept once."""
        ...

    async def put_blob_parts(self, parts: Iterable[bytes]) -> str:
        """The same for bytes that come in pieces, which are taken one at a time, in a thread if need be: for what is
        too large to be held in memory."""
        ...

    async def get_blob(self, digest: str) -> bytes:
        """NotFound when there is no such blob; Damaged when its bytes do not have this hash."""
        ...

    async def save_snapshot(self, chat: ChatId, snapshot: Snapshot) -> None:
        """Replace the chat's snapshot."""
        ...

    async def load_snapshot(self, chat: ChatId) -> Snapshot | None: ...

    async def close(self) -> None:
        """Finish what is under way, release this process's leases, and free everything. Idempotent."""
        ...
