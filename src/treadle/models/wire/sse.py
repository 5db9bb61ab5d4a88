"""Server-sent events from bytes, by the WHATWG rules, however the network cut them. Knows nothing of models.

Linear in the bytes fed, whatever their shape: text is decoded once, a line is joined once. The common events, a
`data: ` line alone or after an `event: ` line, take paths of their own.
"""

import codecs

import msgspec

from treadle.models.wire.limits import EVENT_BYTES, TooMuch


class ServerEvent(msgspec.Struct, frozen=True, gc=False):
    event: str
    data: str
    id: str = ""
    """The last id that the stream set, in this event or before."""
    retry: int | None = None
    """The reconnection time in milliseconds, if this event set one."""


class Decoder:
    """Takes bytes as they come, gives events as they are complete. What is unfinished at the end is no event."""

    def __init__(self) -> None:
        self._cut = codecs.getincrementaldecoder("utf-8")("replace")
        self._in_character = False
        """A character has begun that the next bytes end."""
        self._begun = False
        self._after_cr = False
        self._pieces: list[str] = []
        """What came since the last event."""
        self._size = 0
        """Characters of it."""
        self._after_lf = False
        self._id = ""

    def feed(self, chunk: bytes) -> list[ServerEvent]:
        text = self._decode(chunk)
        if not self._begun and text:
            self._begun = True
            text = text.removeprefix("\ufeff")
        if self._after_cr or "\r" in text:
            text = self._unify(text)
        if "\n\n" not in text and not (self._after_lf and text.startswith("\n")):
            if text:
                self._pieces.append(text)
                self._size += len(text)
                self._after_lf = text.endswith("\n")
                if self._size > EVENT_BYTES:
                    raise TooMuch("an event", EVENT_BYTES)
            return []
        if self._pieces:
            text = "".join([*self._pieces, text])
            self._pieces.clear()
        *blocks, rest = text.split("\n\n")
        if rest:
            self._pieces.append(rest)
        self._size = len(rest)
        self._after_lf = rest.endswith("\n")
        events: list[ServerEvent] = []
        for block in blocks:
            if block.startswith("data: ") and "\n" not in block:
                events.append(ServerEvent("message", block[6:], self._id))
            elif block.startswith("event: ") and block.count("\n") == 1 and "\ndata: " in block:
                name, _, data = block.partition("\ndata: ")
                events.append(ServerEvent(name[7:] or "message", data, self._id))
            else:
                self._event(block.split("\n"), events)
        return events

    def _decode(self, chunk: bytes) -> str:
        if not self._in_character:
            try:
                return chunk.decode()  # nearly always all there is to do, and much quicker
            except UnicodeDecodeError:
                pass
        text = self._cut.decode(chunk)
        self._in_character = bool(self._cut.getstate()[0])
        return text

    def _unify(self, text: str) -> str:
        """Make every line end a LF. A CR ends its line at once; the LF after it may come with the next bytes."""
        if not text:
            return text
        if self._after_cr and text[0] == "\n":
            text = text[1:]
        self._after_cr = text.endswith("\r")
        return text.replace("\r\n", "\n").replace("\r", "\n")

    def _event(self, lines: list[str], events: list[ServerEvent]) -> None:
        """The event of these lines, if they have data."""
        kind, data, retry = "", [], None
        for line in lines:
            name, _, value = line.partition(":")
            value = value.removeprefix(" ")
            match name:
                case "data":
                    data.append(value)
                case "event":
                    kind = value
                case "id" if "\0" not in value:
                    self._id = value
                case "retry" if value.isascii() and value.isdigit() and len(value) < 10:
                    retry = int(value)
                case _:
                    pass  # a comment, or a field that nobody knows
        if data:
            events.append(ServerEvent(kind or "message", "\n".join(data), self._id, retry))
