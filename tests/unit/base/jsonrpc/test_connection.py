"""Malformed JSON-RPC is answered with an error, and ends a connection only where nothing behind it can be read (E-08,
S-20, fault 38)."""

import asyncio
import json
import os
import random
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.faults.chance import SEED
from treadle.base.jsonrpc import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    MAX_BYTES,
    MAX_UNDER_WAY,
    PARSE_ERROR,
    REQUEST_CANCELLED,
    Connection,
    PeerDisconnected,
    RpcError,
    encode_message,
)

WAIT_S = 60
PING = {"jsonrpc": "2.0", "id": "sign of life", "method": "ping", "params": {}}


class Peer:
    """The program's side, byte by byte."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, connection: Connection) -> None:
        self.reader = reader
        self.writer = writer
        self.connection = connection

    def send(self, body: bytes) -> None:
        self.writer.write(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))

    def tell(self, message: Any) -> None:
        self.send(json.dumps(message).encode())

    async def read(self) -> Any:
        """The next message; None at the end."""
        async with asyncio.timeout(WAIT_S):
            header = await self.reader.readline()
            if not header:
                return None
            await self.reader.readline()
            return json.loads(await self.reader.readexactly(int(header.split(b":")[1])))

    async def error(self) -> tuple[Any, int]:
        answer = await self.read()
        return answer["id"], answer["error"]["code"]

    async def pong(self) -> list[Any]:
        """Ask for a sign of life. Return the messages that came before it."""
        self.tell(PING)
        messages = []
        while (message := await self.read()) is not None and message.get("id") != PING["id"]:
            messages.append(message)
        assert message is not None
        assert message["result"] == "pong"
        return messages


async def handle(_connection: Connection, method: str, params: dict[str, Any]) -> Any:
    if method == "hang":
        await asyncio.Event().wait()
    if method == "odd":
        return "\ud800"
    return "pong"


@asynccontextmanager
async def connect_peer() -> AsyncIterator[Peer]:
    ours, theirs = socket.socketpair()
    reader, writer = await asyncio.open_connection(sock=ours)
    connection = Connection(reader, writer, handle)
    connection.admitted = True
    serving = asyncio.create_task(connection.serve())
    peer = Peer(*await asyncio.open_connection(sock=theirs), connection)
    try:
        yield peer
    finally:
        peer.writer.close()
        async with asyncio.timeout(WAIT_S):
            await serving


@pytest.mark.parametrize(
    ("body", "answer"),
    [
        (b'{"id": [1], "method": "ping"}', (None, INVALID_REQUEST)),
        (b'{"id": {"a": 1}, "method": "ping"}', (None, INVALID_REQUEST)),
        (b'{"id": true, "method": "ping"}', (None, INVALID_REQUEST)),
        (b'{"id": 1, "method": 7}', (1, INVALID_REQUEST)),
        (b'{"id": 1, "method": "ping", "params": "text"}', (1, INVALID_PARAMS)),
        (b'{"id": 1, "method": "ping", "params": [1, 2]}', (1, INVALID_PARAMS)),
        (b'[{"id": 1, "method": "ping"}]', (None, INVALID_REQUEST)),
        (b"null", (None, PARSE_ERROR)),
        (b"", (None, PARSE_ERROR)),
        (b"{", (None, PARSE_ERROR)),
        (b"\xff\xfe", (None, PARSE_ERROR)),
        (b"[" * 200_000, (None, PARSE_ERROR)),
        (b'{"id": 1e999, "method": "ping"}', (None, PARSE_ERROR)),
    ],
)
async def test_what_is_no_request_gets_an_error_and_the_connection_stays(body: bytes, answer: Any) -> None:
    async with connect_peer() as peer:
        peer.send(body)
        assert await peer.error() == answer
        assert await peer.pong() == []


@pytest.mark.parametrize(
    "header",
    [
        b"Content-Length: " + b"9" * 5_000,
        b"Content-Length: %d" % (MAX_BYTES + 1),
        b"Content-Length: -1",
        b"Content-Length: 1e3",
        b"Content-Type: x\r\n" * 64,
        b"GET / HTTP/1.1",
        b"x" * 100_000,
    ],
)
async def test_a_header_that_cannot_be_read_is_answered_before_the_end(header: bytes) -> None:
    async with connect_peer() as peer:
        peer.writer.write(header + b"\r\n\r\n")
        assert await peer.error() == (None, PARSE_ERROR)
        assert await peer.read() is None


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        ({"error": {"code": "E_ODD", "message": "no"}}, -32603),
        ({"error": {"code": -5, "message": ["no"]}}, -5),
        ({"error": "no"}, -32603),
        ({"error": False}, -32603),
        ({}, -32603),
    ],
)
async def test_an_odd_answer_is_an_error_and_never_a_result(answer: dict[str, Any], code: int) -> None:
    async with connect_peer() as peer:
        asking = asyncio.create_task(peer.connection.request("hooks.invoke", {}))
        request = await peer.read()
        peer.tell({"jsonrpc": "2.0", "id": True, "result": "of nobody"})
        peer.tell({"jsonrpc": "2.0", "id": request["id"], **answer})
        with pytest.raises(RpcError) as failure:
            await asking
        assert failure.value.code == code
        assert (await peer.pong())[0]["error"]["code"] == INVALID_REQUEST


async def test_a_request_whose_id_is_in_use_is_refused() -> None:
    async with connect_peer() as peer:
        for _ in range(2):
            peer.tell({"id": 1, "method": "hang"})
        assert await peer.error() == (1, INVALID_REQUEST)
        peer.tell({"method": "$/cancelRequest", "params": {"id": [1]}})
        peer.tell({"method": "$/cancelRequest", "params": {"id": 1}})
        assert await peer.error() == (1, REQUEST_CANCELLED)


@pytest.mark.parametrize("method", ["hang", "ping"])
async def test_a_request_that_is_cancelled_before_it_begins_is_answered_once(method: str) -> None:
    """Both messages are in one segment: the request is cancelled before its first step."""
    async with connect_peer() as peer:
        for number in (1, 1, 2):  # the id of an answered request may be used again
            peer.writer.write(
                encode_message({"id": number, "method": method})
                + encode_message({"method": "$/cancelRequest", "params": {"id": number}})
                + encode_message({"method": "$/cancelRequest", "params": {"id": number}})
            )
            assert await peer.error() == (number, REQUEST_CANCELLED)
            assert await peer.pong() == []


async def test_requests_under_way_are_bounded() -> None:  # S-20
    async with connect_peer() as peer:
        for number in range(MAX_UNDER_WAY + 1):
            peer.tell({"id": number, "method": "hang"})
        assert (await peer.error())[0] == MAX_UNDER_WAY


async def test_a_program_that_reads_no_more_fails_what_it_is_asked() -> None:
    """A pipe from the program may stay open when the one to it is closed: no answer would come (E-08)."""
    loop, reader = asyncio.get_running_loop(), asyncio.StreamReader()
    (theirs, from_program), (to_program, ours) = os.pipe(), os.pipe()
    pipe = os.fdopen(theirs, "rb", 0)
    incoming, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
    transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, os.fdopen(ours, "wb", 0))
    connection = Connection(reader, asyncio.StreamWriter(transport, protocol, None, loop), handle)
    serving = asyncio.create_task(connection.serve())
    os.close(to_program)
    with pytest.raises(PeerDisconnected):
        async with asyncio.timeout(WAIT_S):
            await connection.request("hooks.invoke", {})
    await serving
    os.close(from_program)
    incoming.close()
    await asyncio.sleep(0)


async def test_a_result_that_cannot_be_written_is_an_error() -> None:
    async with connect_peer() as peer:
        peer.tell({"id": 1, "method": "odd"})
        assert await peer.error() == (1, -32603)
        peer.connection.notify("session.event", {"text": "\ud800"})
        assert await peer.pong() == []


def _value(chance: random.Random, depth: int = 0) -> Any:
    kinds = [None, True, -1, 10**30, 1.5, "", "ping", "$/cancelRequest", "ä\x00", [], {}]
    if depth > 3 or chance.random() < 0.6:
        return chance.choice(kinds)
    if chance.random() < 0.5:
        return [_value(chance, depth + 1) for _ in range(chance.randrange(3))]
    names = ["id", "method", "params", "result", "error", "code", "message", "x"]
    return {name: _value(chance, depth + 1) for name in chance.sample(names, chance.randrange(5))}


async def test_whatever_comes_in_a_frame_the_connection_answers_on() -> None:
    """Random messages, some of them with damaged bytes. TEST_SEED repeats a run."""
    print(f"TEST_SEED={SEED}")
    chance = random.Random(SEED)
    async with connect_peer() as peer:
        for number in range(400):
            body = bytearray(json.dumps(_value(chance)).encode())
            if body and chance.random() < 0.3:
                body[chance.randrange(len(body))] = chance.randrange(256)
            peer.send(bytes(body))
            if number % 40 == 0:
                for answer in await peer.pong():
                    assert answer["jsonrpc"] == "2.0"
                    assert ("result" in answer) != ("error" in answer)
        await peer.pong()
