"""Splits the bytes of an answer, in any chunks, into server-sent events (by the WHATWG rules), lines, or one JSON
document, within limits. Knows nothing of models.

Linear in the bytes fed, for any input: text is decoded once, a line is joined once. The common events, a `data: ` line
alone or after an `event: ` line, have fast paths.
"""

import codecs

import msgspec

from treadle.errors import ModelError

EVENT_BYTES = 16 * 1024 * 1024
"""One event, line or document. The largest honest one repeats a whole answer with its encrypted reasoning."""
ANSWER_BYTES = 128 * 1024 * 1024
"""All of one answer, as it is after decompression. Every token may come in a chunk of some hundred bytes."""


class SizeExceeded(Exception):
    """More than `limit` bytes of one thing. Raised by decoders, which do not know who sent it."""

    def __init__(self, subject: str, limit: int) -> None:
        super().__init__(subject)
        self.what = subject
        self.limit = limit


def over_limit(host: str, over: SizeExceeded) -> ModelError:
    message = f"{host} sent {over.what} of more than {over.limit // (1024 * 1024)} MiB; the answer was given up"
    return ModelError("answer_limit", message)


class ServerEvent(msgspec.Struct, frozen=True, gc=False):
    event: str
    data: str


class Decoder:
    """Takes bytes as they arrive and returns complete events. An unfinished event at the end is dropped."""

    def __init__(self) -> None:
        self._cut: codecs.IncrementalDecoder | None = None
        """The decoder for text that is split inside a character."""
        self._in_character = False
        """True if a character has begun that the next bytes end."""
        self._begun = False
        self._after_cr = False
        self._pieces: list[str] = []
        """The text since the last event."""
        self._size = 0
        """The number of characters in `_pieces`."""
        self._after_lf = False

    def feed(self, chunk: bytes) -> list[ServerEvent]:
        try:  # nearly always all there is to do, and much quicker
            text = self._decode(chunk) if self._in_character else chunk.decode()
        except UnicodeDecodeError:
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
                    raise SizeExceeded("an event", EVENT_BYTES)
            return []
        if self._pieces:
            text = "".join([*self._pieces, text])
            self._pieces.clear()
        blocks = text.split("\n\n")
        remaining = blocks.pop()
        if remaining:
            self._pieces.append(remaining)
        self._size = len(remaining)
        self._after_lf = remaining.endswith("\n")
        events: list[ServerEvent] = []
        for block in blocks:
            if block.startswith("data: ") and "\n" not in block:
                events.append(ServerEvent("message", block[6:]))
            elif block.startswith("event: ") and block.count("\n") == 1 and "\ndata: " in block:
                name, _, data = block.partition("\ndata: ")
                events.append(ServerEvent(name[7:] or "message", data))
            elif (event := _event(block.split("\n"))) is not None:
                events.append(event)
        return events

    def _decode(self, chunk: bytes) -> str:
        if self._cut is None:
            self._cut = codecs.getincrementaldecoder("utf-8")("replace")
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


def _event(lines: list[str]) -> ServerEvent | None:
    """Return the event of these lines; None without data. Comments and reconnection fields are skipped."""
    kind, data = "", []
    for line in lines:
        name, _, value = line.partition(":")
        if name == "data":
            data.append(value.removeprefix(" "))
        elif name == "event":
            kind = value.removeprefix(" ")
    return ServerEvent(kind or "message", "\n".join(data)) if data else None


_BLANK = b" \t\r"
_SPACE = b" \t\r\n"
_BOM = b"\xef\xbb\xbf"


class LineDecoder:
    """Takes bytes as they come, gives lines as they are complete."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        """The pieces of a line that has not ended."""
        self._size = 0
        self._begun = False

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines without their ends. Blank ones are left out."""
        return lines_of(self.take_complete_lines(chunk))

    def take_complete_lines(self, chunk: bytes) -> bytes:
        """The same lines in one piece, for who can read it as such."""
        end = chunk.rfind(b"\n") + 1
        self._size = self._size + len(chunk) if not end else len(chunk) - end
        if self._size > EVENT_BYTES:
            raise SizeExceeded("a line", EVENT_BYTES)
        if not end:
            self._pieces.append(chunk)
            return b""
        lines = chunk if end == len(chunk) else chunk[:end]
        if self._pieces:
            lines = b"".join([*self._pieces, lines])
            self._pieces.clear()
        if end < len(chunk):
            self._pieces.append(chunk[end:])
        return lines if self._begun else self._tidy(lines)

    def end(self) -> bytes:
        """The last line, if the stream ended without ending it."""
        line = self._tidy(b"".join(self._pieces)).strip(_BLANK)
        self._pieces.clear()
        return line

    def _tidy(self, lines: bytes) -> bytes:
        """A mark of the byte order may stand before the first line."""
        if not self._begun and (stripped := lines.lstrip(_SPACE)):
            self._begun = True
            return stripped.removeprefix(_BOM)
        return lines


def lines_of(body: bytes) -> list[bytes]:
    return [line for raw in body.split(b"\n") if (line := raw.strip(_BLANK))]


class EventBody:
    """Takes bytes as they arrive. The first byte decides the format."""

    def __init__(self) -> None:
        self._events = Decoder()
        self._begun = False
        self._pieces: list[bytes] | None = None
        self._size = 0

    def feed(self, chunk: bytes) -> list[ServerEvent]:
        """The events that are complete; none ever of a document."""
        if not self._begun and (first := chunk.lstrip(_BOM + _SPACE)[:1]):
            self._begun = True
            self._pieces = [] if first in (b"{", b"[") else None
        if self._pieces is None:
            return self._events.feed(chunk)
        self._pieces.append(chunk)
        self._size += len(chunk)
        if self._size > EVENT_BYTES:
            raise SizeExceeded("a document", EVENT_BYTES)
        return []

    def document(self) -> bytes | None:
        """The document, at the end of the body; None if it was a stream."""
        if self._pieces is None:
            return None
        return b"".join(self._pieces).removeprefix(_BOM).strip()
