"""How soon a run goes on: from the POST of a tool's result until the next model request is with the provider, which is
in the process that posts, so that one clock measures both."""

import asyncio
import statistics
import tempfile
import time
from pathlib import Path

import msgspec

from bench.server.postgres import DISK
from bench.server.readers import WAIT_S, Waits, quantile, read
from bench.server.site import Site, site
from treadle.testing.fake_http import FakeResponse, Headers, HttpConnection, close, listen
from treadle.testing.fake_openai import ChatCompletions, answer_bench

ROUNDS = 15
"""Of one chat: as many as fit below its cap of turns."""
PAUSE_S = 0.05
"""A client takes a moment for its tool; meanwhile the server comes to rest."""
NOOP = {
    "name": "noop",
    "description": "Does nothing.",
    "input_schema": {"type": "object", "properties": {"n": {"type": "integer"}}},
}
_dialect = ChatCompletions()


class GoingOn(msgspec.Struct, frozen=True):
    """In milliseconds, of many rounds on a server that does nothing else."""

    answered: float
    """Until the POST is answered, the median: the result is recorded."""
    median: float
    p95: float


class _Provider:
    """Answers as the benchmark's provider does, and tells when it is asked."""

    def __init__(self) -> None:
        self.asked: asyncio.Queue[float] = asyncio.Queue()

    def route(self, method: str, path: str, headers: Headers, body: bytes) -> FakeResponse:
        other = _dialect.answer_other_request(method, path, headers, body)
        if other is not None:
            return other
        self.asked.put_nowait(time.perf_counter())
        return answer_bench(body)

    async def next(self) -> float:
        async with asyncio.timeout(WAIT_S):
            return await self.asked.get()


def going_on(chats: int, store: str = "", *, apart: bool = False) -> GoingOn:
    with tempfile.TemporaryDirectory(prefix="treadle-bench-", dir=DISK) as folder:
        return asyncio.run(_measure(Path(folder), chats, store, apart))


async def _measure(folder: Path, chats: int, store: str, apart: bool) -> GoingOn:
    provider = _Provider()
    connections: set[HttpConnection] = set()
    server, port = await listen(provider.route, connections)
    try:
        with site(folder, f"http://127.0.0.1:{port}/v1", store, chats=chats, apart=apart) as place:
            async with place:
                rounds = [each for number in range(chats + 1) for each in await _chat(place, provider, number)]
    finally:
        await close(server, connections)
    answered, asked = zip(*rounds[ROUNDS:], strict=True)  # the first chat warms the server up
    return GoingOn(statistics.median(answered), statistics.median(asked), quantile(asked, 0.95))


async def _chat(place: Site, provider: _Provider, number: int) -> list[tuple[float, float]]:
    """A chat from its beginning to its end: of each round when the POST was answered, and when the provider was
    asked."""
    waits = Waits()
    model = f"openai:bench-rounds-{ROUNDS}"
    chat = await place.create(number, model=model, content="Go on.", dynamic_tools=[NOOP], max_turns=ROUNDS + 5)
    reader = await read(place.address, chat, place.token(number), waits.got)
    await provider.next()
    rounds = []
    for turn in range(ROUNDS):
        call = await waits.call()
        await asyncio.sleep(PAUSE_S)
        began = time.perf_counter()
        results = {"results": [{"tool_call_id": call, "output": turn}]}
        await place.post(number, f"/api/chats/{chat}/tool-results", results)
        answered = time.perf_counter()
        asked = await provider.next()
        rounds.append(((answered - began) * 1e3, (asked - began) * 1e3))
    reader.close()
    return rounds
