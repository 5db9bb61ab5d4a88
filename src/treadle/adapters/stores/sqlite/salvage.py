"""Makes a new database from the readable part of a damaged one, beside it (D-06). The damaged file is not touched.

Rows are recognized by their shape, records verified by their checksums. `check` finds and reports the missing records
like any other damage.
"""

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path

import msgspec

from treadle.adapters.stores.sqlite import schema
from treadle.adapters.stores.sqlite.pages import Pages, Row, Value
from treadle.adapters.stores.sqlite.tables import PLACES
from treadle.base.types import ChatId
from treadle.protocol.events import RECORDED
from treadle.protocol.views import ChatSummary

_CHATS = (
    *("id", "head", "status", "runnable", "wake_ms", "archived", "owner", "updated_ms"),
    *("epoch", "worker", "lease_until", "boot", "summary"),
    *("title", "labels", "changed"),  # since the second migration
)
_EVENTS = ("time_ms", "type", "version", "epoch", "packing", "crc", "body")
_QUARANTINE = ("place", *_EVENTS, "reason")
_DELETED = ("id", "owner", "epoch", "changed", "summary")
_ANSWERS = ("owner", "key", "request", "status", "body", "time_ms")
_OF_FTS = "version"
"""Stands, with a number, in a table that FTS5 keeps."""
_FREE: Mapping[str, Value] = {"worker": "", "lease_until": 0, "boot": ""}

Columns = Mapping[str, Value]


class Salvaged(msgspec.Struct, frozen=True):
    path: Path
    chats: int
    records: int
    nameless: tuple[str, ...] = ()
    """Chats of which only records were found: their names are known only if an index has them."""


def salvaged_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.salvaged")


def salvage(path: Path) -> Salvaged:
    """Make a database of everything that can be read of the one at `path`. The result of an earlier attempt is
    replaced. OSError or sqlite3.Error: it cannot be read, or there is no room for another."""
    target = salvaged_path(path)
    new = target.with_name(target.name + ".new")
    _remove(new)
    try:
        schema.prepare(new, busy_s=1.0)
        with closing(schema.connect(new, busy_s=1.0)) as connection:
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("BEGIN IMMEDIATE")
            gathered = _Gathering(connection)
            for row in Pages(path).rows():
                gathered.take(row)
            nameless = gathered.finish()
            connection.execute("COMMIT")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            chats, records = connection.execute(
                "SELECT (SELECT count(*) FROM chats), (SELECT count(*) FROM events)"
            ).fetchone()
        _remove(target)
        new.replace(target)
    except BaseException:
        _remove(new)
        raise
    return Salvaged(target, chats, records, nameless)


def _remove(path: Path) -> None:
    for suffix in ("-wal", "-shm", ""):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


class _Gathering:
    """Rows on their way into a new database. Those of chats wait for the end: of a row that was moved, an older copy
    may be left, and the one with the longer log is newer."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._chats: dict[int, Columns] = {}
        self._ids: dict[int, str] = {}
        self._deleted: set[int] = set()

    def take(self, row: Row) -> None:
        number, values = row
        if number is None:
            self._take_name(values)
        elif number > 0 and values and values[0] is None:  # the first column is the number itself
            self._take_row(number, values[1:])

    def _take_row(self, number: int, values: tuple[Value, ...]) -> None:
        match len(values), values[0]:
            case ((16 | 13), str()):
                self._take_chat(number, dict(zip(_CHATS, values, strict=False)))
            case 7, int() if all(isinstance(value, int) for value in values[:6]):
                self._insert("events", ("place", *_EVENTS), (number, *values))
            case 1, str():
                self._insert("types", ("no", "name"), (number, *values))
            case 5, str():
                self._deleted.add(number)
                self._insert("deleted_chats", ("no", *_DELETED), (number, *values))
            case 9, int():
                self._insert("quarantine", _QUARANTINE, values)
            case 6, str():
                self._insert("answers", ("no", *_ANSWERS), (number, *values))
            case _:
                pass  # caches, and rows of which too much is lost

    def _take_chat(self, number: int, chat: Columns) -> None:
        head, known_head = chat["head"], self._chats.get(number, {"head": -1})["head"]
        if isinstance(head, int) and isinstance(known_head, int) and head > known_head:
            self._chats[number] = chat

    def _take_name(self, values: tuple[Value, ...]) -> None:
        """The names of types and of chats are in indexes, too."""
        match values:
            case str(name), int(number) if name in RECORDED:
                self._insert("types", ("no", "name"), (number, name))
            case str(name), int(number) if name != _OF_FTS:
                self._ids.setdefault(number, name)
            case _:
                pass

    def finish(self) -> tuple[str, ...]:
        """Put the chats in, and one for all records whose chat is lost; these are returned."""
        for number in self._deleted:  # what an old page still has of them
            self._chats.pop(number, None)
            self._connection.execute("DELETE FROM events WHERE place / ? = ?", (PLACES, number))
        for number, chat in sorted(self._chats.items()):
            self._put_chat(number, {**chat, **_FREE})
        query = f"SELECT place / {PLACES} AS chat, max(place % {PLACES}) FROM events GROUP BY chat"
        nameless: list[str] = []
        for number, last in self._connection.execute(query).fetchall():
            if number not in self._chats:
                nameless.append(self._ids.get(number, f"c_salvaged{number}"))
                self._put_chat(number, _unknown(nameless[-1], last))
        return tuple(nameless)

    def _put_chat(self, number: int, chat: Columns) -> None:
        self._insert("chats", ("no", *chat), (number, *chat.values()))

    def _insert(self, table: str, columns: Sequence[str], values: Iterable[Value]) -> None:
        marks = ", ".join("?" * len(columns))
        query = f"INSERT OR IGNORE INTO {table} ({', '.join(columns)}) VALUES ({marks})"
        self._connection.execute(query, tuple(values))


def _unknown(name: str, last: int) -> Columns:
    """A chat of which only records are left. There may have been more of them: so says its head, and what is missing
    is told as a lost record."""
    chat = ChatSummary(ChatId(name), head=last + 1)
    columns: Columns = {"id": name, "head": chat.head, "status": chat.status, "owner": "", "updated_ms": 0}
    return {**columns, "runnable": 0, "wake_ms": 0, "archived": 0, "summary": msgspec.json.encode(chat)}
