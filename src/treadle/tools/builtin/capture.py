"""The output of a command in bounded memory: how it began, how it ended, and how much there was (T-11). Also the
cleaning of terminal output for a reader that is no terminal."""

import re

HEAD_LINES = 15
TAIL_LINES = 85
_HEAD_BYTES = 10_000
_TAIL_BYTES = 38_000
"""Together below 50 KB, with room for the notices."""
_KEPT_TAIL = 4 * _TAIL_BYTES
"""More raw bytes than are shown, because cleaning may remove most of them."""

# Each alternative stops at the next ESC, so that the search stays linear on any input.
_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?"  # OSC: titles, links, shell integration (]633;)
    r"|\x1b[PX^_][^\x1b]*(?:\x1b\\)?"  # DCS, SOS, PM, APC
    r"|\x1b[ -/]*[0-~]"  # two-character escapes
    r"|\x1b"
)
_CONTROLS = {code: 0x2400 + code for code in range(32) if code not in (9, 10, 13)} | {127: 0x2421}


def clean(data: bytes) -> str:
    """Text for a model: escapes stripped, other control characters as visible symbols, broken UTF-8 as U+FFFD."""
    text = data.decode(errors="replace").replace("\r\n", "\n")
    if "\x1b" in text:
        text = _ESCAPES.sub("", text)
    return text.translate(_CONTROLS)


class Capture:
    """Takes any amount of output; keeps its head and its tail."""

    def __init__(self) -> None:
        self.total = 0
        self._newlines = 0
        self._ends_open = False
        self._head = bytearray()
        self._tail = bytearray()

    def feed(self, data: bytes) -> None:
        if not data:
            return
        self.total += len(data)
        self._newlines += data.count(b"\n")
        self._ends_open = not data.endswith(b"\n")
        room = 2 * _HEAD_BYTES - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data[-_KEPT_TAIL:]
        if len(self._tail) > 2 * _KEPT_TAIL:
            del self._tail[:-_KEPT_TAIL]

    @property
    def lines(self) -> int:
        return self._newlines + self._ends_open

    def render(self) -> str:
        """All of it if it is short; else the first 15 and the last 85 lines."""
        whole = self.total == len(self._head) + len(self._tail)
        if whole:
            text = clean(bytes(self._head + self._tail)).removesuffix("\n")
            lines = text.split("\n")
            if len(lines) <= HEAD_LINES + TAIL_LINES and len(text.encode()) <= _HEAD_BYTES + _TAIL_BYTES:
                return text
            head, tail = lines, lines
        else:
            head = clean(bytes(self._head)).split("\n")
            tail = clean(bytes(self._tail)).removesuffix("\n").split("\n")
            tail = tail[1:] or tail  # the first one probably lacks its beginning
        return self._shortened(head[:HEAD_LINES], tail[-TAIL_LINES:])

    def _shortened(self, head: list[str], tail: list[str]) -> str:
        dropped = self.lines - len(head) - len(tail)
        if dropped < 0:  # few lines, but long ones: the tail begins where the head ends
            tail = tail[min(-dropped, len(tail) - 1) :]
            dropped = 0
        notice = [f"[{dropped:,} lines truncated]"] if dropped else []
        return "\n".join([_first("\n".join(head)), *notice, _last("\n".join(tail))])


def _first(text: str) -> str:
    data = text.encode()
    if len(data) <= _HEAD_BYTES:
        return text
    return f"{data[:_HEAD_BYTES].decode(errors='ignore')}\n[{len(data) - _HEAD_BYTES:,} bytes truncated]"


def _last(text: str) -> str:
    data = text.encode()
    if len(data) <= _TAIL_BYTES:
        return text
    return f"[{len(data) - _TAIL_BYTES:,} bytes truncated]\n{data[-_TAIL_BYTES:].decode(errors='ignore')}"
