"""How long a background command has been idle: it wrote nothing, and nobody asked about it."""

import os
import time

from treadle.sandbox.supervisor.folder import TOUCHED


class Idle:
    """Idle for `limit_s` is too long; 0: never. Whether somebody asked is looked for only when it would be."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._since = time.monotonic()

    def wrote(self) -> None:
        self._since = time.monotonic()

    def earlier(self, deadline: "float | None") -> "float | None":
        """The deadline, or when it may have been idle for too long, whichever is first."""
        if not self._limit_s:
            return deadline
        due = self._since + self._limit_s
        return due if deadline is None else min(due, deadline)

    def too_long(self) -> bool:
        if not self._limit_s or time.monotonic() < self._since + self._limit_s:
            return False
        try:
            asked_s = max(0.0, time.time() - os.stat(TOUCHED).st_mtime)
        except OSError:
            return True
        self._since = max(self._since, time.monotonic() - asked_s)
        return asked_s >= self._limit_s
