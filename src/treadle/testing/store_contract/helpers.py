"""Small words for talking to a store in tests: chats with one record, appends, claims."""

from collections.abc import Sequence

import msgspec

from treadle.ports.store import Commit, Lease, Store
from treadle.protocol.views import ChatSummary
from treadle.protocol.wire import Record
from treadle.types import ChatId

A, B, C, NOBODY = ChatId("c_a"), ChatId("c_b"), ChatId("c_c"), ChatId("c_nobody")
WIDE = 64 * 1024
"""Larger than any store may want to keep in a row."""


def record(seq: int, body: bytes = b'{"turn":1}', *, epoch: int = 0) -> Record:
    return Record(seq, 1_700_000_000_000 + seq, "assistant.turn_start", 1, epoch, body)


def records(first: int, last: int) -> list[Record]:
    return [record(seq, b'{"turn":%d}' % seq) for seq in range(first, last + 1)]


def summary(chat: ChatId, head: int = 1, **changes: object) -> ChatSummary:
    return msgspec.structs.replace(ChatSummary(chat, head=head), **changes)


async def begin(store: Store, chat: ChatId, **changes: object) -> None:
    """A chat with one record."""
    await store.create(summary(chat, 1, **changes), [record(1)])


async def add(store: Store, chat: ChatId, seq: int, lease: Lease | None = None, **changes: object) -> None:
    await store.append(Commit(chat, [record(seq)], summary(chat, seq, **changes), lease=lease, durable=False))


async def claimed(store: Store, worker: str, chat: ChatId | None = None, *, now_ms: int = 0) -> Lease:
    lease = await store.claim(worker, chat, now_ms=now_ms)
    assert lease is not None
    return lease


def seqs(found: Sequence[Record]) -> list[int]:
    return [record.seq for record in found]
