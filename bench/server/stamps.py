"""A provider whose chunks say when they were written: `python -m bench.server.stamps`. Every chat streams 50 chunks a
second for as long as anybody measures. Prints its address and ends with its standard input."""

import asyncio
import random
import re
import sys
import time
from typing import cast

from treadle.testing.fake_http import END, FakeResponse, Headers, HttpConnection, encode_chunk, encode_head
from treadle.testing.fake_model import Reply
from treadle.testing.fake_openai import ChatCompletions

EVERY_S = 0.02
CHUNKS = 15_000
"""Five minutes."""
_WORD = " T" + 15 * "0"
_PLACE = _WORD.strip().encode()
STAMP = re.compile(rb"T(\d{15})")
"""Microseconds of the machine's monotonic clock, which all processes share."""

_dialect = ChatCompletions()


def _writes() -> tuple[bytes, ...]:
    reply = Reply(text=_WORD * CHUNKS, chunk_size=len(_WORD), usage=(100, CHUNKS))
    first, *rest = [encode_chunk(event) for event in _dialect.stream(reply, {"model": "bench", "stream": True}, 0)]
    return (encode_head(200, "text/event-stream") + first, *rest[:-1], rest[-1] + END)


class _Stamping:
    """A transport that fills in the time of writing."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self.is_closing = transport.is_closing
        self.close = transport.close
        self.abort = transport.abort

    def write(self, data: bytes) -> None:
        self._transport.write(data.replace(_PLACE, b"T%015d" % (time.monotonic_ns() // 1000)))


class _StampedConnection(HttpConnection):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(cast(asyncio.Transport, _Stamping(cast(asyncio.Transport, transport))))


async def _serve() -> None:
    writes = _writes()

    def route(method: str, path: str, headers: Headers, body: bytes) -> FakeResponse:
        # A random phase, so that the chunks of many chats do not arrive in step.
        other = _dialect.answer_other_request(method, path, headers, body)
        return other or FakeResponse(writes, delay_s=random.random() * EVERY_S, every_s=EVERY_S)

    connections: set[HttpConnection] = set()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _StampedConnection(route, connections), "127.0.0.1", 0, backlog=4096)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", flush=True)
    await loop.run_in_executor(None, sys.stdin.buffer.read)
    server.close()


if __name__ == "__main__":
    asyncio.run(_serve())
