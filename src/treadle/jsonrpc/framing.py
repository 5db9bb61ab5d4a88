"""Messages of JSON-RPC on a stream of bytes: a header with Content-Length, an empty line, a JSON text. Knows nothing of
what they say."""

import asyncio
from typing import Any

import msgspec

MAX_BYTES = 64 * 1024 * 1024
"""No message is longer: what announces more is no client of ours."""
_MAX_HEADER = 64


class BadMessage(Exception):
    """What came is no message; nothing behind it can be understood."""


async def read_message(reader: asyncio.StreamReader) -> Any:
    """The next message; None at the end of the stream."""
    length = -1
    for _ in range(_MAX_HEADER):
        try:
            line = (await reader.readuntil(b"\n")).strip()
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
        except asyncio.LimitOverrunError as error:
            raise BadMessage("a header has no end") from error
        if not line:
            break
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length" and value.strip().isdigit():
            length = int(value)
    if not 0 <= length <= MAX_BYTES:
        raise BadMessage("a message came without a usable Content-Length")
    try:
        return msgspec.json.decode(await reader.readexactly(length))
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise BadMessage(f"a message is no JSON: {error}") from error


def frame(message: dict[str, Any]) -> bytes:
    body = msgspec.json.encode(message)
    return b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
