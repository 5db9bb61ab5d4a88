"""Which images each chat refers to, as of its last change: a pass reads only the logs of chats that have changed, and
after one that was cut short only the others. A cache; what is not in it is read."""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from treadle._version import __version__
from treadle.engine.effects import all_references
from treadle.file_system import replace_file
from treadle.housekeeping.retention import folder_of
from treadle.ports.store import Listed, Store

_FILE = "marks"


class Mark(msgspec.Struct, frozen=True, array_like=True):
    head: int
    updated_ms: int
    images: frozenset[str]


class _Kept(msgspec.Struct, frozen=True):
    version: str
    """Of the Treadle that read the logs: another one may see more in them."""
    marks: Mapping[str, Mark]


class Marks:
    """`remembers`: whether what an earlier pass has read is taken over."""

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
            found = [each async for _, each in all_references(self._store, summary.chat)]
            images = frozenset(each.digest for each in found if each.kind == "image")
            mark = Mark(summary.head, summary.updated_ms, images)
        self._seen[summary.chat] = mark
        return mark.images

    def write(self, *, all_seen: bool) -> None:
        """Keep what was read; and, unless all chats were asked for that there are, what was known of the others."""
        marks = self._seen if all_seen else {**self._known, **self._seen}
        if self._remembers and marks != self._known:
            replace_file(str(self._file), msgspec.msgpack.encode(_Kept(__version__, marks)))

    def _read(self) -> Mapping[str, Mark]:
        try:
            kept = msgspec.msgpack.decode(self._file.read_bytes(), type=_Kept)
        except (OSError, msgspec.MsgspecError):
            return {}
        return kept.marks if kept.version == __version__ else {}
