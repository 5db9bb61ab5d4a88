"""The texts of files as a chat left them, for as long as they happen to be there. They are the common ground on which
somebody's later edits can be merged with an undo, and the other side of the diff that shows those edits; nothing is
lost without them. So they are small, not made to last, and never a reason to fail."""

import hashlib
import os
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from treadle.errors import ToolError
from treadle.file_system import replace_file
from treadle.lines.hunks import is_text
from treadle.protocol.files import FileChange, FileState, git_unit
from treadle.workspace.history.states import Folders, reading

LEFT = "left"
"""Where they lie, beside the images."""
_LARGEST = 1 << 20
_MOST = 500
"""So many files of one set of changes are remembered."""


class Leavings:
    """Texts by their SHA-256 in one folder, which is made when first needed."""

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)

    def remember(self, root: str, changes: Iterable[FileChange]) -> None:
        """What these changes left, as it is on disk now."""
        wanted = [(each.path, each.after) for each in changes if each.after is not None and _is_wanted(each)]
        if not wanted:
            return
        with suppress(OSError), Folders(root) as folders:
            for path, state in wanted[:_MOST]:
                with suppress(OSError, ToolError):
                    self._keep(folders, path, state)

    def read(self, digest: str) -> bytes | None:
        """The text of this hash, if it is there and whole."""
        try:
            data = Path(self._place(digest)).read_bytes()
        except OSError:
            return None
        return data if hashlib.sha256(data).hexdigest() == digest else None

    def sweep(self, older_than_s: float) -> int:
        """Remove what was left so long ago; how many bytes that were."""
        before, size = time.time() - older_than_s, 0
        for path in self._all():
            with suppress(OSError):
                found = os.lstat(path)
                if found.st_mtime < before:
                    os.unlink(path)
                    size += found.st_size
        return size

    def size(self) -> int:
        return sum(os.lstat(path).st_size for path in self._all())

    def _keep(self, folders: Folders, path: str, state: FileState) -> None:
        place = self._place(state.digest)
        if os.path.exists(place):
            os.utime(place)
            return
        with reading(*folders.of(path)) as fd:
            data = os.pread(fd, _LARGEST + 1, 0)
        if hashlib.sha256(data).hexdigest() != state.digest or not is_text(data):
            return
        os.makedirs(os.path.dirname(place), 0o700, exist_ok=True)
        replace_file(place, data)

    def _place(self, digest: str) -> str:
        return os.path.join(self._folder, digest[:2], digest)

    def _all(self) -> list[str]:
        return [os.path.join(above, name) for above, _, names in os.walk(self._folder) for name in names]


def _is_wanted(change: FileChange) -> bool:
    after = change.after
    small = after is not None and after.kind == "file" and after.size <= _LARGEST
    return small and not change.ignored and not git_unit(change.path)
