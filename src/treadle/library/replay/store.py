"""The store in which a recorded chat is replayed: it knows the events that must be written next.

Order of events: input from outside is written where the record has it. When the engine is about to write and the record
has input from outside at that place, the store writes the input first and raises HeadMoved, as it happened then. Every
event that the engine writes is compared with the record. Where the record goes on under another epoch, or ends, the
worker had died: the engine is abandoned at that point, and the driver begins the next tenure.
"""

import asyncio
from collections.abc import Sequence
from typing import NoReturn

from treadle.adapters.stores.memory import MemoryStore
from treadle.base.types import ChatId
from treadle.chat.divergence import Divergence, diverge, is_same_event
from treadle.chat.fold import fold_all
from treadle.chat.state import ChatState
from treadle.chat.state import summary as summary_of
from treadle.errors import HeadMoved
from treadle.library.replay.recording import Recording, fault_of
from treadle.ports.store import Commit, Lease
from treadle.protocol import wire
from treadle.protocol.events import Envelope, Interrupted, RecordLost, SessionError
from treadle.protocol.views import ChatSummary
from treadle.protocol.wire import Record

NAMES = ("recorded", "replayed")
PATIENCE_S = 60.0


class ReplayStore(MemoryStore):
    def __init__(self, chat: ChatId, recording: Recording) -> None:
        super().__init__()
        self.chat = chat
        self.recording = recording
        self.now = 0
        """The head: how far the play has come."""
        self.epoch = 0
        self.left: asyncio.Future[Divergence | None] = asyncio.get_running_loop().create_future()

    async def open(self) -> None:
        """Write what there is before any worker's first word."""
        first = self.recording.inputs(0)
        await self.create(ChatSummary(self.chat), [wire.encode(envelope) for envelope in first])
        self.now = len(first)

    def begin(self, epoch: int) -> Lease:
        self.epoch = epoch
        self.left = asyncio.get_running_loop().create_future()
        return Lease(self.chat, epoch, "replay")

    async def events(self) -> list[Envelope]:
        return [wire.decode(self.chat, record) for record in await self.read(self.chat)]

    # -- writing ------------------------------------------------------------------------------------------------------

    async def append(self, commit: Commit) -> None:
        records = commit.records
        if commit.lease is not None and records[0].seq == self.now + 1:
            records = await self._compared([wire.decode(commit.chat, record) for record in records])
        await super().append(Commit(commit.chat, records, commit.summary, durable=commit.durable))
        self.now += len(records)
        if self.now == self.recording.cut and self.due() is None:
            await self.leave(None)  # the record is a copy that was cut here: the work that was under way ends here
        self._fail()

    async def admit(self) -> None:
        """Let in what came from outside before the next output."""
        arrived = [wire.encode(envelope) for envelope in self.recording.inputs(self.now)]
        if arrived:
            await super().append(Commit(self.chat, arrived, ChatSummary(self.chat), durable=False))
            self.now += len(arrived)

    async def _compared(self, envelopes: Sequence[Envelope]) -> list[Record]:
        """Return the records that may be written: all of them, or fewer where the record is a copy that was cut
        here.
        """
        due = self.due()
        if due is None:  # the worker wrote no more in the record: it died, or there was nothing to do
            state = fold_all(ChatState(chat=self.chat), await self.events())
            await self.leave(None if summary_of(state).runnable else self.differs(None, envelopes[0]))
        if due.seq > self.now + 1:
            await self.admit()
            raise HeadMoved("something came from outside, here as in the record")
        if not isinstance(envelopes[0].data, SessionError):
            self._fail()
        for envelope in envelopes:
            if envelope.seq - 1 == self.recording.cut:
                return [wire.encode(earlier) for earlier in envelopes if earlier.seq < envelope.seq]
            recorded = self.recording.at(envelope.seq)
            if recorded is None or recorded.epoch != self.epoch or not _is_alike(recorded, envelope):
                await self.leave(self.differs(recorded, envelope))
        return [wire.encode(envelope) for envelope in envelopes]

    # -- effects ------------------------------------------------------------------------------------------------------

    async def turn(self) -> Envelope:
        """Return the next event that the worker wrote; if it wrote no more, it died in this effect."""
        due = self.due()
        if due is None:
            await self.leave(None)
        self._fail()
        return due

    def _fail(self) -> None:
        """Where the record has a fault of Treadle itself next, it happens now: it is in the log by its name and its
        text only, and where exactly it struck makes no difference."""
        due = self.due()
        if due is not None and isinstance(due.data, SessionError) and due.data.error_class == "internal":
            raise fault_of(due.data)

    def due(self) -> Envelope | None:
        """Return the next event that this worker wrote, or None if it wrote no more."""
        due = self.recording.due(self.now)
        return due if due is not None and due.epoch == self.epoch else None

    async def turn_of(self, outcome: Envelope) -> None:
        """Wait until everything before this outcome was written: calls end in the order in which they ended then."""
        while (due := self.due()) is not None and due.seq < outcome.seq:
            await self.wait(self.chat, self.now, PATIENCE_S)

    async def perish(self) -> NoReturn:
        """A call that came to nothing: an interrupt ended it, or the worker died in it. Others beside it may have come
        to something before that."""
        while self.due() is not None:
            self._fail()
            if any(isinstance(envelope.data, Interrupted) for envelope in self.recording.inputs(self.now)):
                await self.stopped()
            await self.wait(self.chat, self.now, PATIENCE_S)
        await self.leave(None)

    async def stopped(self) -> NoReturn:
        """An interrupt ended the effect: let it in, and wait to be cancelled for it."""
        await self.admit()
        await self._forever()

    async def leave(self, divergence: Divergence | None) -> NoReturn:
        """Go no further in this tenure: the worker died here, or the play has left the record."""
        if not self.left.done():
            self.left.set_result(divergence)
        await self._forever()

    @staticmethod
    async def _forever() -> NoReturn:
        await asyncio.get_running_loop().create_future()
        raise AssertionError("nobody resolves this future")

    def differs(self, recorded: Envelope | None, replayed: Envelope | None) -> Divergence:
        at = next(side.seq for side in (recorded, replayed) if side is not None)
        return diverge(self.recording.events[: at - 1], recorded, replayed, NAMES)


def _is_alike(recorded: Envelope, replayed: Envelope) -> bool:
    """A record that was lost may have been anything."""
    return isinstance(recorded.data, RecordLost) or is_same_event(recorded, replayed)
