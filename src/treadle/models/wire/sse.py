"""Server-sent events from bytes, by the WHATWG rules, however the network cut them. Knows nothing of models.

Linear in the bytes fed, whatever their shape: text is decoded once, a line is joined once. The common events, a
`data: ` line alone or after an `event: ` line, take paths of their own.
"""

import codecs

import msgspec


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
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._begun = False
        self._after_cr = False
        self._line: list[str] = []
        """The pieces of a line that has not ended."""
        self._open = False
        """Whether an event has fields and waits for its blank line."""
        self._data: list[str] = []
        self._event = ""
        self._id = ""
        self._retry: int | None = None

    def feed(self, chunk: bytes) -> list[ServerEvent]:
        text = self._decode(chunk)
        if not self._begun and text:
            self._begun = True
            text = text.removeprefix("\ufeff")
        if self._after_cr or "\r" in text:
            text = self._unify(text)
        if "\n" not in text:
            self._line.append(text)
            return []
        if self._line:
            text = "".join([*self._line, text])
            self._line.clear()
        events: list[ServerEvent] = []
        blocks = text.split("\n\n")
        rest = blocks.pop()
        for block in blocks:
            if block.startswith("data: ") and not self._open and "\n" not in block:
                events.append(ServerEvent("message", block[6:], self._id))
            elif block.startswith("event: ") and not self._open and block.count("\n") == 1 and "\ndata: " in block:
                name, _, data = block.partition("\ndata: ")
                events.append(ServerEvent(name[7:] or "message", data, self._id))
            else:
                self._lines(block.split("\n"), events)
                self._dispatch(events)
        if rest:
            *lines, begun = rest.split("\n")
            if begun:
                self._line.append(begun)
            self._lines(lines, events)
        return events

    def _unify(self, text: str) -> str:
        """Make every line end a LF. A CR ends its line at once; the LF after it may come with the next bytes."""
        if not text:
            return text
        if self._after_cr and text[0] == "\n":
            text = text[1:]
        self._after_cr = text.endswith("\r")
        return text.replace("\r\n", "\n").replace("\r", "\n")

    def _lines(self, lines: list[str], events: list[ServerEvent]) -> None:
        for line in lines:
            if line:
                self._field(line)
            else:
                self._dispatch(events)

    def _field(self, line: str) -> None:
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        match name:
            case "data":
                self._data.append(value)
            case "event":
                self._event = value
            case "id" if "\0" not in value:
                self._id = value
            case "retry" if value.isascii() and value.isdigit() and len(value) < 10:
                self._retry = int(value)
            case _:
                return  # a comment, or a field that nobody knows
        self._open = True

    def _dispatch(self, events: list[ServerEvent]) -> None:
        if self._data:
            events.append(ServerEvent(self._event or "message", "\n".join(self._data), self._id, self._retry))
        if self._open:
            self._data, self._event, self._retry, self._open = [], "", None, False
