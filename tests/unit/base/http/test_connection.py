"""An answer is understood however it is cut into pieces, and a connection is used again only when that is safe."""

import asyncio
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from tests.unit.adapters.models.loopback import listening
from treadle.base.http.connection import BUFFERED, HEAD_CAP, HINTS, LINE_CAP, ClientConnection, CutOff

CHUNKED = (
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX-A: 1\r\nx-a:  2 \r\n\r\n"
    b"5\r\nHello\r\n1;why=not\r\n,\r\nA \r\n to all of\r\n4\r\n you\r\n0\r\nX-Sum: 1\r\n\r\n"
)
WHOLE = b"Hello, to all of you"
ANSWERS = {
    "chunked": CHUNKED,
    "with its length": b"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n" + WHOLE,
    "to the end": b"HTTP/1.1 200 \r\n\r\n" + WHOLE,
    "after a hint": b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n" + WHOLE,
}


@asynccontextmanager
async def answering(*pieces: bytes, stays: bool = False) -> AsyncIterator[ClientConnection]:
    """A connection to a server that reads a request and says this; it goes when it has, unless it `stays`."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(1000):
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0)
            if not stays:
                break

    async with listening(serve) as port:
        _, connection = await asyncio.get_running_loop().create_connection(ClientConnection, "127.0.0.1", port)
        try:
            yield connection
        finally:
            connection.close()
            await asyncio.sleep(0)


async def read_to_end(connection: ClientConnection, read: bytearray | None = None) -> bytes:
    read = bytearray() if read is None else read
    while piece := await connection.read():
        read += piece
    assert connection.at_eof
    return bytes(read)


def feed_pieces(pieces: Sequence[bytes]) -> tuple[ClientConnection, list[bytes]]:
    """What becomes of an answer that comes in these pieces, without a network."""
    connection = ClientConnection()
    connection.transport = asyncio.Transport()
    connection._begin(tunnels=False)
    for piece in pieces:
        connection.data_received(piece)
    connection.connection_lost(None)
    return connection, connection._body


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=list(ANSWERS))
def test_an_answer_may_be_cut_anywhere(answer: bytes) -> None:
    for at in range(1, len(answer)):
        for pieces in ((answer[:at], answer[at:]), [answer[n : n + at] for n in range(0, len(answer), at)]):
            connection, body = feed_pieces(pieces)
            assert (connection.ended, b"".join(body)) == (True, WHOLE)
    assert feed_pieces([CHUNKED])[0]._head is not None


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=list(ANSWERS))
async def test_an_answer_is_read_from_a_socket(answer: bytes) -> None:
    async with answering(*(answer[at : at + 7] for at in range(0, len(answer), 7))) as connection:
        head = await connection.send(b"GET / HTTP/1.1\r\n\r\n")
        assert head.status == 200
        assert await read_to_end(connection) == WHOLE
        assert head.headers.get("x-a", "1, 2") == "1, 2"


@pytest.mark.parametrize(
    ("answer", "again"),
    [
        (ANSWERS["chunked"], True),
        (ANSWERS["with its length"], True),
        (b"HTTP/1.1 204 None\r\n\r\n", True),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", True),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\nConnection: Keep-Alive\r\n\r\n", True),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n", False),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: Close\r\n\r\n", False),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\n\r\n", False),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", False),
    ],
)
async def test_what_is_used_again(answer: bytes, again: bool) -> None:
    async with answering(answer, stays=True) as connection:
        await connection.send(b"GET / HTTP/1.1\r\n\r\n")
        await read_to_end(connection)
        assert connection.is_reusable == again
        if again:
            await connection.send(b"GET / HTTP/1.1\r\n\r\n")
            await read_to_end(connection)


async def test_a_request_on_a_connection_that_is_lost_fails_at_once() -> None:
    async with answering(b"") as connection:
        connection.close()
        await asyncio.sleep(0)  # the loss has been reported
        with pytest.raises(ConnectionError):
            async with asyncio.timeout(10):
                await connection.send(b"GET / HTTP/1.1\r\n\r\n")


async def test_what_comes_unasked_is_no_answer() -> None:
    connection, _ = feed_pieces([ANSWERS["with its length"]])
    connection.data_received(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil")
    assert not connection.is_reusable


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 200 OK\r\n",
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"HTTP/2 200 OK\r\n\r\n",
        b"HTTP/1.1 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno header\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length : 3\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\nContent-Length: -3\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * HEAD_CAP,
        b"HTTP/1.1 100 Continue\r\n\r\n" * 2_000,
        b"HTTP/2.0 200 OK\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
    ],
)
async def test_what_is_no_answer(answer: bytes) -> None:
    async with answering(answer) as connection:
        with pytest.raises(ConnectionError) as caught:
            await connection.send(b"GET / HTTP/1.1\r\n\r\n")
        assert str(caught.value)
        assert not connection.is_reusable


@pytest.mark.parametrize(
    "tail",
    [
        b"5\r\nHel",
        b"5\r\nHello",
        b"5\r\nHello!\r\n",
        b"-5\r\nHello",
        b"\r\n",
        b"zz\r\n",
        b"1" * (LINE_CAP + 1),
        b"0\r\n",
    ],
)
async def test_a_chunked_answer_that_breaks_off_gives_what_came_and_says_so(tail: bytes) -> None:
    async with answering(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n", tail) as connection:
        await connection.send(b"GET / HTTP/1.1\r\n\r\n")
        read = bytearray()
        with pytest.raises(CutOff):
            await read_to_end(connection, read)
        assert read.startswith(b"ok")
        assert not connection.is_reusable


async def test_an_encoding_of_the_transfer_that_is_not_supported_is_named() -> None:
    async with answering(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", stays=True) as connection:
        with pytest.raises(ConnectionError, match="transfer encoding 'gzip, chunked'; only 'chunked' is supported"):
            await connection.send(b"GET / HTTP/1.1\r\n\r\n")
        assert connection.is_lost


@pytest.mark.parametrize("pause", [False, True])
async def test_interim_answers_without_an_end_are_an_error(pause: bool) -> None:
    """Whether they come all at once or one after the other, for ever."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        while not writer.is_closing():
            writer.write(b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n")
            await asyncio.sleep(0.001 if pause else 0)
            await writer.drain()

    async with listening(serve) as port, asyncio.timeout(20):
        _, connection = await asyncio.get_running_loop().create_connection(ClientConnection, "127.0.0.1", port)
        with pytest.raises(ConnectionError, match=f"more than {HINTS} interim answers"):
            await connection.send(b"GET / HTTP/1.1\r\n\r\n")
        connection.close()
        await asyncio.sleep(0)


@pytest.mark.parametrize("is_reset", [True, False])
async def test_a_body_to_the_end_of_the_connection_breaks_off_by_a_reset(is_reset: bool) -> None:
    has_read = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\nhalf of")
        await writer.drain()
        await has_read.wait()
        if is_reset:
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            writer.transport.abort()

    async with listening(serve) as port, asyncio.timeout(20):
        _, connection = await asyncio.get_running_loop().create_connection(ClientConnection, "127.0.0.1", port)
        await connection.send(b"GET / HTTP/1.1\r\n\r\n")
        assert await connection.read() == b"half of"
        has_read.set()
        if is_reset:
            with pytest.raises(CutOff):
                await connection.read()
        else:
            assert await connection.read() == b""
        assert not connection.is_reusable


async def test_a_server_that_is_ahead_is_kept_waiting() -> None:
    size = 40 * BUFFERED
    async with answering(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size, b"x" * size) as connection:
        await connection.send(b"GET / HTTP/1.1\r\n\r\n")
        most = total = 0
        while piece := await connection.read():
            total += len(piece)
            most = max(most, len(piece))
            for _ in range(20):
                await asyncio.sleep(0)
        assert total == size
        assert most < 4 * BUFFERED


async def test_many_answers_without_a_body_do_not_stop_the_reading() -> None:
    """A connection that carries only answers such as 204 is read as long as it is used."""
    answer = b"HTTP/1.1 204 No Content\r\nX-Pad: " + b"x" * (HEAD_CAP // 2) + b"\r\n\r\n"
    async with answering(answer, stays=True) as connection, asyncio.timeout(60):
        for _ in range(BUFFERED // len(answer) + 2):
            assert (await connection.send(b"DELETE / HTTP/1.1\r\n\r\n")).status == 204
            assert await read_to_end(connection) == b""
