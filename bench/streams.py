"""All providers' streams at one address, encoded once, so that the server costs nothing: `python -m bench.streams`.

It prints its address and ends with its standard input. The first part of a path is the provider; the model's name says
what is streamed: `bench-chunks-400` at once, `bench-chunks-400-every-20ms` chunk by chunk.
"""

import asyncio
import random
import re
import sys
from functools import lru_cache
from importlib import import_module

from bench.providers import PROVIDERS
from treadle.testing.fake_http import END, Answer, Headers, frame, head, json_answer, listen
from treadle.testing.fake_model import Dialect, Reply

WORD = " streams"
"""The text of a chunk, as long as `contestants/harness.py` expects it."""
_MODEL = re.compile(rb"bench-chunks-(\d+)(?:-every-(\d+)ms)?")


def answer(method: str, path: str, headers: Headers, body: bytes) -> Answer:
    name, _, rest = path.removeprefix("/").partition("/")
    dialect = _dialects().get(name)
    if dialect is None:
        return json_answer(404, {"error": {"message": f"no provider is called {name!r}"}})
    other = dialect.other(method, f"/{rest}", headers, body)
    if other is not None:
        return other
    asked = _MODEL.search(body) or _MODEL.search(path.encode())
    if asked is None:
        return json_answer(404, dialect.failure(404, "no such model; try bench-chunks-400"))
    made = _made(name, int(asked[1]))
    every_s = int(asked[2] or 0) / 1000
    # A random phase, so that the chunks of many streams do not arrive in step.
    return Answer(made, random.random() * every_s, every_s) if every_s else Answer((b"".join(made),))


@lru_cache(maxsize=1)
def _dialects() -> dict[str, Dialect]:
    places = {provider.name: provider.dialect.split(":") for provider in PROVIDERS}
    return {name: getattr(import_module(module), kind)() for name, (module, kind) in places.items()}


@lru_cache(maxsize=64)
def _made(name: str, chunks: int) -> tuple[bytes, ...]:
    """The writes of an answer: its head with the first event, then a write for each event."""
    reply = Reply(text=WORD * chunks, chunk_size=len(WORD), usage=(100, chunks))
    request = {"model": "bench", "stream": True, "stream_options": {"include_usage": True}}
    content_type, pieces = _dialects()[name].pieces(reply, request, 0)
    first, *rest = [frame(piece) for piece in pieces]
    return (head(200, content_type) + first, *rest[:-1], rest[-1] + END)


async def _serve() -> None:
    server, port = await listen(answer, set())
    print(f"http://127.0.0.1:{port}", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.buffer.read)
    server.close()


if __name__ == "__main__":
    asyncio.run(_serve())
