"""Where logs live. The only coordination between processes: appends are fenced, leases are numbered, commits are
atomic. The memory store is the executable specification; the contract suite in `treadle.testing` is the judge.

A store never folds and never decides: it keeps records, a summary per chat, leases, blobs and snapshots; beside them
the answers to requests that may be repeated, and live text for readers in other processes."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Protocol

import msgspec

from treadle.base.types import ChatId
from treadle.errors import AlreadyAnswered
from treadle.protocol.views import ChatSummary, Status
from treadle.protocol.wire import Record

LEASE_S = 30.0
RENEW_S = 10.0
ANSWER_MS = 24 * 3600 * 1000  # how long the answer to a request with an Idempotency-Key is kept
ANSWERS_SWEPT = 100  # how many old answers go when a new one comes: no single request pays for a whole day


class Lease(msgspec.Struct, frozen=True):
    """A worker's right to write to a chat, by its number. Only the highest epoch may write."""

    chat: ChatId
    epoch: int
    worker: str
    head: int = 0  # The chat's head when the lease was taken. A worker must have read up to it before it acts.


class Snapshot(msgspec.Struct, frozen=True):
    """A folded state as of `seq`. A cache: deleting all of them is safe."""

    seq: int
    body: bytes


class Listed(msgspec.Struct, frozen=True):
    summary: ChatSummary
    leased: bool
    change_number: int = 0  # the number of its last change, higher than that of every change in the store before it


Cursor = tuple[int, ChatId]  # a place in a list: `updated_ms` and id of the chat that stands there


class ChatFilter(msgspec.Struct, frozen=True):
    """Selects the chats of a list. None or empty: no restriction."""

    owner: str | None = None
    archived: bool | None = None
    status: Status | None = None
    label: str | None = None
    query: str = ""  # a part of the title, case-insensitive, or a prefix of the id, with or without `c_`


ALL_CHATS = ChatFilter()


class Remembered(msgspec.Struct, frozen=True):
    """The answer that an owner's request got, for the case that it is sent again under the same key (A-04)."""

    owner: str
    key: str
    request: str  # a fingerprint of the request: the same key with another request is a mistake of the caller
    status: int
    body: bytes
    time_ms: int

    def compute_expiry_ms(self) -> int:
        """Answers of a time before this have been kept long enough when this one comes."""
        return self.time_ms - ANSWER_MS

    def refuse(self) -> AlreadyAnswered:
        text = f"the request with the key {self.key!r} was answered before; this is the answer that it got"
        return AlreadyAnswered(text, request=self.request, status=self.status, body=self.body)


class Commit(msgspec.Struct, frozen=True):
    """The addition of one `Store.append` to a chat, with its conditions."""

    chat: ChatId
    records: Sequence[Record]  # the first one's seq must be the chat's head + 1, else HeadMoved
    summary: ChatSummary  # without records, its head must be the chat's, else HeadMoved
    lease: Lease | None = None  # its epoch must be the newest and not released, else LeaseLost; None: a command
    durable: bool = True  # the commit survives a power cut, not only the death of the process
    release: bool = False  # give the lease back as well, also one that is taken here: its epoch is then used up
    take: Lease | None = None
    """Without a lease: claim the chat in the same commit, under exactly this lease. Its epoch must be the next one and
    no lease may be active, else ChatBusy."""
    answer: Remembered | None = None  # remembered in the same commit; AlreadyAnswered if its owner's key has one
    drop_deltas: bool = False  # True if the chat's live text is in the log now, or void: its stored deltas are deleted

    @property
    def first(self) -> int:
        """The number behind the head on which the commit is based."""
        return self.records[0].seq if self.records else self.summary.head + 1


Reach = tuple[int, int, int]  # how far a reader of live text is: epoch, turn and number of the last delta it has


class Delta(msgspec.Struct, frozen=True):
    """A piece of live text, for readers in other processes. Its `number` grows within a turn."""

    chat: ChatId
    epoch: int
    turn: int
    number: int
    payload: bytes


class Store(Protocol):
    """Every method is atomic. `chat` unknown: NotFound. Any number of tasks and processes may call at once."""

    async def create(
        self, summary: ChatSummary, records: Sequence[Record], *, answer: Remembered | None = None
    ) -> None:
        """Begin a chat with its first records (seq from 1, gapless). ChatExists if the id is taken. A chat that
        comes from elsewhere brings epochs along: those of its leases here are higher. `answer`: as with `append`."""

    async def append(self, commit: Commit) -> None:
        """Add records and replace the summary, or change nothing. Checked in this order: AlreadyAnswered, ChatBusy,
        LeaseLost, HeadMoved; `Commit` says when."""

    async def delete(self, chats: Sequence[ChatId], *, owner: str | None = None) -> None:
        """Remove chats with their records, snapshots, live text and entries in the search index: all of them in one
        durable commit, or none. NotFound for a chat that never existed or, with `owner`, belongs to another owner;
        ChatBusy while a live worker holds one of them. Blobs stay until they are collected.

        A tombstone of each stays: `changes` shows it (`ChatSummary.deleted`), and deleting the chat again changes
        nothing. A chat that is created later under the same id replaces the tombstone, and its epochs are higher."""

    async def read(self, chat: ChatId, after_seq: int = 0, limit: int = 0) -> list[Record]:
        """Records with seq > after, in order and without a gap up to the head; at most `limit` of them if it is not 0.
        Where a record is missing or damaged stands `session.record_lost`, or one that decodes to it (D-06)."""

    async def read_types(
        self, chat: ChatId, types: Collection[str], after_seq: int = 0, limit: int = 0
    ) -> list[Record]:
        """The records of these types with seq > after, in order; at most `limit` of them if it is not 0. Records of
        other types are neither unpacked nor sent, and a missing one is left out."""

    async def read_head(self, chat: ChatId) -> int: ...

    async def wait(self, chat: ChatId, after_seq: int, timeout_s: float) -> int:
        """Return the head as soon as it is > `after_seq`, or what it is when the time is up. Sees other processes'
        appends too (within a quarter of a second). NotFound if the chat is deleted meanwhile."""

    async def get(self, chat: ChatId) -> Listed: ...

    async def list(
        self, chat_filter: ChatFilter = ALL_CHATS, *, limit: int = 0, cursor: Cursor | None = None
    ) -> list[Listed]:
        """Chats, newest change (`updated_ms`) first, then by id. `before` is the place of the last chat of the page
        before: a chat that does not change is on exactly one page."""

    async def list_changes(
        self, *, owner: str | None = None, after_change: int = 0, limit: int = 0
    ) -> Sequence[Listed]:
        """Chats that were created, appended to or deleted since `after_change`, in the order of their last
        change. A reader that continues from the last number misses no chat, also while others change them; of
        several changes of one chat only the last is seen. A change may be seen a moment after its commit, when all that
        come before it are over."""

    async def search_text(self, words: Sequence[str]) -> Mapping[ChatId, int]:
        """Return the chats in which one message of a person or the model may contain all these words, in any case, each
        with the number of the first record to check. Omits no chat with the words, but may return others."""

    async def wait_any(self, after_change: int, timeout_s: float) -> int:
        """Return the number of the store's last change as soon as it is > `after_change`, or as it is when
        the time is up. Sees other processes' changes too (within a quarter of a second)."""

    async def claim(self, worker: str, chat: ChatId | None = None, *, now_ms: int = 0) -> Lease | None:
        """Take the lease of `chat`, or of any chat that is runnable (or whose wake time is <= now_ms), is not
        archived, and is not held by a live worker: released, expired, or its worker is known to be dead. The
        epoch grows by one. For a named chat: NotFound, or ChatBusy while a live worker holds it (whether or not
        it is runnable); None only when no chat is to be had.

        Of those that are to be had, one of the owner with the fewest live leases; of these the one that waits the
        longest: since its last change, or since its wake time."""

    async def renew(self, leases: Sequence[Lease]) -> Sequence[Lease]:
        """Extend leases by LEASE_S from now; returns those that are still held. One statement for all."""

    async def release(self, lease: Lease) -> None:
        """Give the lease back. Silent when it is no longer held."""

    async def put_blob(self, data: bytes) -> str:
        """Keep bytes by their SHA-256 (hex), which is returned. The same bytes are kept once."""

    async def put_blob_parts(self, parts: Iterable[bytes]) -> str:
        """The same for bytes in pieces, taken one at a time, perhaps in a thread: for what is too large for memory."""

    async def get_blob(self, digest: str) -> bytes:
        """NotFound when there is no such blob; Damaged when its bytes do not have this hash."""

    async def save_snapshot(self, chat: ChatId, snapshot: Snapshot) -> None: ...

    async def load_snapshot(self, chat: ChatId) -> Snapshot | None: ...

    async def recall(self, owner: str, key: str) -> Remembered | None: ...

    async def remember(self, answer: Remembered) -> None:
        """Keep an answer that goes with no append; AlreadyAnswered if there is one under its key. Answers are kept for
        ANSWER_MS, measured by the times of those that come after them; then the store drops them by itself."""

    async def put_deltas(self, deltas: Sequence[Delta]) -> None:
        """Show live text, of any number of chats at once, to readers in other processes. Silent for a chat whose
        newest epoch is another or was released. Not durable, and gone with the next `drop_deltas` of the chat."""

    async def read_deltas(self, reached: Mapping[ChatId, Reach]) -> Sequence[Delta]:
        """The live text of these chats under their newest epoch, behind what was reached; by chat, in order."""

    async def close(self) -> None:
        """Finish what is under way, release this process's leases, and free everything. Idempotent."""
