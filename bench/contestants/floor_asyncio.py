"""The lower floor: raw asyncio streams and msgspec, one connection a chat."""

import asyncio
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

from floor import Floor
from harness import Setting, main


class AsyncioWire:
    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._address = (parts.hostname or "", parts.port or 80)
        self._head = f"POST {parts.path}/chat/completions HTTP/1.1\r\nHost: {parts.netloc}\r\nContent-Length: ".encode()
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def post(self, body: bytes) -> AsyncIterator[bytes]:
        if self._streams is None:
            self._streams = await asyncio.open_connection(*self._address)
        reader, writer = self._streams
        writer.write(b"%b%d\r\n\r\n%b" % (self._head, len(body), body))
        head = await reader.readuntil(b"\r\n\r\n")
        if b" 200 " not in head[:20]:
            raise SystemExit(head.decode())
        rest = b""
        while True:
            rest += await reader.read(65536)
            pieces, used, ended = unchunk(rest)
            rest = rest[used:]
            if pieces:
                yield b"".join(pieces)
            if ended:
                return


def unchunk(data: bytes) -> tuple[list[bytes], int, bool]:
    """The whole HTTP chunks at the start of `data`, the bytes they took, and whether the last was among them."""
    pieces: list[bytes] = []
    start = 0
    while (line := data.find(b"\r\n", start)) > 0:
        size = int(data[start:line], 16)
        end = line + 4 + size
        if len(data) < end:
            break
        if not size:
            return pieces, end, True
        pieces.append(data[line + 2 : end - 2])
        start = end
    return pieces, start, False


async def make(setting: Setting) -> Floor:
    return Floor(setting, lambda: AsyncioWire(setting.url))


if __name__ == "__main__":
    main(make)
