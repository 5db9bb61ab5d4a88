"""What a model sees of a command's output: all of it if it is short, else how it began and how it ended (T-11). And the
cleaning of terminal output for a reader that is no terminal. Pure: where the bytes lie is its caller's business."""

import re

import msgspec

HEAD_LINES = 15
TAIL_LINES = 85
_HEAD_BYTES = 10_000
_TAIL_BYTES = 38_000
"""Together below 50 KB, with room for the notices."""
HEAD_READ = 2 * _HEAD_BYTES
TAIL_READ = 4 * _TAIL_BYTES
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


class View(msgspec.Struct, frozen=True):
    text: str
    exact: bool
    """Whether the text is the output, byte for byte; if not, the output itself must be kept somewhere else."""
    cut: bool = False
    """Whether something is missing that a reader may want to see."""


def clean(data: bytes) -> str:
    """Text for a model: escapes stripped, other control characters as visible symbols, broken UTF-8 as `\\xNN`."""
    text = data.decode(errors="backslashreplace").replace("\r\n", "\n")
    if "\x1b" in text:
        text = _ESCAPES.sub("", text)
    return text.translate(_CONTROLS)


def whole_characters(data: bytes) -> bytes:
    """Without the pieces of characters at both ends: the bytes were cut there, the text is not broken."""
    start = 0
    while start < min(3, len(data)) and data[start] & 0xC0 == 0x80:
        start += 1
    for back in range(1, min(4, len(data) - start) + 1):
        lead = data[-back]
        if lead & 0xC0 != 0x80:
            length = 4 if lead >= 0xF0 else 3 if lead >= 0xE0 else 2 if lead >= 0xC0 else 1
            return data[start : len(data) - back] if back < length else data[start:]
    return data[start:]


def view_whole(data: bytes) -> View:
    """Of an output that is all there."""
    text = clean(data)
    shown = text.removesuffix("\n")
    lines = shown.split("\n")
    if len(lines) <= HEAD_LINES + TAIL_LINES and len(shown.encode()) <= _HEAD_BYTES + _TAIL_BYTES:
        return View(shown, text.encode() == data)
    size = len(shown.encode())
    return View(_shortened(lines[:HEAD_LINES], lines[-TAIL_LINES:], len(lines), size), exact=False, cut=True)


def view_ends(head: bytes, tail: bytes, lines: int, size: int) -> View:
    """Of an output of so many lines and bytes, by how it begins and how it ends."""
    first = clean(whole_characters(head)).split("\n")[:HEAD_LINES]
    last = clean(whole_characters(tail)).removesuffix("\n").split("\n")
    last = last[1:] or last  # the first one probably lacks its beginning
    return View(_shortened(first, last[-TAIL_LINES:], lines, size - tail.endswith(b"\n")), exact=False, cut=True)


def _shortened(head: list[str], tail: list[str], lines: int, size: int) -> str:
    """Both ends, and between them how much there was: in lines where whole lines are missing, else in bytes."""
    dropped = lines - len(head) - len(tail)
    if dropped < 0:  # few lines, but long ones: the tail begins where the head ends
        tail = tail[min(-dropped, len(tail) - 1) :]
    whole = [("\n".join(part)).encode() for part in (head, tail)]
    first, last = whole[0][:_HEAD_BYTES], whole[1][-_TAIL_BYTES:]
    missing = f"{max(0, size - len(first) - len(last)):,} bytes"
    if dropped > 0:
        cut = [first, last] != whole
        missing = f"{dropped:,} lines truncated, {missing} in all" if cut else f"{dropped:,} lines truncated"
    else:
        missing += " truncated"
    return "\n".join((first.decode(errors="ignore"), f"[{missing}]", last.decode(errors="ignore")))
