"""What a chat takes that does nothing: growth of the server's memory with many chats whose run is over, and once more
with a stream open to each."""

import asyncio
import tempfile
from pathlib import Path

import msgspec

from bench.processes import fake_provider
from bench.server.postgres import DISK
from bench.server.readers import WAIT_S, Ends, Reader, read
from bench.server.site import Site, each, site

WARM = 50
"""Chats that are not counted: what a server needs once is there after them."""
MODEL = "openai:bench-chunks-40"


class Idle(msgspec.Struct, frozen=True):
    """In KB, for each chat."""

    alone: float
    streamed: float
    """With an open stream, all in all."""


def idle(chats: int) -> Idle:
    with (
        tempfile.TemporaryDirectory(prefix="treadle-bench-", dir=DISK) as folder,
        fake_provider() as url,
        site(Path(folder), url, chats=WARM + chats) as place,
    ):
        return asyncio.run(_measure(place, chats))


async def _measure(place: Site, chats: int) -> Idle:
    async with place:
        readers = await each(WARM, lambda n: _follow(place, n, ""))  # open to the end, lest their memory is used again
        before = place.process.resident
        ids = await each(chats, lambda n: _run(place, WARM + n))
        between = place.process.resident
        readers += await each(chats, lambda n: _follow(place, WARM + n, ids[n]))
        after = place.process.resident
        for reader in readers:
            reader.close()
    alone = (between - before) / chats / 1024
    return Idle(alone, alone + (after - between) / chats / 1024)


async def _run(place: Site, number: int) -> str:
    """A chat whose first run is over, with nobody attached."""
    ended = Ends()
    chat = await place.create(number, model=MODEL)
    reader = await read(place.address, chat, place.token(number), ended.got)
    await place.post(number, f"/api/chats/{chat}/messages", {"content": "Go on."})
    async with asyncio.timeout(WAIT_S):
        await ended.over.wait()
    reader.close()
    return chat


async def _follow(place: Site, number: int, chat: str) -> Reader:
    """A stream that has sent the whole log and waits."""
    ended = Ends()
    chat = chat or await _run(place, number)
    reader = await read(place.address, chat, place.token(number), ended.got)
    async with asyncio.timeout(WAIT_S):
        await ended.over.wait()
    return reader
