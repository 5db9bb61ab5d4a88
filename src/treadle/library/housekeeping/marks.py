"""A cache of the images that each chat refers to, as of its last change. A pass reads only the logs of chats that have
changed; a pass after an interrupted one reads only the logs that are left. A chat that is not in the cache is read."""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from treadle._version import __version__
from treadle.base.file_system import replace_file
from treadle.engine.effects import all_references
from treadle.library.housekeeping.retention import folder_of
from treadle.ports.store import Listed, Store

_FILE = "marks"


class Mark(msgspec.Struct, frozen=True, array_like=True):
    head: int
    updated_ms: int
    images: frozenset[str]


class _MarksFile(msgspec.Struct, frozen=True):
    version: str
    """Of the Treadle that read the logs: another one may see more in them."""
    marks: Mapping[str, Mark]


class Marks:
    """`remembers`: True to reuse the marks that an earlier pass has stored."""

    def __init__(self, store: Store, home: Path, *, remembers: bool) -> None:
        self._store = store
        self._file = folder_of(home) / _FILE
        self._known: Mapping[str, Mark] = self._read() if remembers else {}
        self._seen: dict[str, Mark] = {}
        self._remembers = remembers

    def knows(self, listed: Listed) -> bool:
        mark, summary = self._known.get(listed.summary.chat), listed.summary
        return mark is not None and (mark.head, mark.updated_ms) == (summary.head, summary.updated_ms)

    async def of(self, listed: Listed) -> frozenset[str]:
        summary = listed.summary
        if self.knows(listed):
            mark = self._known[summary.chat]
        else:
            references = [each async for _, each in all_references(self._store, summary.chat)]
            images = frozenset(each.digest for each in references if each.kind == "image")
            mark = Mark(summary.head, summary.updated_ms, images)
        self._seen[summary.chat] = mark
        return mark.images

    def write(self, *, all_seen: bool) -> None:
        """Keep what was read; and, unless all chats were asked for that there are, what was known of the others."""
        marks = self._seen if all_seen else {**self._known, **self._seen}
        if self._remembers and marks != self._known:
            replace_file(str(self._file), msgspec.msgpack.encode(_MarksFile(__version__, marks)))

    def _read(self) -> Mapping[str, Mark]:
        try:
            stored_marks = msgspec.msgpack.decode(self._file.read_bytes(), type=_MarksFile)
        except (OSError, msgspec.MsgspecError):
            return {}
        return stored_marks.marks if stored_marks.version == __version__ else {}
