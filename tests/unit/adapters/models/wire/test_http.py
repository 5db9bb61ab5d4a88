"""Reading from a provider: whole, however slowly it is read."""

import asyncio

import pytest

from tests.unit.adapters.models.loopback import Exchange, serving
from treadle.adapters.models.keys import Secret
from treadle.adapters.models.openai_chat.adapter import OpenAIChat
from treadle.adapters.models.wire.http import Http
from treadle.errors import ModelError
from treadle.ports.model import ModelInfo

LINES = [b"%07d\n" % number for number in range(60_000)]


async def _answer(exchange: Exchange) -> None:
    await exchange.stream(*(b"".join(LINES[at : at + 3]) for at in range(0, len(LINES), 3)))


@pytest.mark.thorough(one_of=8)
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


async def test_a_password_in_an_address_is_not_told() -> None:  # M-13
    http = Http()
    with pytest.raises(ModelError, match=r"^127\.0\.0\.1:9 cannot be reached") as caught:
        await http.get("http://user:hunter2@127.0.0.1:9/v1", {}, Secret(""))
    await http.close()
    assert "hunter2" not in str(caught.value)
    model = OpenAIChat(ModelInfo("openai", "m"), base_url="http://user:hunter2@127.0.0.1:9/v1")
    assert repr(model) == "OpenAIChat('openai:m', 'http://127.0.0.1:9/v1')"
