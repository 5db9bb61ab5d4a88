"""What one read from the network brought, as deltas in their order: text that came in a row is one delta, thinking
likewise, and of the provider's counts the last one counts. Knows no protocol."""

from treadle.protocol.content import Usage
from treadle.protocol.deltas import CallDelta, Delta, TextDelta, ThinkingDelta, UsageDelta


class Batch:
    """Collects the deltas of a read, read by read; `take` gives them out."""

    __slots__ = ("_out", "_said", "_text", "_thoughts", "_usage", "called")

    def __init__(self) -> None:
        self._out: list[Delta] = []
        self._text: list[str] = []
        self._thoughts: list[str] = []
        self._said = 0
        self._usage: Usage | None = None
        self.called = False
        """Whether there was a call in any of the reads."""

    @property
    def said(self) -> int:
        """Characters of text since the first read."""
        return self._said + sum(map(len, self._text))

    def say(self, text: str) -> None:
        if self._thoughts:
            self._flush()
        self._text.append(text)

    def think(self, text: str) -> None:
        if self._text:
            self._flush()
        self._thoughts.append(text)

    def put(self, delta: Delta) -> None:
        """Anything else: what was said before it stays before it."""
        if self._text or self._thoughts:
            self._flush()
        if type(delta) is CallDelta:
            self.called = True
        self._out.append(delta)

    def count(self, usage: Usage) -> None:
        self._usage = usage

    def take(self) -> list[Delta]:
        """The end of a read: all that it brought, and the last of its counts."""
        if self._text or self._thoughts:
            self._flush()
        if self._usage is not None:
            self._out.append(UsageDelta(self._usage))
            self._usage = None
        out, self._out = self._out, []
        return out

    def _flush(self) -> None:
        if self._text:
            if text := "".join(self._text):
                self._said += len(text)
                self._out.append(TextDelta(text))
            self._text.clear()
        if self._thoughts:
            if thought := "".join(self._thoughts):
                self._out.append(ThinkingDelta(thought))
            self._thoughts.clear()
