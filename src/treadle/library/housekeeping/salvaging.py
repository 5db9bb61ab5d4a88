"""The repair of a database with damaged pages by `treadle fsck`: every readable record is copied into a new database
beside it, which is then checked, repaired and reported (D-06). The damaged file is not changed."""

import asyncio
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

import msgspec

from treadle.adapters.stores.integrity import Problem
from treadle.adapters.stores.sqlite import SqliteStore
from treadle.adapters.stores.sqlite.salvage import Salvaged, salvage
from treadle.base.types import ChatId
from treadle.chat.fold import fold_all
from treadle.chat.state import ChatState, summary
from treadle.errors import StoreError
from treadle.ports.store import Commit
from treadle.protocol import wire


class Rescue(msgspec.Struct, frozen=True):
    """The result of a salvage: the records saved and the records lost."""

    salvaged: Salvaged
    lost_records: dict[str, int]
    """By chat: how many records are lost, as far as that can be known."""
    problems: tuple[Problem, ...]

    @property
    def intact_chats(self) -> int:
        """How many chats have lost nothing."""
        return self.salvaged.chats - len(self.lost_records)


async def rescue(path: Path) -> Rescue:
    """Make a sound database of what can be read of a damaged one. StoreError if there can be none."""
    try:
        salvaged = await asyncio.to_thread(salvage, path)
    except (OSError, sqlite3.Error) as error:
        raise StoreError(f"nothing can be salvaged of {path}: {error}") from error
    store = SqliteStore(salvaged.path)
    try:
        problems = await store.check(repair=True)
        touched = {problem.chat for problem in problems if problem.kind in ("gap", "record", "head", "summary")}
        lost_records = {}
        for chat in sorted(touched | set(salvaged.nameless)):
            lost_records[chat] = await _put_right(store, ChatId(chat))
    finally:
        await store.close()
    _leave_one_file(salvaged.path)
    return Rescue(salvaged, {chat: count for chat, count in lost_records.items() if count}, tuple(problems))


async def _put_right(store: SqliteStore, chat: ChatId) -> int:
    """The line about a chat, anew from its log; how many of its records are lost."""
    log = [wire.decode(chat, record) for record in await store.read(chat)]
    state = fold_all(ChatState(chat=chat), log)
    await store.append(Commit(chat, (), summary(state), durable=True))
    return sum(envelope.type == "session.record_lost" for envelope in log)


def _leave_one_file(path: Path) -> None:
    """So that the new database can be put in the old one's place as one file."""
    with suppress(sqlite3.Error), closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
