"""Bytes that are no valid UTF-8 as text and back, without losing one (T-01). read_file shows it, a search finds it."""

import codecs
import re
from typing import Literal

BytewiseEncoding = Literal["utf-8-broken", "windows-1252"]

_BROKEN = re.compile("[\udc80-\udcff]")
_WINDOWS = "".join(bytes([b]).decode("cp1252", "ignore") or chr(b) for b in range(256))
"""Windows-1252 has five holes; there each byte is the control character of its number, so that none is lost."""
_TO_WINDOWS = codecs.charmap_build(_WINDOWS)


def decode_bytewise(data: bytes) -> tuple[str, BytewiseEncoding]:
    """Mostly valid UTF-8 with broken bytes as surrogates; else Windows-1252, in which every byte is a character."""
    text = data.decode(errors="surrogateescape")
    broken = len(_BROKEN.findall(text))
    if sum(not c.isascii() for c in text) > 2 * broken:
        return text, "utf-8-broken"
    return codecs.charmap_decode(data, "strict", _WINDOWS)[0], "windows-1252"


def encode_bytewise(text: str, encoding: BytewiseEncoding) -> bytes:
    """UnicodeEncodeError if the encoding has no such character."""
    if encoding == "utf-8-broken":
        return text.encode(errors="surrogateescape")
    return codecs.charmap_encode(text, "strict", _TO_WINDOWS)[0]


def escape_broken_bytes(text: str) -> str:
    """Bytes that are no valid UTF-8, as \\xNN: such a text can be shown and stored."""
    return text if text.isascii() else _BROKEN.sub(lambda match: f"\\x{ord(match[0]) - 0xDC00:02X}", text)
