"""The addresses of a host: one that refuses or stays silent does not keep the others from answering, and a connection
that is given up at any moment leaves no open socket behind."""

import asyncio
import gc
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, suppress

import pytest

from treadle.base.http import connection
from treadle.base.http.connection import ServerRoute, parse_address
from treadle.base.stream_server import close_server, start_stream_server

HOST = "several.test"


class Listener:
    def __init__(self, port: int) -> None:
        self.port = port
        self.accepted = self.closed = 0
        self.changed = asyncio.Event()


@asynccontextmanager
async def listening() -> AsyncIterator[Listener]:
    """A server that counts the connections that were opened, and those that the other side closed."""

    async def take(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        listener.accepted += 1
        with suppress(OSError):
            await reader.read()
        listener.closed += 1
        listener.changed.set()

    server = await start_stream_server(take, "127.0.0.1", 0)
    listener = Listener(server.sockets[0].getsockname()[1])
    yield listener
    await close_server(server)


async def until_all_are_closed(listener: Listener) -> None:
    async with asyncio.timeout(30):
        while listener.closed < listener.accepted:
            listener.changed.clear()
            await listener.changed.wait()


def name_addresses(monkeypatch: pytest.MonkeyPatch, *ports: int) -> ServerRoute:
    """Make HOST a name with several addresses, which are ports of this machine."""

    def resolve(host: str, port: int, family: int = 0, type: int = 0, proto: int = 0, flags: int = 0) -> object:
        assert host == HOST
        if flags & socket.AI_NUMERICHOST:
            raise socket.gaierror(socket.EAI_NONAME, "no number")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port)) for port in ports]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    return ServerRoute(parse_address(f"http://{HOST}/"))


@pytest.fixture
def refused_port() -> Iterator[int]:
    with socket.socket() as listener:  # it does not listen
        listener.bind(("127.0.0.1", 0))
        yield listener.getsockname()[1]


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port whose queue of new connections is full: the kernel ignores further ones."""
    if sys.platform != "linux":
        pytest.skip("only Linux ignores a connection for which the queue has no room")
    with ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(4):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
        yield listener.getsockname()[1]


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_a_connection_that_is_cancelled_at_any_step_leaves_no_socket(host: str) -> None:
    async with listening() as listener:
        route = ServerRoute(parse_address(f"http://{host}:{listener.port}/"))
        gc.disable()  # the garbage collector would close a lost socket
        try:
            for steps in range(40):
                attempt = asyncio.create_task(route.connect())
                for step in range(steps):
                    await asyncio.sleep(0 if step < 20 else 0.0005)
                attempt.cancel()
                with suppress(asyncio.CancelledError):
                    (await attempt).close()
            assert listener.accepted > 10
            await until_all_are_closed(listener)
        finally:
            gc.enable()


async def test_the_next_address_is_tried_at_once_if_one_refuses(
    monkeypatch: pytest.MonkeyPatch, refused_port: int
) -> None:
    monkeypatch.setattr(connection, "NEXT_ADDRESS_S", 1000)
    async with listening() as listener:
        client_connection = await name_addresses(monkeypatch, refused_port, listener.port).connect()
        client_connection.close()
        await until_all_are_closed(listener)
        assert listener.accepted == 1


async def test_the_next_address_is_tried_beside_one_that_is_silent(
    monkeypatch: pytest.MonkeyPatch, silent_port: int
) -> None:
    async with listening() as listener:
        client_connection = await name_addresses(monkeypatch, silent_port, silent_port, listener.port).connect()
        assert client_connection.transport.get_extra_info("peername")[1] == listener.port
        client_connection.close()
        await until_all_are_closed(listener)


async def test_the_slower_of_two_addresses_that_answer_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "NEXT_ADDRESS_S", 0)
    async with listening() as first, listening() as second:
        for _ in range(20):
            (await name_addresses(monkeypatch, first.port, second.port).connect()).close()
        await until_all_are_closed(first)
        await until_all_are_closed(second)


async def test_a_host_of_which_no_address_answers_says_why(monkeypatch: pytest.MonkeyPatch, refused_port: int) -> None:
    with pytest.raises(ConnectionRefusedError, match=str(refused_port)):
        await name_addresses(monkeypatch, refused_port, refused_port).connect()
    with pytest.raises(OSError, match="has no address"):
        await name_addresses(monkeypatch).connect()
