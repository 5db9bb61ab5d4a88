"""Small files as they were read for an effect, for the commit that follows at once: it need not read them again. What
was there counts only as long as its status says that nobody has touched it since; what comes is known by its hash.
Opens nothing."""

import os
import time

import msgspec

from treadle.protocol.files import FileState
from treadle.workspace.history.states import FileContent, signature

_ROOM = 16 << 20
"""So many bytes are held together."""
_TICK_NS = 10_000_000
"""No clock that stamps files goes in coarser steps, unless all its stamps are multiples of this."""


class _Before(msgspec.Struct, frozen=True):
    status: tuple[int, ...] | None
    digest: str
    data: bytes


class SeenFiles:
    def __init__(self) -> None:
        self._before: dict[str, _Before] = {}
        self._after: dict[str, bytes] = {}
        self._room = _ROOM

    def note(self, path: str, found: os.stat_result, before: FileContent, after: FileContent) -> None:
        """What a path was, `found` before it was read, and what it becomes."""
        for content in (before, after):
            if content.data is not None:
                self._room -= len(content.data)
        if self._room < 0:
            return
        if before.data is not None and _told_by_its_time(found):
            self._before[path] = _Before(signature(found), before.state.digest, before.data)
        if after.data is not None:
            self._after[after.state.digest] = after.data

    def before(self, path: str, state: FileState, now: os.stat_result | None) -> bytes | None:
        """The bytes of what a path was and is, by its status; None if they are not known."""
        known = self._before.get(path)
        if known is None or known.digest != state.digest or known.status != signature(now):
            return None
        return known.data

    def after(self, digest: str) -> bytes | None:
        return self._after.get(digest)


def _told_by_its_time(found: os.stat_result) -> bool:
    """Whether a change from now on would show: it gets another time than the last one."""
    return bool(found.st_ctime_ns % _TICK_NS) and time.time_ns() - found.st_ctime_ns > 2 * _TICK_NS
