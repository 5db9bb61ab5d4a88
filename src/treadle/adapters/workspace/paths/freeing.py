"""Files whose last name is removed, held open until a thread closes them. Freeing blocks can take as long as a sync
(where the disk is told of each), and the caller need not wait for it: it needs only the name to be gone. After a crash
the file system itself frees files without a name."""

import _thread
import os
import resource
from contextlib import suppress
from typing import Self

_MOST = 256
"""So many are held at a time by this process, or a part of the descriptors that it may have …"""
_SHARE = 8
"""… and beyond that the caller that removes the name waits."""
_HOLD = getattr(os, "O_PATH", 0) | os.O_NOFOLLOW | os.O_CLOEXEC

_lock = _thread.allocate_lock()
_count = 0


def pending() -> int:
    """How many files are held at this moment."""
    return _count


class Freeing:
    """Holds files while their names are removed: they are freed when the block is left, or when there is no room for
    more."""

    def __init__(self) -> None:
        self._held: list[int] = []
        self._most = min(_MOST, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // _SHARE)

    def __enter__(self) -> Self:
        return self

    def hold(self, name: str, folder: int | None = None) -> None:
        """Hold a file; to be called before its name is removed. A file that cannot be held is freed at once."""
        if not hasattr(os, "O_PATH"):
            return
        if not _take(self._most):
            if len(self._held) >= self._most // 2:  # there will be room again
                self._begin()
            return
        try:
            self._held.append(os.open(name, _HOLD, dir_fd=folder))
        except OSError:
            _give_back()

    def __exit__(self, *_: object) -> None:
        self._begin()

    def _begin(self) -> None:
        descriptors, self._held = self._held, []
        if not descriptors:
            return
        try:
            _thread.start_new_thread(_let_go, (descriptors,))  # starting a `Thread` would wait until it runs
        except RuntimeError:  # no more threads
            _let_go(descriptors)


def _let_go(descriptors: list[int]) -> None:
    while descriptors:
        with suppress(OSError):
            os.close(descriptors.pop())
        _give_back()


def _take(most: int) -> bool:
    global _count
    with _lock:
        if _count >= most:
            return False
        _count += 1
        return True


def _give_back() -> None:
    global _count
    with _lock:
        _count -= 1
