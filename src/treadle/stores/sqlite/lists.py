"""Lists of chats as SQL: filters, pages, and what changed since (A-06, A-07). Only looks. Knows no threads."""

import sqlite3
from collections.abc import Sequence
from typing import Any

import msgspec

from treadle.errors import NotFound
from treadle.ports.store import Listed
from treadle.protocol.views import ChatSummary
from treadle.stores.listing import Wanted, beginnings, folded
from treadle.stores.sqlite.leases import Leases
from treadle.types import ChatId

_decoder = msgspec.json.Decoder(ChatSummary)
_COLUMNS = "SELECT id, summary, worker, lease_until, boot, changed FROM chats"

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
        row = self._connection.execute(f"{_COLUMNS} WHERE id = ?", (chat,)).fetchone()
        if row is None:
            raise NotFound(f"there is no chat {chat}")
        return self._listed(row)

    def list(self, wanted: Wanted, limit: int) -> Sequence[Listed]:
        conditions, values = _conditions(wanted)
        return self._select(f"{conditions} ORDER BY updated_ms DESC, id DESC", values, limit)

    def changes(self, owner: str | None, after: int, limit: int) -> Sequence[Listed]:
        conditions, values = _conditions(Wanted(owner))
        return self._select(f"{conditions} AND changed > ? ORDER BY changed", [*values, after], limit)

    def last_change(self) -> int:
        return int(self._connection.execute("SELECT coalesce(max(changed), 0) FROM chats").fetchone()[0])

    def _select(self, rest: str, values: Sequence[Any], limit: int) -> Sequence[Listed]:
        rows = self._connection.execute(f"{_COLUMNS} WHERE {rest} LIMIT ?", [*values, limit or -1])
        return [self._listed(row) for row in rows]

    def _listed(self, row: tuple[Any, ...]) -> Listed:
        chat, summary, worker, until_ms, boot, changed = row
        return Listed(_decode(chat, summary), self._leases.live(worker, until_ms, boot), changed)


def _conditions(wanted: Wanted) -> tuple[str, list[Any]]:
    """Only what is asked for: a condition that lets everything pass would keep an index from being used."""
    parts: list[tuple[str, tuple[Any, ...]]] = [("1", ())]
    if wanted.owner is not None:
        parts.append(("owner = ?", (wanted.owner,)))
    if wanted.archived is not None:
        parts.append(("archived = ?", (wanted.archived,)))
    if wanted.status is not None:
        parts.append(("status = ?", (wanted.status,)))
    if wanted.label is not None:
        parts.append((_LABELLED, (encode_label(wanted.label), wanted.label)))
    if wanted.query:
        first, second = beginnings(wanted.query)
        parts.append(
            (
                "(instr(title, ?) > 0 OR substr(id, 1, ?) = ? OR substr(id, 1, ?) = ?)",
                (folded(wanted.query), len(first), first, len(second), second),
            )
        )
    if wanted.before is not None:
        parts.append(("(updated_ms, id) < (?, ?)", wanted.before))
    return " AND ".join(text for text, _ in parts), [value for _, values in parts for value in values]


def encode_label(label: str) -> str:
    return msgspec.json.encode(label).decode()


def _decode(chat: str, body: bytes) -> ChatSummary:
    """One that cannot be read must not hide the chat, nor the others in a list; `treadle fsck` mends it."""
    try:
        return _decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, TypeError):
        return ChatSummary(ChatId(chat), status="error", title="(the summary is damaged: run treadle fsck)")
