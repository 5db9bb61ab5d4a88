"""Messages of JSON-RPC on a stream of bytes: a header with Content-Length, an empty line, a JSON text."""

import asyncio
from typing import Any

import msgspec

MAX_BYTES = 64 * 1024 * 1024
"""The largest message in bytes. A longer one is refused."""
_MAX_HEADER = 64
_MAX_DIGITS = 18


class BadMessage(Exception):
    """The received bytes are no message."""

    def __init__(self, text: str, *, readable: bool = False) -> None:
        super().__init__(text)
        self.readable = readable
        """True if the messages behind it can be read."""


async def read_message(reader: asyncio.StreamReader, most: int = MAX_BYTES) -> Any:
    """The next message, of at most this many bytes; None at the end of the stream."""
    length = await _read_header(reader)
    if length is None:
        return None
    if not 0 <= length <= most:
        raise BadMessage(f"a message has no Content-Length from 0 to {most}")
    try:
        message = msgspec.json.decode(await reader.readexactly(length))
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise BadMessage(f"a message is no JSON: {error}", readable=True) from error
    except RecursionError as error:
        raise BadMessage("a message is nested too deep", readable=True) from error
    if message is None:
        raise BadMessage("a message is null", readable=True)
    return message


async def _read_header(reader: asyncio.StreamReader) -> int | None:
    """The length of the next message, -1 if none was given; None at the end of the stream."""
    length = -1
    for _ in range(_MAX_HEADER):
        try:
            line = (await reader.readuntil(b"\n")).strip()
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
        except asyncio.LimitOverrunError as error:
            raise BadMessage("a header has no end") from error
        if not line:
            return length
        name, _, value = line.partition(b":")
        value = value.strip()
        if name.strip().lower() == b"content-length":
            length = int(value) if value.isdigit() and len(value) <= _MAX_DIGITS else -1
    raise BadMessage("a header has too many lines")


def frame(message: dict[str, Any]) -> bytes:
    body = msgspec.json.encode(message)
    return b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
