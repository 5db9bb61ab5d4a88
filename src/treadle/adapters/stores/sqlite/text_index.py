"""The index of messages (U-04): the trigrams of each part, by FTS5; a cache, made by the first search. A SQLite without
FTS5 does without: then every chat may have the words. Knows no threads."""

import sqlite3
from collections.abc import Callable, Iterator, Sequence

from treadle.adapters.stores.text_index import SPOKEN, Part, UnindexedRange, build_parts, fold_words
from treadle.base.types import ChatId
from treadle.errors import StoreError
from treadle.protocol.wire import Record

# Neither texts nor places are kept, only which part has which trigrams: four tenths of the size of the texts.
_MAKE = (
    "CREATE VIRTUAL TABLE IF NOT EXISTS said USING fts5 "
    "(text, content = '', detail = none, columnsize = 0, tokenize = 'trigram case_sensitive 1')",
    "CREATE TABLE IF NOT EXISTS said_parts "
    "(no INTEGER PRIMARY KEY, chat_no INTEGER NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL)",
    "CREATE INDEX IF NOT EXISTS said_parts_of ON said_parts (chat_no, last)",
)
_MADE = "SELECT count(*) FROM sqlite_master WHERE name = 'said'"
_LAST = "(SELECT coalesce(max(last), 0) FROM said_parts WHERE chat_no = chats.no)"
# Without a row for a chat that was deleted meanwhile.
_DONE = "SELECT (SELECT coalesce(max(last), 0) FROM said_parts WHERE chat_no = no) FROM chats WHERE no = ?"
_BEHIND = f"SELECT no, {_LAST} AS done, head, id FROM chats WHERE head > done ORDER BY updated_ms DESC"
_CHATS = "SELECT id, min(first) FROM said_parts JOIN chats ON chats.no = chat_no WHERE {} GROUP BY chat_no"
_HAS = "SELECT 1 FROM said_parts WHERE chat_no = ? LIMIT 1"
_MATCHING = "said_parts.no IN (SELECT rowid FROM said WHERE said MATCH ?)"
GRAM = 3
MOST_GRAMS = 64  # Of very long words the beginning is looked up.


class TextIndex:
    """`records` returns the records of some types in a chat, between two numbers."""

    def __init__(
        self, connection: sqlite3.Connection, records: Callable[[Sequence[str], int, int, int], Iterator[Record]]
    ) -> None:
        self._connection, self._records = connection, records

    def list_unindexed(self) -> list[UnindexedRange]:
        return [UnindexedRange(*row[:3]) for row in self._query_unindexed()]

    def read_parts(self, chats: Sequence[UnindexedRange]) -> list[Part]:
        return [part for chat in chats for part in build_parts(chat, self._records(SPOKEN, *chat))]

    def keep(self, index_parts: Sequence[Part]) -> None:
        """Store parts, in a transaction. Parts that another process has indexed meanwhile are skipped."""
        try:
            for statement in _MAKE:
                self._connection.execute(statement)
        except sqlite3.OperationalError as error:
            if "no such" not in str(error):
                raise
            raise StoreError("this SQLite has no FTS5 with trigrams: nothing can be indexed") from error
        for part in index_parts:
            if self._connection.execute(_DONE, part[:1]).fetchone() != (part.first - 1,):
                continue
            insert = "INSERT INTO said_parts (chat_no, first, last) VALUES (?, ?, ?)"
            number = self._connection.execute(insert, part[:3]).lastrowid
            if part.text:
                self._connection.execute("INSERT INTO said (rowid, text) VALUES (?, ?)", (number, part.text))

    def forget(self, chat_no: int) -> None:
        """Remove every trace of a chat, in a transaction. FTS5 can take one text out of an index without texts only if
        it gets the same text again, so the whole index is emptied; the next searches fill it again."""
        if self._has_table() and self._connection.execute(_HAS, (chat_no,)).fetchone():
            self._connection.execute("INSERT INTO said (said) VALUES ('delete-all')")
            self._connection.execute("DELETE FROM said_parts")

    def find_chats(self, words: Sequence[str]) -> dict[ChatId, int]:
        first_seqs: dict[ChatId, int] = {}
        if self._has_table():
            grams = _build_gram_query(words)
            query = _CHATS.format(_MATCHING if grams else "true")
            first_seqs.update(self._connection.execute(query, [grams] if grams else []).fetchall())
        for _, after_seq, _, chat in self._query_unindexed():
            first_seqs.setdefault(ChatId(chat), after_seq + 1)
        return first_seqs

    def _query_unindexed(self) -> list[tuple[int, int, int, str]]:
        return self._connection.execute(_BEHIND if self._has_table() else _BEHIND.replace(_LAST, "0")).fetchall()

    def _has_table(self) -> bool:
        return bool(self._connection.execute(_MADE).fetchone()[0])


def _build_gram_query(words: Sequence[str]) -> str:
    """The trigrams of the words, all of which are wanted, as a query of FTS5; of a shorter word there is none."""
    grams = [word[at : at + GRAM] for word in fold_words(words) for at in range(min(len(word) - GRAM + 1, MOST_GRAMS))]
    return " ".join('"{}"'.format(gram.replace('"', '""')) for gram in dict.fromkeys(grams))
