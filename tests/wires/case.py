"""Reads the cases of one server and plays one against its adapter. A case is a public fact about a wire: the bytes
that a server sends, and what Treadle makes of them. The files beside this one hold nothing but such facts.

A file names its server, the model under which Treadle reaches it, and its cases. Keys of a case:

- `name`; `source`, a public address that was opened when the case was written and tells of the shape; without one the
  shape is by hand, and `see` may name a page that should tell of it and was not opened;
- the reply: `events` (JSON texts, sent as server-sent events, or as lines by Ollama), or `body` with `status` and
  `headers`; `replies` holds several such replies for several requests;
- `answer`: the sum of the stream (`text`, `thinking`, `calls`, `cut`, `finish`, `notices`, `usage`);
  `error`: the failure instead (`kind`, `says`, `retry_after`);
- `back`: content that the assistant's message of the next request must have; `absent`: fields that it must not have;
- `sent`: content that the last request must have; `unsent`: fields that it must not have; `path`: where it went;
  `requests`: how many requests one call made;
- `effort`: the reasoning effort of the request; `earlier`: the conversation begins with a call of another model;
- `run`: the case is also played through the command line, which must end with `exit` and print `says`.
"""

import tomllib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import msgspec

from tests.unit.adapters.models.loopback import Exchange, serving
from treadle.adapters.models.providers import VARIABLES
from treadle.adapters.models.registry import ModelRegistry
from treadle.base.types import make_call_key
from treadle.chat.assembly import Assembler, ModelAnswer
from treadle.errors import ModelError
from treadle.ports.model import Memo, ModelRequest
from treadle.protocol.content import (
    AssistantEntry,
    Entry,
    ResultsEntry,
    Thinking,
    ToolRequest,
    ToolResult,
    Usage,
    UserEntry,
)
from treadle.protocol.options import ReasoningEffort
from treadle.protocol.tools import ToolSpec
from treadle.testing.fake_http import END, FakeResponse, encode_chunk, encode_head

FOLDER = Path(__file__).parent
TOOLS = (
    ToolSpec("read_file", "Read a file.", {"type": "object", "properties": {"path": {"type": "string"}}}),
    ToolSpec("list_files", "List files.", {"type": "object", "properties": {}}),
)
KEY = "sk-wire-test"
BY_HAND = "shape by hand"


EARLIER = ModelAnswer(
    "I look.",
    (Thinking("Files first.", "", "other:model"),),
    (ToolRequest(make_call_key(1, 0), "list_files", "{}", "call_0"),),
)
"""The earlier answer of another model."""


class Reply(msgspec.Struct, forbid_unknown_fields=True):
    status: int = 200
    headers: dict[str, str] = {}
    events: list[str] = []
    body: str = ""
    cut: bool = False
    """The connection is dropped behind the events."""


class Answer(msgspec.Struct, forbid_unknown_fields=True):
    """Each part is compared where the case gives it."""

    text: str | None = None
    thinking: str | None = None
    calls: list[tuple[str, str]] | None = None
    cut: list[bool] | None = None
    finish: str | None = None
    notices: list[str] | None = None
    """Kinds, in their order."""
    usage: dict[str, float] | None = None


class Failure(msgspec.Struct, forbid_unknown_fields=True):
    kind: str
    says: str = ""
    retry_after: float | None = None


class ExpectedRun(msgspec.Struct, forbid_unknown_fields=True):
    exit: int
    says: str = ""


class Case(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    source: str = BY_HAND
    see: str = ""
    effort: ReasoningEffort | Literal[""] = ""
    earlier: bool = False
    status: int = 200
    headers: dict[str, str] = {}
    events: list[str] = []
    body: str = ""
    cut: bool = False
    replies: list[Reply] = []
    model: str = ""
    """In place of the file's own."""
    answer: Answer | None = None
    error: Failure | None = None
    back: dict[str, Any] = {}
    absent: list[str] = []
    sent: dict[str, Any] = {}
    unsent: list[str] = []
    path: str = ""
    requests: int = 0
    run: ExpectedRun | None = None

    @property
    def all_replies(self) -> Sequence[Reply]:
        return self.replies or [Reply(self.status, self.headers, self.events, self.body, self.cut)]


class Server(msgspec.Struct, forbid_unknown_fields=True):
    """One file."""

    server: str
    model: str
    tried: str
    """How: by shapes written by hand, or with real software."""
    case: list[Case]


def read_server(file: Path) -> Server:
    return msgspec.convert(tomllib.loads(file.read_text(encoding="utf-8")), Server)


def all_servers() -> list[Server]:
    return [read_server(file) for file in sorted(FOLDER.glob("*.toml"))]


def all_cases() -> list[tuple[str, Case]]:
    """Every case, with the model that it is played with."""
    return [(case.model or server.model, case) for server in all_servers() for case in server.case]


def reach(model: str, url: str) -> dict[str, str]:
    """The environment in which a model is looked for at this address."""
    provider = model.partition(":")[0]
    row = VARIABLES[provider]
    base = url.removesuffix("/v1") if provider in ("anthropic", "gemini", "ollama") else url
    return {row.keys[0]: KEY, row.addresses[0]: base}


def encode_reply(reply: Reply, *, lines: bool) -> FakeResponse:
    """The same for a server in a thread, which the command line can reach."""
    if reply.body or reply.status != 200:
        return FakeResponse(
            (encode_head(reply.status, "application/json", reply.headers) + encode_chunk(reply.body.encode()) + END,)
        )
    kind = "application/x-ndjson" if lines else "text/event-stream"
    pieces = b"".join(encode_chunk(f"{event}\n".encode() if lines else _event(event)) for event in reply.events)
    return FakeResponse((encode_head(200, kind, reply.headers) + pieces + END,))


async def write_reply(exchange: Exchange, reply: Reply, *, lines: bool) -> None:
    if reply.body or reply.status != 200:
        kind = {"Content_Type": "application/json"}
        await exchange.reply(reply.status, reply.body.encode(), **kind, **reply.headers)
        return
    pieces = [f"{event}\n".encode() if lines else _event(event) for event in reply.events]
    await exchange.stream(*pieces, end=not reply.cut, kind="application/x-ndjson" if lines else "text/event-stream")
    if reply.cut:
        exchange.drop()


def _event(data: str) -> bytes:
    """A server-sent event, named by its `type` where it has one, as Anthropic and OpenAI do."""
    name = ""
    if data.startswith("{"):
        kind = msgspec.json.decode(data).get("type")
        name = f"event: {kind}\n" if isinstance(kind, str) else ""
    return f"{name}data: {data}\n\n".encode()


class Played(msgspec.Struct):
    answer: ModelAnswer | None = None
    error: ModelError | None = None
    notices: list[str] = []
    requests: list[dict[str, Any]] = []
    paths: list[str] = []
    next: dict[str, Any] = {}


async def play(model_ref: str, case: Case) -> Played:
    """Ask once; if an answer came, ask again with that answer in the conversation."""
    played = Played()
    replies = case.all_replies
    provider = model_ref.partition(":")[0]

    async def handle(exchange: Exchange) -> None:
        if exchange.path.endswith("/api/show"):
            await exchange.reply(404, b'{"error":"unknown"}')
            return
        played.requests.append(exchange.json)
        played.paths.append(exchange.path)
        reply = replies[min(len(played.requests), len(replies)) - 1]
        await write_reply(exchange, reply, lines=provider == "ollama")

    async with serving(handle) as server:
        registry = ModelRegistry(reach(model_ref, server.url))
        try:
            model = registry.get(model_ref)
            entries: list[Entry] = [UserEntry("What is in a.txt?")]
            if case.earlier:
                entries += _make_reply_entries(EARLIER)
            request = ModelRequest("Be brief.", entries, TOOLS, memo=Memo(), effort=case.effort)
            try:
                played.answer, played.notices = await _assemble_answer(model, request)
            except ModelError as error:
                played.error = error
            first = len(played.requests), list(played.paths)
            if played.answer is not None and (case.back or case.absent):
                request = msgspec.structs.replace(request, entries=[*entries, *_make_reply_entries(played.answer)])
                with suppress(ModelError):  # only what was sent is looked at
                    await _assemble_answer(model, request)
                played.next = played.requests[first[0]]
            del played.requests[first[0] :]
            played.paths = first[1]
        finally:
            await registry.close()
    return played


async def _assemble_answer(model: Any, request: ModelRequest) -> tuple[ModelAnswer, list[str]]:
    assembler = Assembler(1)
    async for deltas in model.stream(request):
        assembler.feed(deltas)
    return assembler.finish(model.info.ref), [notice.kind for notice in assembler.notices]


def _make_reply_entries(answer: ModelAnswer) -> list[Entry]:
    reply: Entry = AssistantEntry(1, answer.text, answer.thinking, answer.requests)
    if not answer.requests:
        return [reply, UserEntry("Go on.")]
    return [reply, ResultsEntry(1, tuple(ToolResult(call.call, "done") for call in answer.requests))]


def check(case: Case, played: Played) -> None:
    """AssertionError says which part of the case does not hold."""
    if case.error is not None:
        assert played.error is not None, f"no error, but {played.answer}"
        assert played.error.kind == case.error.kind, str(played.error)
        assert case.error.says in str(played.error), str(played.error)
        if case.error.retry_after is not None:
            assert played.error.retry_after == case.error.retry_after
    else:
        assert played.error is None, f"{played.error.kind}: {played.error}"
    if case.answer is not None:
        assert played.answer is not None
        _check_answer(case.answer, played.answer, played.notices)
    if case.back or case.absent:
        _check_back(case, played.next)
    if case.requests:
        assert len(played.requests) == case.requests
    if case.path:
        assert played.paths[-1].endswith(case.path), played.paths
    assert_contains(played.requests[-1], case.sent, "request")
    for field in case.unsent:
        assert field not in played.requests[-1], field


def _check_answer(expected: Answer, answer: ModelAnswer, notices: list[str]) -> None:
    actual_parts = {
        "text": answer.text,
        "thinking": "".join(block.text for block in answer.thinking),
        "calls": [(call.name, call.arguments) for call in answer.requests],
        "cut": [call.repaired for call in answer.requests],
        "finish": answer.finish_reason,
        "notices": notices,
    }
    for part in actual_parts:
        if (value := getattr(expected, part)) is not None:
            assert actual_parts[part] == value, f"{part}: {actual_parts[part]!r}"
    for name, count in (expected.usage or {}).items():
        assert getattr(answer.usage or Usage(), name) == count, f"usage: {answer.usage}"


def _check_back(case: Case, request: Mapping[str, Any]) -> None:
    """Every item of the conversation by the model, as one: a message, or the parts of one."""
    model_items = [item for item in _conversation(request) if _is_by_model(item)]
    assert model_items, "nothing of the answer went back"
    merged: dict[str, Any] = {}
    for item in model_items:
        merged |= item
    if list(case.back) == ["items"]:
        assert_contains(model_items, case.back["items"], "items")
    else:
        assert_contains(merged, case.back, "message")
    for field in case.absent:
        assert field not in merged, field


def _conversation(request: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    for name in ("messages", "input", "contents"):
        if name in request:
            items: Sequence[Mapping[str, Any]] = request[name]
            return items
    return ()


def _is_by_model(item: Mapping[str, Any]) -> bool:
    if "role" in item:
        return item["role"] in ("assistant", "model")
    return item.get("type") in ("reasoning", "function_call")


def assert_contains(actual: Any, expected: Any, location: str) -> None:
    """Objects may have more fields than wanted; lists must have the same length; a field that is wanted must equal."""
    if isinstance(expected, Mapping):
        assert isinstance(actual, Mapping), f"{location}: {actual!r}"
        for name, value in expected.items():
            assert name in actual, f"{location} has no {name}: {actual!r}"
            assert_contains(actual[name], value, f"{location}.{name}")
    elif isinstance(expected, list):
        assert isinstance(actual, list), f"{location}: {actual!r}"
        assert len(actual) == len(expected), f"{location}: {actual!r}"
        for number, (one, value) in enumerate(zip(actual, expected, strict=True)):
            assert_contains(one, value, f"{location}[{number}]")
    else:
        assert actual == expected, f"{location}: {actual!r}"
