"""Files whose last name goes, held open until a thread beside lets go of them. To give blocks back can take as long as
a sync (where the disk is told of each), and nobody has to wait for it: what counts is that the name is gone. After a
crash the file system itself frees what had no name."""

import _thread
import os
import resource
from contextlib import suppress
from typing import Self

_MOST = 256
"""So many are held at a time by this process, or a part of the descriptors that it may have …"""
_SHARE = 8
"""… and beyond that whoever takes the name away waits."""
_HOLD = getattr(os, "O_PATH", 0) | os.O_NOFOLLOW | os.O_CLOEXEC

_lock = _thread.allocate_lock()
_count = 0


def pending() -> int:
    """How many files are held at this moment."""
    return _count


class Freeing:
    """For the time in which names are taken away: what is held is freed when the block is left, or when there is no
    room for more."""

    def __init__(self) -> None:
        self._held: list[int] = []
        self._most = min(_MOST, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // _SHARE)

    def __enter__(self) -> Self:
        return self

    def hold(self, name: str, folder: int | None = None) -> None:
        """To be called before the name goes. Whatever cannot be held is freed at once."""
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
        held, self._held = self._held, []
        if not held:
            return
        try:
            _thread.start_new_thread(_let_go, (held,))  # whoever starts a `Thread` waits until it runs
        except RuntimeError:  # no more threads
            _let_go(held)


def _let_go(held: list[int]) -> None:
    while held:
        with suppress(OSError):
            os.close(held.pop())
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
