"""All providers' streams at one address, encoded once, so that the server costs nothing: `python -m bench.streams`.

It prints its address and ends with its standard input. The first part of a path is the provider; the model's name says
how much is streamed, as in `bench-chunks-400`. A client whose reads take `chunk_bytes` each gets one chunk a read,
because the head is as long as it must be for that.
"""

import asyncio
import re
import sys
from collections import Counter
from functools import lru_cache
from importlib import import_module

from bench.providers import PROVIDERS
from treadle.testing.fake_http import END, FakeResponse, Headers, encode_chunk, encode_head, listen, make_json_answer
from treadle.testing.fake_model import Dialect, Reply

WORD = " streams"
"""The text of a chunk, as long as `contestants/harness.py` expects it."""
_PATHS = {provider.name: provider.path for provider in PROVIDERS}
_MODEL = re.compile(rb"bench-chunks-(\d+)")


def answer(method: str, path: str, headers: Headers, body: bytes) -> FakeResponse:
    name, _, rest = path.removeprefix("/").partition("/")
    dialect = _dialects().get(name)
    if dialect is None:
        return make_json_answer(404, {"error": {"message": f"no provider is called {name!r}"}})
    other = dialect.answer_other_request(method, f"/{rest}", headers, body)
    if other is not None:
        return other
    asked = _MODEL.search(body) or _MODEL.search(path.encode())
    if asked is None:
        return make_json_answer(404, dialect.build_failure(404, "no such model; try bench-chunks-400"))
    return made(name, int(asked[1]))


def chunk_bytes(name: str, chunks: int) -> int:
    """The bytes of a chunk of text in an answer of so many, as HTTP sends it."""
    return _most_common(_frames(name, chunks)[1])


@lru_cache(maxsize=1)
def _dialects() -> dict[str, Dialect]:
    places = {provider.name: provider.dialect.split(":") for provider in PROVIDERS}
    return {name: getattr(import_module(module), kind)() for name, (module, kind) in places.items()}


@lru_cache(maxsize=64)
def made(name: str, chunks: int) -> FakeResponse:
    content_type, frames = _frames(name, chunks)
    size = _most_common(frames)
    first = next(number for number, data in enumerate(frames) if len(data) == size)
    plain = len(encode_head(200, content_type, {"X-Filler": ""})) + sum(map(len, frames[:first]))
    filler = {"X-Filler": "." * (-plain % size)}
    return FakeResponse((b"".join([encode_head(200, content_type, filler), *frames, END]),))


def _frames(name: str, chunks: int) -> tuple[str, list[bytes]]:
    """The content type of an answer, and its HTTP chunks."""
    reply = Reply(text=WORD * chunks, chunk_size=len(WORD), usage=(100, chunks))
    request = {"model": "bench", "stream": True, "stream_options": {"include_usage": True}}
    dialect = _dialects()[name]
    if path := _PATHS[name]:
        dialect.answer_other_request("POST", path, {}, b"{}")
    content_type, pieces = dialect.build_pieces(reply, request, 0)
    return content_type, [encode_chunk(piece) for piece in pieces]


def _most_common(frames: list[bytes]) -> int:
    return Counter(map(len, frames)).most_common(1)[0][0]


async def _serve() -> None:
    server, port = await listen(answer, set())
    print(f"http://127.0.0.1:{port}", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.buffer.read)
    server.close()


if __name__ == "__main__":
    asyncio.run(_serve())
