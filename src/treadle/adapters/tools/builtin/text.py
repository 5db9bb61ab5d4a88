"""Bytes of a file as text and back, without losing one (T-01); or a sentence that says why they are no text,
and what a file is instead: by its first bytes, and for pictures how large.

UTF-8, with or without byte-order mark, and UTF-16 and UTF-32 with one, are what they are. Anything else without NUL
bytes is read byte by byte: mostly valid UTF-8 with its broken bytes kept aside, otherwise as Windows-1252, in which
every byte is a character. Either way an edit leaves all other bytes as they were."""

import codecs
import struct
from contextlib import suppress
from typing import Literal

import msgspec

from treadle.diff.encodings import decode_bytewise, encode_bytewise
from treadle.errors import ToolError

_KINDS = (
    (b"\x89PNG\r\n\x1a\n", "a PNG image"),
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"GIF87a", "a GIF image"),
    (b"GIF89a", "a GIF image"),
    (b"II*\x00", "a TIFF image"),
    (b"MM\x00*", "a TIFF image"),
    (b"\x00\x00\x01\x00", "an icon"),
    (b"%PDF-", "a PDF document"),
    (b"PK\x03\x04", "a ZIP archive (or a document or package of that kind)"),
    (b"\x1f\x8b", "a gzip file"),
    (b"BZh", "a bzip2 file"),
    (b"\xfd7zXZ\x00", "an xz file"),
    (b"(\xb5/\xfd", "a Zstandard file"),
    (b"7z\xbc\xaf'\x1c", "a 7-Zip archive"),
    (b"\x7fELF", "an ELF program or library"),
    (b"MZ\x90", "a Windows program or library"),
    (b"\xcf\xfa\xed\xfe", "a Mach-O program or library"),
    (b"\xca\xfe\xba\xbe", "a Java class or Mach-O file"),
    (b"\x00asm", "a WebAssembly module"),
    (b"SQLite format 3\x00", "an SQLite database"),
    (b"OggS", "an Ogg file"),
    (b"fLaC", "a FLAC file"),
    (b"ID3", "an MP3 file"),
    (b"wOFF", "a WOFF font"),
    (b"wOF2", "a WOFF2 font"),
    (b"\x00\x01\x00\x00\x00", "a TrueType font"),
)
_CONTROL = bytes(set(range(32)) - set(b"\a\b\t\n\v\f\r\x1b")) + b"\x7f"


def describe(head: bytes) -> str:
    """As in "a PNG image of 16 x 16 pixels"; empty if nothing is known of such a beginning."""
    kind = next((kind for magic, kind in _KINDS if head.startswith(magic)), "")
    if head[:4] == b"RIFF":
        kind = {b"WEBP": "a WebP image", b"WAVE": "a WAV file"}.get(head[8:12], "")
    if head[4:8] == b"ftyp":
        kind = "an AVIF image" if head[8:12] == b"avif" else "an MP4 or similar media file"
    size = _parse_pixel_size(head) if kind else None
    return f"{kind} of {size[0]:,} x {size[1]:,} pixels" if size else kind


def _parse_pixel_size(head: bytes) -> tuple[int, int] | None:
    with suppress(struct.error, IndexError):
        if head.startswith(b"\x89PNG"):
            return struct.unpack(">II", head[16:24])
        if head.startswith(b"GIF8"):
            return struct.unpack("<HH", head[6:10])
        if head[8:12] == b"WEBP":
            return _parse_webp_size(head)
        if head.startswith(b"\xff\xd8"):
            return _parse_jpeg_size(head)
    return None


def _parse_webp_size(head: bytes) -> tuple[int, int] | None:
    match head[12:16]:
        case b"VP8 ":
            width, height = struct.unpack("<HH", head[26:30])
            return width & 0x3FFF, height & 0x3FFF
        case b"VP8L":
            (bits,) = struct.unpack("<I", head[21:25])
            return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        case b"VP8X":
            return int.from_bytes(head[24:27], "little") + 1, int.from_bytes(head[27:30], "little") + 1
    return None


def _parse_jpeg_size(head: bytes) -> tuple[int, int] | None:
    """From the first frame header; segments before it are skipped by their lengths."""
    at = 2
    while at < len(head) - 9:
        if head[at] != 0xFF:
            return None
        marker = head[at + 1]
        if marker == 0xFF:
            at += 1
        elif 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack(">HH", head[at + 5 : at + 9])
            return width, height
        else:
            at += 2 + struct.unpack(">H", head[at + 2 : at + 4])[0]
    return None


MAX_FILE = 32_000_000  # Bytes of a file that is read as a whole
BOM = "\ufeff"

Encoding = Literal["utf-8", "utf-8-broken", "utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be", "windows-1252"]

NAMES: dict[Encoding, str] = {
    "utf-8": "",
    "utf-8-broken": "some bytes are not valid UTF-8; they are shown as \\xNN and kept by edits",
    "utf-16-le": "UTF-16, little-endian",
    "utf-16-be": "UTF-16, big-endian",
    "utf-32-le": "UTF-32, little-endian",
    "utf-32-be": "UTF-32, big-endian",
    "windows-1252": "not UTF-8: read as Windows-1252; edits keep all other bytes",
}  # the remark for a reader about each encoding

_MARKED: tuple[tuple[bytes, Encoding], ...] = (
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


class Text(msgspec.Struct, frozen=True):
    """A file's text. Encoding it again gives the same bytes; a byte-order mark is its first character."""

    text: str
    encoding: Encoding = "utf-8"

    def encode(self, text: str) -> bytes:
        return encode(text, self.encoding)


def decode(data: bytes, path: str) -> Text:
    """ToolError if it is no text; `path` is how the file is called there."""
    reason, text = "it contains NUL bytes", None
    try:
        text = Text(data.decode())
    except UnicodeDecodeError as error:
        encoding = next((encoding for mark, encoding in _MARKED if data.startswith(mark)), None)
        with suppress(UnicodeDecodeError):
            text = Text(data.decode(encoding), encoding) if encoding else None
        reason = reason if text else f"byte {error.start} is not valid UTF-8"
    if text:
        is_text = "\0" not in text.text
    else:
        head = data[:8_192]
        control_count = len(head) - len(head.translate(None, _CONTROL))
        is_text = b"\0" not in data and not describe(data) and control_count / max(1, len(head)) <= 0.02
    if not is_text:
        raise ToolError(describe_refusal(data, len(data), path, reason))
    return text or Text(*decode_bytewise(data))


def encode(text: str, encoding: Encoding = "utf-8") -> bytes:
    """ToolError if the encoding has no such character."""
    try:
        if encoding == "utf-8-broken" or encoding == "windows-1252":
            return encode_bytewise(text, encoding)
        return text.encode(encoding)
    except UnicodeEncodeError as error:
        character = text[error.start]
        message = (
            f"The file is in a one-byte encoding (read as Windows-1252), which has no {character!r}. Use other "
            "characters, or convert the file to UTF-8 with run_command first."
        )
        if "\ud800" <= character <= "\udfff":
            message = "The text contains half a surrogate pair, which is no valid Unicode; send it again."
        raise ToolError(message) from None


def describe_refusal(head: bytes, size: int, path: str, reason: str) -> str:
    kind = describe(head)
    if kind:
        return f"{path} is {kind} ({size:,} bytes), not text."
    if len(head) >= 16 and (head[1::2].count(0) > len(head) // 4 or head[::2].count(0) > len(head) // 4):
        return (
            f"{path} looks like UTF-16 or UTF-32 text without a byte-order mark ({size:,} bytes); it is not read. "
            "Convert a copy with run_command (iconv)."
        )
    return f"{path} is a binary file ({size:,} bytes): {reason}."
