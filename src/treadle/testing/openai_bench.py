"""Answers for benchmarks, chosen by the model's name alone and encoded once.

`bench-chunks-400` streams 400 chunks of text; `bench-rounds-10` asks for one tool call in each of 10 rounds, then
answers; `-every-20ms` paces the chunks; the parts combine. Knows no sockets and keeps no state between requests.
"""

import random
import re
from functools import lru_cache

import msgspec

from treadle.testing.fake_http import END, Answer, frame, head, json_answer
from treadle.testing.fake_model import Reply, answer
from treadle.testing.openai_reply import ChatCompletions, failure, stream_chunks

_PARTS = re.compile(r"-(chunks|rounds|every)-(\d+)(?:ms)?")
_WORD = " streams"
_PREFERRED = ("noop", "read_file")


class _Message(msgspec.Struct):
    role: str


class _Function(msgspec.Struct):
    name: str


class _Tool(msgspec.Struct):
    function: _Function


class _StreamOptions(msgspec.Struct):
    include_usage: bool = False


class _Request(msgspec.Struct):
    """Only what an answer depends on; the rest of a long request is skipped, not built."""

    model: str
    messages: list[_Message]
    stream: bool = False
    tools: list[_Tool] = []
    stream_options: _StreamOptions | None = None


_decode = msgspec.json.Decoder(_Request).decode


def bench_answer(body: bytes) -> Answer:
    """The answer to a request's body."""
    try:
        request = _decode(body)
    except msgspec.MsgspecError as error:
        return json_answer(400, failure(f"not a chat completions request: {error}"))
    parts = {name: int(number) for name, number in _PARTS.findall(request.model)}
    if not request.model.startswith("bench") or not parts:
        return json_answer(404, failure(f"no such model {request.model!r}; try bench-chunks-400 or bench-rounds-10"))
    done = sum(message.role == "assistant" for message in request.messages)
    tool = _pick_tool(request.tools) if done < parts.get("rounds", 0) else ""
    usage = bool(request.stream_options and request.stream_options.include_usage)
    made = _made(request.model, request.stream, usage, tool, done if tool else 0, parts.get("chunks", 4))
    every_s = parts.get("every", 0) / 1000
    if not every_s or len(made) == 1:
        return Answer((b"".join(made),))
    # A random phase, so that the chunks of many chats do not arrive in step.
    return Answer(made, delay_s=random.random() * every_s, every_s=every_s)


def _pick_tool(tools: list[_Tool]) -> str:
    names = [tool.function.name for tool in tools]
    return next((name for name in _PREFERRED if name in names), names[0] if names else "")


def _arguments(tool: str, number: int) -> dict[str, object]:
    """Different in every round, so that no loop guard takes the rounds for a loop."""
    return {"path": f"file-{number}.txt"} if tool == "read_file" else {"n": number}


@lru_cache(maxsize=4096)
def _made(model: str, stream: bool, usage: bool, tool: str, number: int, chunks: int) -> tuple[bytes, ...]:
    """The writes of an answer: its head with the first chunk, then a write for each chunk."""
    request = {"model": model, "stream": stream, "stream_options": {"include_usage": usage}}
    if tool:
        reply = Reply(calls=[(tool, _arguments(tool, number))])
    else:
        reply = Reply(text=_WORD * chunks, chunk_size=len(_WORD), usage=(100, chunks))
    if not stream:
        return answer(ChatCompletions(), reply, request, number).writes
    first, *rest = [frame(event) for event in stream_chunks(reply, request, number)]
    return (head(200, "text/event-stream") + first, *rest[:-1], rest[-1] + END)
