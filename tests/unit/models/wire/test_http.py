"""Reading from a provider: whole however slowly it is read, and without a pass of the parser for each piece."""

import asyncio
from collections.abc import Callable

import pytest
from aiohttp.client_proto import ResponseHandler

from tests.unit.models.loopback import Exchange, serving
from treadle.models.keys import Secret
from treadle.models.wire.http import Http

LINES = [b"%07d\n" % number for number in range(60_000)]


async def _answer(exchange: Exchange) -> None:
    await exchange.stream(*(b"".join(LINES[at : at + 3]) for at in range(0, len(LINES), 3)))


@pytest.mark.parametrize("patience", [0, 1])
async def test_a_long_answer_is_whole_though_reading_is_paused(patience: int) -> None:
    """More than is buffered: the connection stops reading and goes on, in the middle of what it parses."""
    http = Http()
    async with serving(_answer) as server:
        with await http.post(server.url, {}, b"{}", Secret("")) as reply:
            read = []
            while piece := await reply.read():
                read.append(piece)
                for _ in range(patience * 200):
                    await asyncio.sleep(0)  # the server gets ahead
    await http.close()
    assert b"".join(read) == b"".join(LINES)


async def test_what_is_read_does_not_go_through_the_parser_again(monkeypatch: pytest.MonkeyPatch) -> None:
    fed: list[bytes] = []
    received: Callable[[ResponseHandler, bytes], None] = ResponseHandler.data_received
    monkeypatch.setattr(
        ResponseHandler, "data_received", lambda self, data: (fed.append(data), received(self, data))[1]
    )
    http = Http()

    async def answer(exchange: Exchange) -> None:
        await exchange.stream(*LINES[:50])

    async with serving(answer) as server:
        with await http.post(server.url, {}, b"{}", Secret("")) as reply:
            while await reply.read():
                pass
    await http.close()
    assert fed
    assert b"" not in fed
