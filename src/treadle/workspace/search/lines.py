"""Bytes of a file as lines to search and to show. More lenient than what edits are based on: nothing is written back,
so bytes that are no UTF-8 may be shown as escapes."""

import codecs

MAX_FILE = 32_000_000
"""Bytes of a file that is searched; larger ones are left out."""


def lines_of(data: bytes, errors: str = "backslashreplace") -> list[str] | None:
    """The lines without their ends; None if the bytes are no text. UTF-16 is known by its byte-order mark."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        text = data.decode("utf-16", errors="replace")
    elif b"\0" in data:
        return None
    else:
        text = data.removeprefix(codecs.BOM_UTF8).decode(errors=errors)
    if "\0" in text:
        return None
    if "\r" in text:
        text = text.replace("\r\n", "\n")
    lines = text.split("\n")
    if not lines[-1]:  # the end of the last line, or nothing at all
        lines.pop()
    return lines


def characters(line: str, bytes_before: int) -> int:
    """How many characters of the line lie within its first bytes."""
    return len(line.encode(errors="surrogateescape")[:bytes_before].decode(errors="ignore"))
