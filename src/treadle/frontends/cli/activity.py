"""The status line of a silent activity: a model that thinks, a command that runs. It moves and counts the seconds, so
that waiting does not look like hanging. On a terminal only."""

import asyncio
import time
from contextlib import suppress

from treadle.frontends.cli.terminal import Terminal

_TICK_S = 0.25
_FRAMES, _ASCII_FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏", "-\\|/"


class Activity:
    def __init__(self, terminal: Terminal, *, moves: bool) -> None:
        self._terminal = terminal
        self._moves = moves and terminal.live
        self._text = self._tail = ""
        self._since = 0.0
        self._ticks = 0
        self._timer: asyncio.TimerHandle | None = None

    def show(self, text: str, tail: str = "") -> None:
        """Show the activity `text` and the last news about it, `tail`. The same text is the same activity, and its
        clock continues."""
        fresh = text != self._text or not self._terminal.has_status
        if fresh and text != self._text:
            self._since = time.monotonic()
        self._text, self._tail = text, tail
        self._draw("" if fresh else self._clock())
        if self._moves and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_TICK_S, self._tick)

    def end(self) -> None:
        """It is over: the same again begins anew."""
        self._text = ""

    def _tick(self) -> None:
        self._timer = None
        if self._terminal.has_status:
            self._ticks += 1
            with suppress(OSError):  # a timer has no caller to report to; the next event raises the error
                self._draw(self._clock())
            self._timer = asyncio.get_running_loop().call_later(_TICK_S, self._tick)

    def _draw(self, clock: str) -> None:
        self._terminal.status(" ".join(part for part in (self._text, clock, self._tail) if part))

    def _clock(self) -> str:
        frames = _ASCII_FRAMES if self._terminal.ascii else _FRAMES
        seconds = int(time.monotonic() - self._since)
        return frames[self._ticks % len(frames)] + (f" {seconds} s" if seconds else "")
