"""The executable specification of `treadle.ports.store`, in memory and for one event loop. Each method is atomic: none
awaits between a check and a change."""

import asyncio
import contextlib
import hashlib
import itertools
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence

from treadle.adapters.stores.packing import check_gapless, make_cursor, matches_filter
from treadle.adapters.stores.text_index import extract_text, fold_words
from treadle.base.types import ChatId, Clock, SystemClock
from treadle.errors import ChatBusy, ChatExists, HeadMoved, InvalidInput, LeaseLost, NotFound, StoreError
from treadle.ports import store as port
from treadle.protocol.views import ChatSummary
from treadle.protocol.wire import Record


class _Chat:
    def __init__(self, order: int, summary: ChatSummary, records: Sequence[Record]) -> None:
        self.order, self.summary = order, summary
        self.records = list(records)
        self.epoch = max((record.epoch for record in records), default=0)
        self.worker, self.lease_until, self.changed = "", 0.0, 0
        self.snapshot: port.Snapshot | None = None
        self.deltas: list[port.Delta] = []
        self.waiters: set[asyncio.Future[None]] = set()

    @property
    def head(self) -> int:
        return len(self.records)

    def is_leased(self, now: float) -> bool:
        return bool(self.worker) and self.lease_until > now

    def is_held_by(self, lease: port.Lease) -> bool:
        return lease.worker == self.worker and lease.epoch == self.epoch

    def is_claimable(self, now: float, now_ms: int) -> bool:
        due = self.summary.runnable or 0 < self.summary.wake_ms <= now_ms
        return due and not self.summary.archived and not self.is_leased(now)

    def get_wait_start(self) -> int:
        return self.summary.updated_ms if self.summary.runnable else self.summary.wake_ms


class MemoryStore:
    def __init__(self, clock: Clock | None = None, *, lease_s: float = port.LEASE_S) -> None:
        self._clock = clock or SystemClock()
        self._lease_s = lease_s
        self._chats: dict[ChatId, _Chat] = {}
        self._deleted: dict[ChatId, _Chat] = {}  # Tombstones: chats without records.
        self._blobs: dict[str, bytes] = {}
        self._answers: dict[tuple[str, str], port.Remembered] = {}
        self._orders, self._changed = itertools.count(), 0
        self._waiters: set[asyncio.Future[None]] = set()
        self._closed = False

    async def create(
        self, summary: ChatSummary, records: Sequence[Record], *, answer: port.Remembered | None = None
    ) -> None:
        self._check_open()
        self._check_new(answer)
        if summary.chat in self._chats:
            raise ChatExists(f"chat {summary.chat} exists already; choose another id")
        check_gapless(records, 1)
        self._keep_answer(answer)
        created = _Chat(next(self._orders), summary, records)
        if (tombstone := self._deleted.pop(summary.chat, None)) is not None:
            created.epoch = max(created.epoch, tombstone.epoch)
        self._chats[summary.chat] = created
        self._count_change(created)

    async def append(self, commit: port.Commit) -> None:
        self._check_new(commit.answer)
        chat, records, lease, take = commit.chat, commit.records, commit.lease, commit.take
        entry, now = self._find(chat), self._clock.monotonic()
        if take is not None and (entry.is_leased(now) or take.epoch != entry.epoch + 1):
            raise ChatBusy(f"chat {chat} is held, or was meanwhile; it cannot be taken as epoch {take.epoch}")
        if lease is not None and not (lease.chat == chat and entry.is_held_by(lease)):
            raise LeaseLost(f"epoch {lease.epoch} of chat {chat} is over (now {entry.epoch}); write nothing more")
        if commit.first != entry.head + 1:
            raise HeadMoved(f"chat {chat} is at {entry.head}, not at {commit.first - 1}; read on and try again")
        check_gapless(records, entry.head + 1)
        self._keep_answer(commit.answer)
        entry.records.extend(records)
        entry.summary = commit.summary
        if commit.drop_deltas:
            entry.deltas.clear()
        if take is not None:
            entry.epoch, entry.worker, entry.lease_until = take.epoch, take.worker, now + self._lease_s
        if commit.release and (lease or take) is not None:
            entry.worker = ""
        self._count_change(entry)

    async def delete(self, chats: Sequence[ChatId], *, owner: str | None = None) -> None:
        self._check_open()
        now = self._clock.monotonic()
        for chat in chats:
            entry = self._chats.get(chat) or self._deleted.get(chat)
            if entry is None or owner not in (None, entry.summary.owner):
                raise NotFound(f"there is no chat {chat}")
            if entry.is_leased(now):
                raise ChatBusy(f"chat {chat} is held by the live worker {entry.worker}; stop it before you delete it")
        for chat in chats:
            if (entry := self._chats.pop(chat, None)) is None:
                continue
            tombstone = _Chat(entry.order, ChatSummary(chat, owner=entry.summary.owner, deleted=True), ())
            tombstone.epoch = entry.epoch
            self._deleted[chat] = tombstone
            self._count_change(tombstone)
            for waiter in entry.waiters:
                if not waiter.done():
                    waiter.set_exception(NotFound(f"chat {chat} was deleted"))

    async def read(self, chat: ChatId, after_seq: int = 0, limit: int = 0) -> list[Record]:
        records, after_seq = self._find(chat).records, max(0, after_seq)
        return records[after_seq : after_seq + limit] if limit else records[after_seq:]

    async def read_types(self, chat: ChatId, types: Container[str], after_seq: int = 0, limit: int = 0) -> list[Record]:
        records = [record for record in await self.read(chat, after_seq) if record.type in types]
        return records[:limit] if limit else records

    async def read_head(self, chat: ChatId) -> int:
        return self._find(chat).head

    async def wait(self, chat: ChatId, after_seq: int, timeout_s: float) -> int:
        entry = self._find(chat)
        return await _wait_beyond(after_seq, lambda: entry.head, entry.waiters, timeout_s)

    async def get(self, chat: ChatId) -> port.Listed:
        return self._make_listed(self._find(chat))

    async def list(
        self, chat_filter: port.ChatFilter = port.ALL_CHATS, *, limit: int = 0, cursor: port.Cursor | None = None
    ) -> list[port.Listed]:
        self._check_open()
        matches = [entry for entry in self._chats.values() if matches_filter(chat_filter, entry.summary, cursor)]
        matches.sort(key=lambda entry: make_cursor(entry.summary), reverse=True)
        return [self._make_listed(entry) for entry in (matches[:limit] if limit else matches)]

    async def list_changes(
        self, *, owner: str | None = None, after_change: int = 0, limit: int = 0
    ) -> Sequence[port.Listed]:
        self._check_open()
        entries = (*self._chats.values(), *self._deleted.values())
        matches = [each for each in entries if each.changed > after_change and owner in (None, each.summary.owner)]
        matches.sort(key=lambda entry: entry.changed)
        return [self._make_listed(entry) for entry in (matches[:limit] if limit else matches)]

    async def search_text(self, words: Sequence[str]) -> Mapping[ChatId, int]:
        self._check_open()
        looked_for = fold_words(words)
        return {
            chat: record.seq
            for chat, entry in self._chats.items()
            for record in reversed(entry.records)
            if (text := extract_text(record)) and all(word in text for word in looked_for)
        }

    async def wait_any(self, after_change: int, timeout_s: float) -> int:
        self._check_open()
        return await _wait_beyond(after_change, lambda: self._changed, self._waiters, timeout_s)

    async def claim(self, worker: str, chat: ChatId | None = None, *, now_ms: int = 0) -> port.Lease | None:
        self._check_open()
        if not worker:
            raise InvalidInput("a worker needs a name to claim a chat")
        now = self._clock.monotonic()
        if chat is not None:
            entry = self._find(chat)
            if entry.is_leased(now):
                raise ChatBusy(f"chat {chat} is held by the live worker {entry.worker}; wait until it is released")
        else:
            ready = [entry for entry in self._chats.values() if entry.is_claimable(now, now_ms)]
            if not ready:
                return None
            busy = Counter(entry.summary.owner for entry in self._chats.values() if entry.is_leased(now))
            entry = min(ready, key=lambda entry: (busy[entry.summary.owner], entry.get_wait_start(), entry.order))
        entry.epoch += 1
        entry.worker, entry.lease_until = worker, now + self._lease_s
        return port.Lease(entry.summary.chat, entry.epoch, worker, entry.head)

    async def renew(self, leases: Sequence[port.Lease]) -> Sequence[port.Lease]:
        self._check_open()
        held_leases = [lease for lease in leases if (entry := self._chats.get(lease.chat)) and entry.is_held_by(lease)]
        for lease in held_leases:
            self._chats[lease.chat].lease_until = self._clock.monotonic() + self._lease_s
        return held_leases

    async def release(self, lease: port.Lease) -> None:
        self._check_open()
        if (entry := self._chats.get(lease.chat)) is not None and entry.is_held_by(lease):
            entry.worker = ""

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

    async def save_snapshot(self, chat: ChatId, snapshot: port.Snapshot) -> None:
        self._find(chat).snapshot = snapshot

    async def load_snapshot(self, chat: ChatId) -> port.Snapshot | None:
        return self._find(chat).snapshot

    async def recall(self, owner: str, key: str) -> port.Remembered | None:
        self._check_open()
        return self._answers.get((owner, key))

    async def remember(self, answer: port.Remembered) -> None:
        self._check_open()
        self._check_new(answer)
        self._keep_answer(answer)

    async def put_deltas(self, deltas: Sequence[port.Delta]) -> None:
        self._check_open()
        for delta in deltas:
            entry = self._chats.get(delta.chat)
            if entry is not None and entry.worker and entry.epoch == delta.epoch:
                entry.deltas.append(delta)

    async def read_deltas(self, reached: Mapping[ChatId, port.Reach]) -> Sequence[port.Delta]:
        self._check_open()
        new_deltas: list[port.Delta] = []
        for chat, reach in reached.items():
            if (entry := self._chats.get(chat)) is not None:
                current = [delta for delta in entry.deltas if delta.epoch == entry.epoch]
                new_deltas += sorted((delta for delta in current if _get_reach(delta) > reach), key=_get_reach)
        return new_deltas

    async def close(self) -> None:
        self._closed = True
        waiting = [self._waiters]
        for entry in self._chats.values():
            entry.worker = ""
            waiting.append(entry.waiters)
        for waiter in (waiter for waiters in waiting for waiter in waiters if not waiter.done()):
            waiter.set_exception(StoreError("the store was closed during a wait"))

    def _find(self, chat: ChatId) -> _Chat:
        self._check_open()
        if (entry := self._chats.get(chat)) is None:
            raise NotFound(f"there is no chat {chat}")
        return entry

    def _check_open(self) -> None:
        if self._closed:
            raise StoreError("the store is closed; open a new one")

    def _make_listed(self, entry: _Chat) -> port.Listed:
        return port.Listed(entry.summary, entry.is_leased(self._clock.monotonic()), entry.changed)

    def _check_new(self, answer: port.Remembered | None) -> None:
        if answer is not None:
            first = self._answers.get((answer.owner, answer.key))
            if first is not None and first.time_ms >= answer.compute_expiry_ms():
                raise first.refuse()

    def _keep_answer(self, answer: port.Remembered | None) -> None:
        if answer is not None:
            oldest = answer.compute_expiry_ms()
            self._answers = {name: answer for name, answer in self._answers.items() if answer.time_ms >= oldest}
            self._answers[answer.owner, answer.key] = answer

    def _count_change(self, entry: _Chat) -> None:
        self._changed += 1
        entry.changed = self._changed
        for waiter in (*entry.waiters, *self._waiters):
            if not waiter.done():
                waiter.set_result(None)


async def _wait_beyond(
    threshold: int, now: Callable[[], int], waiters: set[asyncio.Future[None]], timeout_s: float
) -> int:
    """Wait until `now` returns more than `threshold`, or until the time is up; return its last value."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            while now() <= threshold:
                waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                waiters.add(waiter)
                try:
                    await waiter
                finally:
                    waiters.discard(waiter)
    return now()


def _get_reach(delta: port.Delta) -> port.Reach:
    return delta.epoch, delta.turn, delta.number
