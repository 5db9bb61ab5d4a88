"""The operations that change the database: each is one call of one function (`migrations/0002_functions.sql`), whose
outcome words become errors. Every operation can be repeated after a lost connection without happening twice. Knows
nothing of waiting.
"""

from collections.abc import Sequence
from typing import Any
from uuid import uuid4

import asyncpg  # type: ignore[import-untyped]

from treadle.adapters.stores.integrity import check_gapless, contradiction
from treadle.adapters.stores.packing import Packed
from treadle.adapters.stores.postgres.connections import Connections, PgConnection
from treadle.adapters.stores.postgres.failures import ALREADY_ANSWERED, state
from treadle.adapters.stores.postgres.rows import answer_row, line
from treadle.base.faultpoint import faultpoint
from treadle.base.types import ChatId, Clock
from treadle.errors import ChatBusy, ChatExists, HeadMoved, LeaseLost, NotFound
from treadle.ports.store import ANSWERS_SWEPT, Commit, Delta, Lease, Remembered, Snapshot
from treadle.protocol.views import ChatSummary

_CREATE = "SELECT treadle_create($1, $2::treadle_packed[], $3, $4, $5, $6, $7, $8)"
_APPEND = (
    "SELECT outcome, head, epoch FROM treadle_append($1, $2, $3::treadle_packed[], $4, $5, $6, $7, $8, $9, $10, $11, "
    "$12, $13, $14, $15, $16, $17)"
)
_DELETE = "SELECT outcome, chat, worker FROM treadle_delete($1, $2, $3)"
_ENDS = "SELECT head, (SELECT coalesce(max(seq), 0) FROM events WHERE chat_no = no) AS last FROM chats WHERE id = $1"
_CLAIM = "SELECT outcome, chat, epoch, head FROM treadle_claim($1, $2, $3, $4, $5)"
_CLAIM_CHAT = "SELECT outcome, chat, epoch, head FROM treadle_claim_chat($1, $2, $3, $4, $5)"
_CLAIMED = "SELECT outcome, chat, epoch, head FROM treadle_claimed($1, $2)"


class WriteQueries:
    """`clock` times leases in tests; without one the database's own does."""

    def __init__(self, connections: Connections, clock: Clock | None, lease_s: float) -> None:
        self._connections = connections
        self._clock = clock
        self._lease_ms = int(lease_s * 1000)

    def now(self) -> int | None:
        return None if self._clock is None else int(self._clock.monotonic() * 1000)

    async def create(self, summary: ChatSummary, packed: Sequence[Packed], answer: Remembered | None) -> None:
        check_gapless(packed, 1)
        epoch = max((record.epoch for record in packed), default=0)

        async def work(connection: PgConnection, again: bool) -> str:
            faultpoint("store.before_commit")
            outcome: str = await connection.fetchval(
                _CREATE, summary.chat, packed, line(summary), epoch, *_answering(answer), again
            )
            faultpoint("store.after_commit")
            return outcome

        outcome = await self._unless_answered(work, answer)
        if outcome == "exists":
            raise ChatExists(f"chat {summary.chat} exists already; choose another id")

    async def append(self, commit: Commit, packed: Sequence[Packed]) -> None:
        chat, lease, take = commit.chat, commit.lease, commit.take
        first = packed[0].seq if packed else 0
        check_gapless(packed, first)
        lease_key = (lease.epoch, lease.worker) if lease is not None else (None, None)
        take_key = (take.epoch, take.worker) if take is not None else (None, None)
        if lease is not None and lease.chat != chat:
            raise LeaseLost(f"a lease of chat {lease.chat} does not belong to chat {chat}; write nothing more")

        async def work(connection: PgConnection, again: bool) -> Any:
            faultpoint("store.before_commit")
            row = await connection.fetchrow(
                _APPEND, chat, first, packed, line(commit.summary), commit.durable, *lease_key, *take_key,
                commit.release, *_answering(commit.answer), commit.drop_deltas, self._lease_ms, self.now(), again,
            )  # fmt: skip
            faultpoint("store.after_commit")
            return row["outcome"], row["head"], row["epoch"]

        outcome, head, epoch = await self._unless_answered(work, commit.answer)
        match outcome:
            case "not_found":
                raise NotFound(f"there is no chat {chat}")
            case "busy":
                raise ChatBusy(f"chat {chat} is held, or was meanwhile; it cannot be taken as epoch {take_key[0]}")
            case "lease_lost":
                raise LeaseLost(f"epoch {lease_key[0]} of chat {chat} is over (now {epoch}); write nothing more")
            case "head_moved":
                await self._check_agreement(chat)
                raise HeadMoved(f"chat {chat} is at {head}, not at {first - 1}; read on and try again")

    async def delete(self, chats: Sequence[ChatId], owner: str | None) -> None:
        async def work(connection: PgConnection, _: bool) -> Any:
            faultpoint("store.before_commit")
            row = await connection.fetchrow(_DELETE, list(chats), owner, self.now())
            faultpoint("store.after_commit")
            return row

        outcome, chat, worker = await self._connections.run(work)
        if outcome == "not_found":
            raise NotFound(f"there is no chat {chat}")
        if outcome == "busy":
            raise ChatBusy(f"chat {chat} is held by the live worker {worker}; stop it before you delete it")

    async def _check_agreement(self, chat: ChatId) -> None:
        """Raise if the log goes on after the chat's head, which is damage: no append could ever succeed."""
        row = await self._connections.run(lambda connection, _: connection.fetchrow(_ENDS, chat))
        if row is not None and row["last"] > row["head"]:
            raise contradiction(chat, row["head"], row["last"])

    async def claim(self, worker: str, chat: ChatId | None, now_ms: int) -> Lease | None:
        token = uuid4()

        async def work(connection: PgConnection, again: bool) -> Any:
            row = await connection.fetchrow(_CLAIMED, worker, token) if again else None
            if row is None or row["outcome"] is None:
                times = (self._lease_ms, self.now())
                if chat is None:
                    row = await connection.fetchrow(_CLAIM, worker, token, now_ms, *times)
                else:
                    row = await connection.fetchrow(_CLAIM_CHAT, chat, worker, token, *times)
            return row

        row = await self._connections.run(work)
        if chat is not None and row["outcome"] is None:
            raise NotFound(f"there is no chat {chat}")
        if row["outcome"] == "busy":
            raise ChatBusy(f"chat {chat} is held by the live worker {row['chat']}; wait until it is released")
        return Lease(ChatId(row["chat"]), row["epoch"], worker, row["head"]) if row["outcome"] else None

    async def renew(self, leases: Sequence[Lease]) -> list[Lease]:
        if not leases:
            return []
        rows = await self._connections.run(
            lambda connection, _: connection.fetch(
                "SELECT chat, epoch FROM treadle_renew($1, $2, $3, $4, $5)",
                *_columns(leases),
                self._lease_ms,
                self.now(),
            )
        )
        renewed = {(row["chat"], row["epoch"]) for row in rows}
        return [lease for lease in leases if (lease.chat, lease.epoch) in renewed]

    async def release(self, leases: Sequence[Lease]) -> None:
        await self._execute("SELECT treadle_release($1, $2, $3)", *_columns(leases))

    async def remember(self, answer: Remembered) -> None:
        async def work(connection: PgConnection, again: bool) -> str:
            if again and await _recall(connection, answer.owner, answer.key) == answer:
                return "done"
            row, oldest, sweep = _answering(answer)
            if await connection.fetchval("SELECT treadle_answered($1, $2)", row, oldest):
                return "answered"
            await connection.execute("SELECT treadle_remember($1, $2, $3)", row, oldest, sweep)
            return "done"

        await self._unless_answered(work, answer)

    async def recall(self, owner: str, key: str) -> Remembered | None:
        return await self._connections.run(lambda connection, _: _recall(connection, owner, key))

    async def save_snapshot(self, chat: ChatId, snapshot: Snapshot, body: bytes) -> None:
        has_chat = await self._connections.run(
            lambda connection, _: connection.fetchval(
                "SELECT treadle_save_snapshot($1, $2, $3)", chat, snapshot.seq, body
            )
        )
        if not has_chat:
            raise NotFound(f"there is no chat {chat}")

    async def put_deltas(self, deltas: Sequence[Delta]) -> None:
        if deltas:
            columns = zip(*((d.chat, d.epoch, d.turn, d.number, d.payload) for d in deltas), strict=True)
            await self._execute("SELECT treadle_put_deltas($1, $2, $3, $4, $5)", *map(list, columns))

    async def _execute(self, query: str, *values: object) -> None:
        await self._connections.run(lambda connection, _: connection.execute(query, *values))

    async def _unless_answered(self, work: Any, answer: Remembered | None) -> Any:
        """Do it, or raise AlreadyAnswered with what its key was answered first."""
        while True:
            try:
                outcome = await self._connections.run(work)
            except asyncpg.PostgresError as error:
                if state(error) != ALREADY_ANSWERED:
                    raise
                outcome = "answered"
            if answer is None or (outcome if isinstance(outcome, str) else outcome[0]) != "answered":
                return outcome
            if (first := await self.recall(answer.owner, answer.key)) is not None:
                raise first.refuse()


async def _recall(connection: PgConnection, owner: str, key: str) -> Remembered | None:
    row = await connection.fetchrow(
        "SELECT owner, key, request, status, body, time_ms FROM treadle_recall($1, $2)", owner, key
    )
    return Remembered(*row) if row is not None else None


def _answering(answer: Remembered | None) -> tuple[object, int, int]:
    return answer_row(answer), answer.expired_ms() if answer is not None else 0, ANSWERS_SWEPT


def _columns(leases: Sequence[Lease]) -> tuple[list[str], list[int], list[str]]:
    return [lease.chat for lease in leases], [lease.epoch for lease in leases], [lease.worker for lease in leases]
