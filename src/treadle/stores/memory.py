"""The store as it is meant: the executable specification of `treadle.ports.store`, in one process and one event
loop. Nothing survives it. No method awaits between a check and a change, which is what makes each one atomic."""

import asyncio
import hashlib
from collections.abc import Iterable, Sequence

from treadle.errors import ChatBusy, ChatExists, HeadMoved, InvalidInput, LeaseLost, NotFound, StoreError
from treadle.ports.store import LEASE_S, Lease, Listed, Snapshot
from treadle.protocol.views import ChatSummary
from treadle.protocol.wire import Record
from treadle.types import ChatId, Clock, SystemClock


class _Chat:
    """One chat: its log, its summary, and who may write."""

    def __init__(self, order: int, summary: ChatSummary, records: Sequence[Record]) -> None:
        self.order = order
        self.summary = summary
        self.records = list(records)
        self.epoch = max((record.epoch for record in records), default=0)
        self.worker = ""
        self.lease_until = 0.0
        self.snapshot: Snapshot | None = None
        self.waiters: set[asyncio.Future[None]] = set()

    @property
    def head(self) -> int:
        return len(self.records)

    def held(self, now: float) -> bool:
        return bool(self.worker) and self.lease_until > now

    def holds(self, lease: Lease) -> bool:
        return bool(self.worker) and lease.epoch == self.epoch

    def claimable(self, now: float, now_ms: int) -> bool:
        due = self.summary.runnable or 0 < self.summary.wake_ms <= now_ms
        return due and not self.summary.archived and not self.held(now)


class MemoryStore:
    """A `Store` that lives and dies with the process."""

    def __init__(self, clock: Clock | None = None, *, lease_s: float = LEASE_S) -> None:
        self._clock = clock or SystemClock()
        self._lease_s = lease_s
        self._chats: dict[ChatId, _Chat] = {}
        self._blobs: dict[str, bytes] = {}
        self._closed = False

    async def create(self, summary: ChatSummary, records: Sequence[Record]) -> None:
        self._check_open()
        if summary.chat in self._chats:
            raise ChatExists(f"chat {summary.chat} exists already; choose another id")
        _check_gapless(records, 1)
        self._chats[summary.chat] = _Chat(len(self._chats), summary, records)

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
        kept = self._find(chat)
        now = self._clock.monotonic()
        if take is not None and (kept.held(now) or take.epoch != kept.epoch + 1):
            raise ChatBusy(f"chat {chat} is held, or was meanwhile; it cannot be taken as epoch {take.epoch}")
        if lease is not None and not (lease.chat == chat and kept.holds(lease)):
            raise LeaseLost(f"epoch {lease.epoch} of chat {chat} is over (now {kept.epoch}); write nothing more")
        if records and records[0].seq != kept.head + 1:
            raise HeadMoved(f"chat {chat} is at {kept.head}, not at {records[0].seq - 1}; read on and try again")
        _check_gapless(records, kept.head + 1)
        kept.records.extend(records)
        kept.summary = summary
        if take is not None:
            kept.epoch, kept.worker, kept.lease_until = take.epoch, take.worker, now + self._lease_s
        if release and (lease or take) is not None:
            kept.worker = ""
        for waiter in kept.waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def read(self, chat: ChatId, after: int = 0, limit: int = 0) -> list[Record]:
        records = self._find(chat).records
        return records[after : after + limit] if limit else records[after:]

    async def head(self, chat: ChatId) -> int:
        return self._find(chat).head

    async def wait(self, chat: ChatId, after: int, timeout_s: float) -> int:
        kept = self._find(chat)
        try:
            async with asyncio.timeout(timeout_s):
                while kept.head <= after:
                    await self._news(kept)
        except TimeoutError:
            pass
        return kept.head

    async def get(self, chat: ChatId) -> Listed:
        kept = self._find(chat)
        return Listed(kept.summary, kept.held(self._clock.monotonic()))

    async def list(self, *, owner: str | None = None, archived: bool | None = None, limit: int = 0) -> list[Listed]:
        self._check_open()
        now = self._clock.monotonic()
        found = [
            kept
            for kept in self._chats.values()
            if (owner is None or kept.summary.owner == owner)
            and (archived is None or kept.summary.archived == archived)
        ]
        found.sort(key=lambda kept: (kept.summary.updated_ms, kept.order), reverse=True)
        return [Listed(kept.summary, kept.held(now)) for kept in (found[:limit] if limit else found)]

    async def claim(self, worker: str, chat: ChatId | None = None, *, now_ms: int = 0) -> Lease | None:
        self._check_open()
        if not worker:
            raise InvalidInput("a worker needs a name to claim a chat")
        now = self._clock.monotonic()
        if chat is not None:
            kept = self._find(chat)
            if kept.held(now):
                raise ChatBusy(f"chat {chat} is held by the live worker {kept.worker}; wait until it is released")
        else:
            ready = [kept for kept in self._chats.values() if kept.claimable(now, now_ms)]
            if not ready:
                return None
            kept = min(ready, key=lambda kept: (kept.summary.updated_ms, kept.order))
        kept.epoch += 1
        kept.worker, kept.lease_until = worker, now + self._lease_s
        return Lease(kept.summary.chat, kept.epoch, worker, kept.head)

    async def renew(self, leases: Sequence[Lease]) -> Sequence[Lease]:
        self._check_open()
        held = [lease for lease in leases if (kept := self._chats.get(lease.chat)) and kept.holds(lease)]
        for lease in held:
            self._chats[lease.chat].lease_until = self._clock.monotonic() + self._lease_s
        return held

    async def release(self, lease: Lease) -> None:
        self._check_open()
        kept = self._chats.get(lease.chat)
        if kept is not None and kept.holds(lease):
            kept.worker = ""

    async def put_blob(self, data: bytes) -> str:
        self._check_open()
        digest = hashlib.sha256(data).hexdigest()
        self._blobs[digest] = bytes(data)
        return digest

    async def put_blob_parts(self, parts: Iterable[bytes]) -> str:
        return await self.put_blob(b"".join(parts))

    async def get_blob(self, digest: str) -> bytes:
        self._check_open()
        if digest not in self._blobs:
            raise NotFound(f"there is no blob {digest}")
        return self._blobs[digest]

    async def save_snapshot(self, chat: ChatId, snapshot: Snapshot) -> None:
        self._find(chat).snapshot = snapshot

    async def load_snapshot(self, chat: ChatId) -> Snapshot | None:
        return self._find(chat).snapshot

    async def close(self) -> None:
        self._closed = True
        for kept in self._chats.values():
            kept.worker = ""
            for waiter in kept.waiters:
                if not waiter.done():
                    waiter.set_exception(StoreError("the store was closed while somebody waited for it"))

    def _find(self, chat: ChatId) -> _Chat:
        self._check_open()
        kept = self._chats.get(chat)
        if kept is None:
            raise NotFound(f"there is no chat {chat}")
        return kept

    def _check_open(self) -> None:
        if self._closed:
            raise StoreError("the store is closed; open a new one")

    @staticmethod
    async def _news(kept: _Chat) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        kept.waiters.add(waiter)
        try:
            await waiter
        finally:
            kept.waiters.discard(waiter)


def _check_gapless(records: Sequence[Record], first: int) -> None:
    for seq, record in enumerate(records, first):
        if record.seq != seq:
            raise InvalidInput(f"the records are not gapless: {record.seq} stands where {seq} belongs")
