"""The table of what was said (U-04), which the server looks through itself. A cache: no transaction waits for it, and
what a crash of the server takes from it is put in again."""

import asyncio
from collections.abc import Sequence
from typing import Any

from treadle.adapters.stores.postgres import rows
from treadle.adapters.stores.postgres.connections import Connections, PgConnection
from treadle.adapters.stores.text_index import SPOKEN, Part, UnindexedRange, fold_words, parts
from treadle.base.types import ChatId

_BEHIND = (
    "SELECT no, coalesce(done, 0) AS done, head, id FROM chats "
    "LEFT JOIN (SELECT chat_no, max(last) AS done FROM said GROUP BY chat_no) AS taken ON chat_no = no "
    "WHERE head > coalesce(done, 0) ORDER BY updated_ms DESC"
)
_SPOKEN = (
    f"SELECT {rows.RECORD} FROM events WHERE chat_no = $1 AND seq > $2 AND seq <= $3 AND type = ANY ($4::text[]) "
    "ORDER BY seq"
)
# If two processes index the same records at once, the one that has seen more replaces the other's row: nothing is lost.
_KEEP = (
    "INSERT INTO said (chat_no, first, last, text) "
    "SELECT p.* FROM unnest($1::bigint[], $2::int[], $3::int[], $4::text[]) AS p (chat_no, first, last, text) "
    "JOIN chats AS c ON c.no = p.chat_no FOR KEY SHARE OF c "
    "ON CONFLICT (chat_no, first) DO UPDATE SET last = excluded.last, text = excluded.text "
    "WHERE said.last < excluded.last"
)


class TextTable:
    def __init__(self, connections: Connections) -> None:
        self._run = connections.run

    async def list_unindexed(self) -> list[UnindexedRange]:
        """Chats of which something is missing here, the newest first."""
        matches = await self._run(lambda connection, _: connection.fetch(_BEHIND))
        return [UnindexedRange(*row[:3]) for row in matches]

    async def take_in(self, chats: Sequence[UnindexedRange]) -> None:
        async def work(connection: PgConnection, _: bool) -> None:
            index_parts: list[Part] = []
            for chat in chats:
                message_rows = await connection.fetch(_SPOKEN, *chat, [*SPOKEN])
                index_parts += await asyncio.to_thread(_parts, chat, message_rows)
            await connection.execute(_KEEP, *map(list, zip(*index_parts, strict=True)))

        await self._run(work)

    async def chats(self, words: Sequence[str]) -> dict[ChatId, int]:
        """`Store.said`."""
        looked_for = fold_words(words)
        conditions = [f"position(${number} IN text) > 0" for number in range(1, len(looked_for) + 1)]
        query = (
            "SELECT id, min(first) FROM said JOIN chats ON no = chat_no "
            f"WHERE {' AND '.join(conditions) or 'true'} GROUP BY id"
        )

        async def work(connection: PgConnection, _: bool) -> dict[ChatId, int]:
            first_seqs = {ChatId(chat): first for chat, first in await connection.fetch(query, *looked_for)}
            for _no, after_seq, _head, chat in await connection.fetch(_BEHIND):
                first_seqs.setdefault(ChatId(chat), after_seq + 1)
            return first_seqs

        return await self._run(work)


def _parts(chat: UnindexedRange, message_rows: Sequence[Any]) -> list[Part]:
    return [*parts(chat, map(rows.unpack, message_rows))]
