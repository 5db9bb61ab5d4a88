"""A request is sent again only where it cannot have been answered; redirects are reported. The same for models and for
the client of a server."""

import asyncio
import gzip
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest

from tests.unit.adapters.models.loopback import listening
from treadle.adapters.models.keys import Secret
from treadle.adapters.models.wire.http import Http
from treadle.base.http.client import HttpClient, UnknownEncoding
from treadle.base.http.connection import CutOff
from treadle.base.types import ChatId
from treadle.client.http import Http as ApiHttp
from treadle.client.http import follow
from treadle.errors import ApiError, InvalidInput, ModelError

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
RESET = b"\1\0\0\0\0\0\0\0"


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


class Server:
    """Answers requests by a script for each connection: the bytes of an answer, then what ends the connection."""

    def __init__(self, *connections: tuple[bytes | str, ...]) -> None:
        self._connections = list(connections)
        self.requests: list[int] = []
        """Of each request, the number of its connection."""
        self.is_silent = asyncio.Event()
        """Set when it has read a request that it does not answer."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number = len(set(self.requests)) + 1
        for step in self._connections[number - 1]:
            head = await reader.readuntil(b"\r\n\r\n")
            length = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
            if length:
                await reader.readexactly(int(length[0].split(b":")[1]))
            self.requests.append(number)
            match step:
                case bytes():
                    writer.write(step)
                    await writer.drain()
                case "reset":
                    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                    writer.transport.abort()
                case "close":
                    writer.close()
                case _:
                    self.is_silent.set()
                    await reader.read()  # until the client hangs up


@asynccontextmanager
async def running(*connections: tuple[bytes | str, ...]) -> AsyncIterator[tuple[Server, str]]:
    server = Server(*connections)
    async with listening(server.serve) as port, asyncio.timeout(30):
        yield server, f"http://127.0.0.1:{port}"


Ask = Callable[[], Awaitable[object]]


@asynccontextmanager
async def plain(url: str) -> AsyncIterator[Ask]:
    client = HttpClient()

    async def ask() -> bytes:
        with await client.request("POST", url, {}, b"{}") as response:
            return await response.read_all()

    yield ask
    await client.close()


@asynccontextmanager
async def model(url: str) -> AsyncIterator[Ask]:
    http = Http()

    async def ask() -> None:
        with await http.post(url, {}, b"{}", Secret("")) as reply:
            while await reply.read():
                pass

    yield ask
    await http.close()


@asynccontextmanager
async def api(url: str) -> AsyncIterator[Ask]:
    http = ApiHttp(url, "", 0.0)  # without patience

    async def ask() -> object:
        return await http.change("POST", "/api/chats", {}, dict)

    yield ask
    await http.close()


Client = Callable[[str], AbstractAsyncContextManager[Ask]]
CLIENTS: list[Client] = [plain, model, api]


@pytest.mark.parametrize("end", ["close", "reset"])
@pytest.mark.parametrize("client", CLIENTS)
async def test_a_request_on_a_connection_that_the_server_has_left_is_sent_once_more(client: Client, end: str) -> None:
    async with running((ANSWER, ANSWER, end), (ANSWER, end), (ANSWER,)) as (server, url), client(url) as ask:
        for _ in range(4):
            await ask()
    assert server.requests == [1, 1, 1, 2, 2, 3]


@pytest.mark.parametrize("end", ["close", "reset"])
@pytest.mark.parametrize("client", CLIENTS)
async def test_a_request_on_a_new_connection_is_sent_once(client: Client, end: str) -> None:
    async with running((end,), (ANSWER, end), (end,)) as (server, url), client(url) as ask:
        with pytest.raises((OSError, ModelError, ApiError)):
            await ask()
        assert server.requests == [1]
        await ask()
        with pytest.raises((OSError, ModelError, ApiError)):  # the old one has gone, and so has the new one
            await ask()
    assert server.requests == [1, 2, 2, 3]


@pytest.mark.parametrize("prefix", [b"H", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"])
async def test_a_request_whose_answer_has_begun_is_not_sent_again(prefix: bytes) -> None:
    async with running((ANSWER, prefix), (ANSWER,)) as (server, url), plain(url) as ask:
        await ask()
        with pytest.raises(ConnectionError):
            await ask()
    assert server.requests == [1, 1]


async def test_a_silent_server_is_not_asked_again() -> None:
    async with running((ANSWER, "wait"), (ANSWER,)) as (server, url), plain(url) as ask:
        await ask()
        waiting = asyncio.ensure_future(ask())
        await server.is_silent.wait()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await ask()
    assert server.requests == [1, 1, 2]


async def test_an_answer_with_a_length_and_chunks_ends_its_connection() -> None:
    both = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"
    async with running((both, ANSWER), (ANSWER,)) as (server, url), plain(url) as ask:
        assert [await ask(), await ask()] == [b"{}", b"{}"]
    assert server.requests == [1, 2]


async def test_a_redirect_of_a_model_names_its_target_and_is_not_followed() -> None:
    answer = b"HTTP/1.1 308 Moved\r\nLocation: https://other.test/v1?key=sk-secret-1\r\nContent-Length: 0\r\n\r\n"
    async with running((answer,)) as (server, url):
        http = Http()
        with pytest.raises(
            ModelError, match=r"answered 308: it redirects to https://other\.test/v1\?key=\*\*\*"
        ) as caught:
            await http.post(url, {}, b"{}", Secret("sk-secret-1"))
        await http.close()
    assert (caught.value.kind, caught.value.status) == ("bad_request", 308)
    assert server.requests == [1]


async def test_a_redirect_of_a_server_names_its_target_and_is_not_followed() -> None:
    answer = b"HTTP/1.1 302 Found\r\nLocation: https://login.test/\r\nContent-Length: 0\r\n\r\n"
    async with running((answer, answer)) as (server, url):
        http = ApiHttp(url, "", 5.0)
        for asking in (http.get("/api/chats", dict), anext(_pieces(http))):
            with pytest.raises(ApiError, match=r"redirects to https://login\.test/") as caught:
                await asking
            assert (caught.value.status, caught.value.reason) == (302, "redirect")
        await http.close()
    assert server.requests == [1, 1]


async def _pieces(http: ApiHttp) -> AsyncIterator[bytes]:
    async with http.stream("/api/chats/c/events", {}, {}) as pieces:
        async for piece in pieces:
            yield piece


@pytest.mark.parametrize("end", ["close", "reset"])
async def test_a_stream_of_a_server_that_breaks_off_is_an_error(end: str) -> None:
    """An export that is cut must not pass for a whole one."""
    half = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n"

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(half)
        await has_read.wait()
        if end == "reset":
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            writer.transport.abort()

    has_read = asyncio.Event()
    async with listening(serve) as port, asyncio.timeout(30):
        http = ApiHttp(f"http://127.0.0.1:{port}", "", 0.0)
        pieces = _pieces(http)
        assert await anext(pieces) == b"half"
        has_read.set()
        with pytest.raises(ApiError, match="broke off its answer") as caught:
            await anext(pieces)
        await http.close()
    assert (caught.value.status, caught.value.reason, http.away) == (0, "cut_off", False)


async def test_compressed_answers() -> None:
    body = gzip.compress(b"one ") + gzip.compress(b"two" * 100_000)
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: %b\r\nContent-Length: %d\r\n\r\n"
    damaged = body[:30] + b"nonsense" + body[38:]
    answers = (
        head % (b"gzip", len(body)) + body,
        head % (b"gzip", len(body)) + damaged,
        head % (b"gzip", 30) + body[:30],
    )
    async with running(answers, (head % (b"br", 2) + b"ok",)) as (_, url), plain(url) as ask:
        assert await ask() == b"one " + b"two" * 100_000
        with pytest.raises(CutOff, match="damaged"):
            await ask()
        with pytest.raises(CutOff, match="cut off"):
            await ask()
        with pytest.raises(UnknownEncoding, match="br"):
            await ask()


async def test_an_answer_of_another_server_is_quoted() -> None:
    page = b"<html>Log in</html>"
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(page) + page
    line = b"data: what is this\n\n"
    stream = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(line) + line
    async with running((answer, stream)) as (_, url):
        http = ApiHttp(url, "", 0.0)
        with pytest.raises(ApiError, match="not Treadle's: '<html>Log in"):
            await http.get("/api/chats", dict)
        with pytest.raises(ApiError, match="not Treadle's: 'what is this'"):
            await anext(follow(http, ChatId("c_1"), 0, True, 0.0))
        await http.close()


async def test_a_server_without_an_address_is_refused_at_once() -> None:
    with pytest.raises(InvalidInput, match="no address of a server"):
        await ApiHttp("localhost:8420", "", 60.0).get("/api/chats", dict)
    async with running() as (_, url):
        with pytest.raises(InvalidInput, match="line break"):
            await ApiHttp(url, "token\n", 60.0).get("/api/chats", dict)
