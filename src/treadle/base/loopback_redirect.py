"""The receiver of an OAuth redirect on the loopback interface (RFC 8252), to which a person's browser returns."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from urllib.parse import parse_qs, urlsplit

from treadle.base.stream_server import close_server, start_stream_server
from treadle.errors import InvalidInput

_PAGE = b"<!doctype html><meta charset=utf-8><title>Treadle</title><p>Signed in. You can close this page."
_MOST = 16_384


class RedirectReceiver:
    """`show` is given the address that the person is to open."""

    def __init__(self, show: Callable[[str], Awaitable[None]]) -> None:
        self.url = ""  # the address to which the browser is to come back; known once it is open
        self._show = show
        self._came: asyncio.Future[Mapping[str, str]] = asyncio.get_running_loop().create_future()
        self._server: asyncio.Server | None = None

    async def open(self, port: int = 0) -> None:
        """Listen on a port, or on any free one. InvalidInput if it is taken."""
        try:
            self._server = await start_stream_server(self._answer_request, "127.0.0.1", port)
        except OSError as error:
            raise InvalidInput(f"the port {port} of the redirect cannot be used: {error.strerror}") from error
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/callback"

    async def close(self) -> None:
        if self._server is not None:
            await close_server(self._server)

    async def show_page(self, address: str) -> None:
        """Show the address of a sign-in; an answer to an earlier one counts no more."""
        if self._came.done():
            self._came = asyncio.get_running_loop().create_future()
        await self._show(address)

    async def wait(self, timeout_s: float) -> Mapping[str, str]:
        async with asyncio.timeout(timeout_s):
            return await self._came

    async def _answer_request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = (await reader.read(_MOST)).split(b"\r\n", 1)[0].decode(errors="replace")
        target = urlsplit(line.split(" ")[1] if line.count(" ") >= 2 else "")
        query = {name: values[0] for name, values in parse_qs(target.query).items()}
        is_callback = target.path == "/callback" and bool(query)
        status, page = (b"200 OK", _PAGE) if is_callback else (b"404 Not Found", b"")
        writer.write(b"HTTP/1.1 %b\r\ncontent-type: text/html\r\nconnection: close\r\n\r\n%b" % (status, page))
        await writer.drain()
        if is_callback and not self._came.done():
            self._came.set_result(query)
