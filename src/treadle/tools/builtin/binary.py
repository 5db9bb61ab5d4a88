"""What a file that is no text is: by its first bytes, and for pictures how large (T-01). Knows nothing of encodings."""

import struct

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
    size = _pixels(head) if kind else None
    return f"{kind} of {size[0]:,} x {size[1]:,} pixels" if size else kind


def control_characters(data: bytes) -> float:
    """The share of control characters that no text has, at the beginning."""
    head = data[:8_192]
    return (len(head) - len(head.translate(None, _CONTROL))) / max(1, len(head))


def _pixels(head: bytes) -> tuple[int, int] | None:
    try:
        if head.startswith(b"\x89PNG"):
            return struct.unpack(">II", head[16:24])
        if head.startswith(b"GIF8"):
            return struct.unpack("<HH", head[6:10])
        if head[8:12] == b"WEBP":
            return _webp(head)
        if head.startswith(b"\xff\xd8"):
            return _jpeg(head)
    except (struct.error, IndexError):
        pass
    return None


def _webp(head: bytes) -> tuple[int, int] | None:
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


def _jpeg(head: bytes) -> tuple[int, int] | None:
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
