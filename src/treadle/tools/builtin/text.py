"""Bytes of a file as text, or a sentence that says why they are none (T-01)."""

from treadle.errors import ToolError

MAX_FILE = 32_000_000
"""Bytes of a file that is read as a whole."""
BOM = "\ufeff"

_IMAGES = (
    (b"\x89PNG\r\n\x1a\n", "PNG"),
    (b"\xff\xd8\xff", "JPEG"),
    (b"GIF87a", "GIF"),
    (b"GIF89a", "GIF"),
    (b"II*\x00", "TIFF"),
    (b"MM\x00*", "TIFF"),
)


def decode(data: bytes, path: str) -> str:
    """UTF-8, byte for byte: `encode` gives back the same bytes, byte-order mark included. ToolError otherwise."""
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise ToolError(_refusal(data, path, f"byte {error.start} is not valid UTF-8")) from None
    if "\0" in text:
        raise ToolError(_refusal(data, path, "it contains NUL bytes"))
    return text


def encode(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise ToolError("The text contains half a surrogate pair, which is no valid Unicode; send it again.") from None


def _refusal(data: bytes, path: str, why: str) -> str:
    size = f"{len(data):,} bytes"
    kind = next((kind for magic, kind in _IMAGES if data.startswith(magic)), "")
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        kind = "WebP"
    if kind:
        return f"{path} is a {kind} image ({size}), not text."
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return f"{path} is UTF-16 text ({size}); only UTF-8 is read. Convert a copy with run_command (iconv)."
    return f"{path} is a binary file or has another encoding than UTF-8 ({size}): {why}."
