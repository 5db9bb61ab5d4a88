"""Lists of chats as SQL: filters, pages, and what changed since (A-06, A-07). Only looks. Knows no threads."""

import sqlite3
from collections.abc import Sequence
from typing import Any

import msgspec

from treadle.adapters.stores.listing import beginnings, decode_summary, folded
from treadle.adapters.stores.sqlite.leases import Leases
from treadle.adapters.stores.sqlite.rows import row_of
from treadle.base.types import ChatId
from treadle.ports.store import ChatFilter, Cursor, Listed

_COLUMNS = "SELECT id, summary, worker, lease_until, boot, changed FROM chats"
LAST_CHANGE = (
    "max((SELECT coalesce(max(changed), 0) FROM chats), (SELECT coalesce(max(changed), 0) FROM deleted_chats))"
)
# One statement, and so one moment: a change between two would be passed over.
_CHANGES = (
    f"{_COLUMNS} WHERE {{0}} AND changed > ? UNION ALL "
    "SELECT id, summary, '', 0, '', changed FROM deleted_chats WHERE {0} AND changed > ? ORDER BY changed LIMIT ?"
)

# The first condition is quick and finds too many: the text of one label may stand inside another.
_LABELLED = (
    "instr(labels, ?) > 0 AND EXISTS "
    "(SELECT 1 FROM json_each(CASE WHEN json_valid(labels) THEN labels ELSE '[]' END) WHERE value = ?)"
)


class Lists:
    def __init__(self, connection: sqlite3.Connection, leases: Leases) -> None:
        self._connection = connection
        self._leases = leases

    def get(self, chat: ChatId) -> Listed:
        return self._listed(row_of(self._connection, f"{_COLUMNS} WHERE id = ?", chat))

    def list(self, chat_filter: ChatFilter, limit: int, cursor: Cursor | None) -> Sequence[Listed]:
        conditions, values = _conditions(chat_filter, cursor)
        return self._select(f"{conditions} ORDER BY updated_ms DESC, id DESC", values, limit)

    def changes(self, owner: str | None, after_change: int, limit: int) -> Sequence[Listed]:
        conditions, values = _conditions(ChatFilter(owner), None)
        rows = self._connection.execute(
            _CHANGES.format(conditions), [*values, after_change, *values, after_change, limit or -1]
        )
        return [self._listed(row) for row in rows]

    def last_change(self) -> int:
        return int(self._connection.execute(f"SELECT {LAST_CHANGE}").fetchone()[0])

    def _select(self, clause: str, values: Sequence[Any], limit: int) -> Sequence[Listed]:
        rows = self._connection.execute(f"{_COLUMNS} WHERE {clause} LIMIT ?", [*values, limit or -1])
        return [self._listed(row) for row in rows]

    def _listed(self, row: tuple[Any, ...]) -> Listed:
        chat, summary, worker, until_ms, boot, change_number = row
        return Listed(decode_summary(chat, summary), self._leases.live(worker, until_ms, boot), change_number)


def _conditions(chat_filter: ChatFilter, cursor: Cursor | None) -> tuple[str, list[Any]]:
    """Only what is asked for: a condition that lets everything pass would keep an index from being used."""
    parts: list[tuple[str, tuple[Any, ...]]] = [("1", ())]
    if chat_filter.owner is not None:
        parts.append(("owner = ?", (chat_filter.owner,)))
    if chat_filter.archived is not None:
        parts.append(("archived = ?", (chat_filter.archived,)))
    if chat_filter.status is not None:
        parts.append(("status = ?", (chat_filter.status,)))
    if chat_filter.label is not None:
        parts.append((_LABELLED, (msgspec.json.encode(chat_filter.label).decode(), chat_filter.label)))
    if chat_filter.query:
        first, second = beginnings(chat_filter.query)
        parts.append(
            (
                "(instr(title, ?) > 0 OR substr(id, 1, ?) = ? OR substr(id, 1, ?) = ?)",
                (folded(chat_filter.query), len(first), first, len(second), second),
            )
        )
    if cursor is not None:
        parts.append(("(updated_ms, id) < (?, ?)", cursor))
    return " AND ".join(text for text, _ in parts), [value for _, values in parts for value in values]
