"""Readers of streams that cost next to nothing, so that many of them fit beside what is measured: a socket each, bytes
looked at as they come, no JSON where none is needed."""

import asyncio
import re
import time
from collections.abc import Callable, Sequence
from typing import cast
from urllib.parse import urlsplit

from bench.processes import Failed
from bench.server.stamps import STAMP

ACTION = re.compile(rb'"tool_call_id":"([^"]+)"')
WAIT_S = 120.0


class Reader(asyncio.Protocol):
    """One stream of server-sent events. `got` is given whole events, as bytes, with the time of their arrival."""

    def __init__(self, path: str, host: str, token: str, got: Callable[[bytes, float], None]) -> None:
        self._request = f"GET {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n\r\n".encode()
        self._got = got
        self._rest = b""
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(self._request)

    def connection_lost(self, _error: Exception | None) -> None:
        if not self.opened.done():
            self.opened.set_exception(Failed("a stream was closed before it began"))

    def data_received(self, data: bytes) -> None:
        now = time.monotonic()
        whole, found, self._rest = (self._rest + data).rpartition(b"\n\n")
        if not self.opened.done() and found:
            if b" 200 " in whole[:20]:
                self.opened.set_result(None)
            else:
                self.opened.set_exception(Failed(f"a stream was refused: {whole[:120]!r}"))
        if whole:
            self._got(whole, now)

    def close(self) -> None:
        self._transport.abort()


async def read(address: str, chat: str, token: str, got: Callable[[bytes, float], None]) -> Reader:
    """Attach a reader to a chat; returns when the stream is open."""
    place = urlsplit(address)
    _, reader = await asyncio.get_running_loop().create_connection(
        lambda: Reader(f"/api/chats/{chat}/events", place.netloc, token, got), place.hostname or "", place.port or 80
    )
    async with asyncio.timeout(WAIT_S):
        await reader.opened
    return reader


class Lags:
    """How long after the provider wrote them chunks arrive at the reader of one chat."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self._last = 0.0
        self.seen: list[tuple[float, float]] = []
        """When a chunk was written, and how much later it was here, in seconds."""

    def got(self, events: bytes, now: float) -> None:
        for stamp in STAMP.findall(events):
            written = int(stamp) / 1e6
            if written > self._last:  # after a reset the text so far comes again
                self._last = written
                self.seen.append((written, now - written))
        if self.seen and not self.begun.is_set():
            self.begun.set()


class Waits:
    """What a chat waits for, as soon as it does."""

    def __init__(self) -> None:
        self._called: asyncio.Queue[str] = asyncio.Queue()

    def got(self, events: bytes, _now: float) -> None:
        for event in events.split(b"\n\n"):
            if b'"session.action_required"' in event and (found := ACTION.search(event)):
                self._called.put_nowait(found[1].decode())

    async def call(self) -> str:
        async with asyncio.timeout(WAIT_S):
            return await self._called.get()


class Ends:
    """Whether the run of a chat is over."""

    def __init__(self) -> None:
        self.over = asyncio.Event()

    def got(self, events: bytes, _now: float) -> None:
        if b'"session.idle"' in events:
            self.over.set()


def quantile(values: Sequence[float], part: float) -> float:
    """The value below which this part of the values lies."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]
