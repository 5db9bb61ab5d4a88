"""Where the new bytes of files come from when changes are made: the upper folder of a view, or the kept images."""

import os
from collections.abc import Iterable
from typing import Protocol

from treadle.protocol.files import FileState
from treadle.workspace.history.images import Images


class Source(Protocol):
    """Paths are relative to the root, in the form of `encode_path`."""

    def open(self, path: str, state: FileState) -> int:
        """A regular file with the bytes that `path` shall have, open for reading at its beginning; whoever asks closes
        it. It stays what it is until the changes are made. ToolError if the bytes cannot be had."""
        ...

    def mtime_ns(self, path: str) -> int:
        """The time that the file shall have; 0: whenever it is written."""
        ...

    def touched(self) -> Iterable[tuple[str, int]]:
        """Files that stay as they are but for this time."""
        ...


class Kept:
    """What is kept of earlier states. Verified before it is used."""

    def __init__(self, images: Images) -> None:
        self._images = images

    def open(self, path: str, state: FileState) -> int:
        fd = self._images.open(state.digest)
        os.lseek(fd, 0, os.SEEK_SET)
        return fd

    def mtime_ns(self, path: str) -> int:
        return 0

    def touched(self) -> Iterable[tuple[str, int]]:
        return ()
