"""Bytes of a stream to events: every split, once each, never a gap (A-07, D-04)."""

import asyncio
from contextlib import aclosing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.base.stream_server import close_server, start_stream_server
from treadle.base.types import ChatId
from treadle.client.http import Gap, Http, Lines, Place, decode_error, follow
from treadle.protocol import wire
from treadle.protocol.events import (
    AssistantMessage,
    AssistantReset,
    Envelope,
    Event,
    MessageDelta,
    RunEnd,
    TurnEnd,
)

CHAT = ChatId("c_1")


def data(seq: int, event: Event) -> bytes:
    return wire.to_json(Envelope(seq, CHAT, 1, event))


LOG = [data(1, AssistantMessage(1, "ä \n : data: id")), data(0, MessageDelta(1, "x")), data(2, RunEnd("done"))]
STREAM = b"retry: 1000\n\n: still here\n\n" + b"".join(b"id: 7\ndata: %b\n\n" % piece for piece in LOG)


@given(st.lists(st.integers(1, 40), max_size=60))
def test_however_a_stream_is_cut_its_data_is_the_same(sizes: list[int]) -> None:
    lines, remaining_bytes, payloads = Lines(), STREAM, []
    for size in sizes:
        payloads += lines.feed(remaining_bytes[:size])
        remaining_bytes = remaining_bytes[size:]
    payloads += lines.feed(remaining_bytes)
    assert payloads == LOG


def test_an_event_that_came_before_comes_no_more() -> None:
    place = Place(0)
    assert place.take(data(1, RunEnd("done"))) is not None
    assert place.take(data(1, RunEnd("done"))) is None
    assert place.take(data(0, MessageDelta(1, "x"))) is not None
    assert place.after == 1


def test_an_event_too_far_ahead_is_a_gap() -> None:
    place = Place(3)
    with pytest.raises(Gap):
        place.take(data(5, RunEnd("done")))
    assert place.after == 3


def test_an_event_of_a_newer_server_is_passed_over_and_counted() -> None:
    place = Place(3)
    assert place.take(b'{"seq": 4, "chat": "c_1", "type": "session.of_the_future", "data": {}}') is None
    assert place.after == 4


def test_after_a_reconnection_partial_text_is_dropped_once() -> None:
    place = Place(0)
    assert place.reset(CHAT) is None
    place.take(data(0, MessageDelta(3, "half")))
    dropped = place.reset(CHAT)
    assert dropped is not None
    assert dropped.data == AssistantReset(3)
    assert place.reset(CHAT) is None
    place.take(data(0, MessageDelta(3, "half")))
    place.take(data(1, TurnEnd(3)))
    assert place.reset(CHAT) is None


def test_errors_of_a_server_and_of_a_proxy_before_it() -> None:
    ours = decode_error(409, b'{"error": {"code": "busy", "message": "It is at work."}}')
    assert (ours.status, ours.reason, str(ours)) == (409, "busy", "It is at work.")
    theirs = decode_error(502, b"<html>Bad Gateway</html>")
    assert (theirs.status, theirs.reason) == (502, "http")
    assert "Bad Gateway" in str(theirs)


async def test_patience_counts_from_the_loss_of_the_connection() -> None:  # A-07, fault 16
    """A stream may be quiet for longer than a server may be away."""
    connections = 0
    port = 0

    async def serve(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")
        if connections == 1:
            await asyncio.sleep(2.5)  # quiet for longer than the patience
            await close_server(server)
            restart.set()
        else:
            writer.write(b"data: %b\n\n" % LOG[0])
            await writer.drain()
        writer.close()

    async def start_again() -> asyncio.Server:
        await restart.wait()
        await asyncio.sleep(0.2)  # the first attempt to reconnect fails
        return await start_stream_server(serve, "127.0.0.1", port)

    restart = asyncio.Event()
    server = await start_stream_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    starting = asyncio.create_task(start_again())
    http = Http(f"http://127.0.0.1:{port}", "", 2)
    async with asyncio.timeout(60), aclosing(follow(http, CHAT, 0, True, 2)) as events:
        assert (await anext(events)).seq == 1
    await http.close()
    (await starting).close()
    assert connections == 2
