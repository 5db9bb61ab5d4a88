"""Lines of JSON from bytes, however the network cut them. Knows nothing of models. Linear in the bytes fed: a line is
joined once, however many pieces it came in."""

_BLANK = b" \t\r"
_BOM = b"\xef\xbb\xbf"


class LineDecoder:
    """Takes bytes as they come, gives lines as they are complete, without their ends. Blank lines are left out."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        """The pieces of a line that has not ended."""
        self._begun = False

    def feed(self, chunk: bytes) -> list[bytes]:
        if b"\n" not in chunk:
            self._pieces.append(chunk)
            return []
        if self._pieces:
            chunk = b"".join([*self._pieces, chunk])
            self._pieces.clear()
        lines = chunk.split(b"\n")
        if rest := lines.pop():
            self._pieces.append(rest)
        if not self._begun:
            lines = [self._tidy(line) for line in lines]
        return [line for raw in lines if (line := raw.strip(_BLANK))]

    def end(self) -> bytes:
        """The last line, if the stream ended without ending it."""
        line = self._tidy(b"".join(self._pieces))
        self._pieces.clear()
        return line

    def _tidy(self, line: bytes) -> bytes:
        line = line.strip(_BLANK)
        if not self._begun and line:
            self._begun = True
            line = line.removeprefix(_BOM).lstrip(_BLANK)
        return line
