"""The tables beside the logs: answers to requests that may be repeated, and live text for other processes. Works on one
connection, inside the caller's transaction. Knows no threads."""

import sqlite3
from collections.abc import Mapping, Sequence

from treadle.base.types import ChatId
from treadle.ports.store import ANSWERS_SWEPT, Delta, Reach, Remembered

_RECALL = "SELECT owner, key, request, status, body, time_ms FROM answers WHERE owner = ? AND key = ?"
_REMEMBER = "INSERT OR REPLACE INTO answers (owner, key, request, status, body, time_ms) VALUES (?, ?, ?, ?, ?, ?)"
_SWEEP = "DELETE FROM answers WHERE no IN (SELECT no FROM answers WHERE time_ms < ? ORDER BY time_ms LIMIT ?)"
_PUT = (
    "INSERT OR REPLACE INTO deltas (chat_no, epoch, turn, number, payload) "
    "SELECT no, epoch, ?, ?, ? FROM chats WHERE id = ? AND epoch = ? AND worker <> ''"
)
_READ = (
    "SELECT d.epoch, d.turn, d.number, d.payload FROM chats AS c JOIN deltas AS d "
    "ON d.chat_no = c.no AND d.epoch = c.epoch WHERE c.id = ? AND (d.epoch, d.turn, d.number) > (?, ?, ?) "
    "ORDER BY d.turn, d.number"
)


class Answers:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def recall(self, owner: str, key: str) -> Remembered | None:
        row = self._connection.execute(_RECALL, (owner, key)).fetchone()
        return Remembered(*row) if row else None

    def check(self, answer: Remembered | None) -> None:
        """AlreadyAnswered, if it is."""
        if answer is not None:
            first = self.recall(answer.owner, answer.key)
            if first is not None and first.time_ms >= answer.expired_ms():
                raise first.refuse()

    def keep(self, answer: Remembered | None) -> None:
        """Store an answer, after `check`. Expired answers are removed, a few at a time."""
        if answer is not None:
            a = answer
            self._connection.execute(_SWEEP, (a.expired_ms(), ANSWERS_SWEPT))
            self._connection.execute(_REMEMBER, (a.owner, a.key, a.request, a.status, a.body, a.time_ms))


class Deltas:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def put(self, deltas: Sequence[Delta]) -> None:
        self._connection.executemany(_PUT, [(d.turn, d.number, d.payload, d.chat, d.epoch) for d in deltas])

    def read(self, reached: Mapping[ChatId, Reach]) -> list[Delta]:
        return [
            Delta(chat, *row)
            for chat, reach in reached.items()
            for row in self._connection.execute(_READ, (chat, *reach))
        ]

    def drop(self, chat_no: int) -> None:
        self._connection.execute("DELETE FROM deltas WHERE chat_no = ?", (chat_no,))
