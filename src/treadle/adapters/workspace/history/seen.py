"""Small files as they were read for an effect, for the commit that follows at once: it need not read them again. Old
content counts only while the file's status shows that it is unchanged; new content is known by its hash. Opens nothing.
"""

import os
import time

import msgspec

from treadle.adapters.workspace.history.states import FileContent, signature
from treadle.protocol.files import FileState

_ROOM = 16 << 20
"""So many bytes are held together."""
_TICK_NS = 10_000_000
"""No clock that stamps files goes in coarser steps, unless all its stamps are multiples of this."""


class _OldContent(msgspec.Struct, frozen=True):
    status: tuple[int, ...] | None
    digest: str
    data: bytes


class SeenFiles:
    def __init__(self) -> None:
        self._before: dict[str, _OldContent] = {}
        self._after: dict[str, bytes] = {}
        self._room = _ROOM

    def note(self, path: str, status: os.stat_result, old_content: FileContent, new_content: FileContent) -> None:
        """Note the old and the new content of a path. `status`: its status before it was read."""
        for content in (old_content, new_content):
            if content.data is not None:
                self._room -= len(content.data)
        if self._room < 0:
            return
        if old_content.data is not None and _told_by_its_time(status):
            self._before[path] = _OldContent(signature(status), old_content.state.digest, old_content.data)
        if new_content.data is not None:
            self._after[new_content.state.digest] = new_content.data

    def get_old_bytes(self, path: str, state: FileState, now: os.stat_result | None) -> bytes | None:
        """The bytes of what a path was and is, by its status; None if they are not known."""
        noted = self._before.get(path)
        if noted is None or noted.digest != state.digest or noted.status != signature(now):
            return None
        return noted.data

    def get_new_bytes(self, digest: str) -> bytes | None:
        return self._after.get(digest)


def _told_by_its_time(status: os.stat_result) -> bool:
    """True if a change from now on would be visible: it gets another ctime than the last one."""
    return bool(status.st_ctime_ns % _TICK_NS) and time.time_ns() - status.st_ctime_ns > 2 * _TICK_NS
