"""Lines of JSON from bytes, however the network cut them. Knows nothing of models. Linear in the bytes fed: a line is
joined once, however many pieces it came in."""

from treadle.models.wire.limits import EVENT_BYTES, TooMuch

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
        return lines_of(self.whole(chunk))

    def whole(self, chunk: bytes) -> bytes:
        """The same lines in one piece, for who can read it as such."""
        end = chunk.rfind(b"\n") + 1
        self._size = self._size + len(chunk) if not end else len(chunk) - end
        if self._size > EVENT_BYTES:
            raise TooMuch("a line", EVENT_BYTES)
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
        if not self._begun and (begun := lines.lstrip(_SPACE)):
            self._begun = True
            return begun.removeprefix(_BOM)
        return lines


def lines_of(whole: bytes) -> list[bytes]:
    return [line for raw in whole.split(b"\n") if (line := raw.strip(_BLANK))]
