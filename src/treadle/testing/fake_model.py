"""The script of a fake model, free of any protocol: replies, chosen by how far the conversation is. A dialect turns a
reply into one provider's bytes."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import msgspec

from treadle.base.types import JsonObject
from treadle.testing.fake_http import (
    END,
    FakeResponse,
    Headers,
    ThreadedServer,
    encode_chunk,
    encode_head,
    make_json_answer,
)


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """One scripted answer. The defaults are a short, well-behaved one."""

    text: str = ""
    calls: Sequence[tuple[str, JsonObject | str]] = ()  # (name, arguments); a string of arguments is sent as it is
    ids: Sequence[str] = ()  # ids of the calls; by default they are made from the number of assistant messages before
    thinking: str = ""
    signature: str = ""  # of the thinking, or its encrypted form; made if there is thinking without it
    usage: tuple[int, int] | None = (10, 5)  # input and output tokens; streamed only if `include_usage` is asked for
    finish: str = ""  # the finish reason; by default `tool_calls` or `stop`, whichever fits
    status: int = 200
    headers: Mapping[str, str] = {}
    error: JsonObject | None = None  # The body's `error` object. A status of 400 and above has one by itself.
    chunk_size: int = 0  # characters in each streamed chunk; 0 sends text, thinking and arguments in one chunk each
    delay_s: float = 0.0  # before the first byte
    every_s: float = 0.0  # between two chunks (or two writes, with `split`)
    cut_after: int | None = None  # drop the connection after this many bytes of the body
    raw: bytes | None = None  # the exact bytes of the body, in place of all that the fields above would make
    split: int = 0  # bytes of the body in each write; 0 leaves each chunk whole

    def identify_calls(self, made_up: str) -> Iterator[tuple[str, str, str]]:
        """The calls as (id, name, arguments in JSON); ids that the script does not give begin with `made_up`."""
        for index, (name, arguments) in enumerate(self.calls):
            identity = self.ids[index] if index < len(self.ids) else f"{made_up}_{index}"
            yield identity, name, arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode()


Script = Sequence[Reply] | Callable[[JsonObject], Reply]


class Dialect(ABC):
    """One provider's protocol, as far as a server must speak it."""

    content_type = "text/event-stream"  # of a streamed answer

    def count_answers(self, request: JsonObject) -> int:
        """How many answers of the assistant the request carries."""
        messages = request.get("messages")
        listed = messages if isinstance(messages, list) else ()
        return sum(isinstance(message, dict) and message.get("role") == "assistant" for message in listed)

    def build_pieces(self, reply: Reply, request: JsonObject, position: int) -> tuple[str, Iterable[bytes]]:
        """The content type and the body of a good answer, one piece for each streamed chunk."""
        if request.get("stream"):
            return self.content_type, self.stream(reply, request, position)
        return "application/json", [msgspec.json.encode(self.build_answer(reply, request, position))]

    @abstractmethod
    def stream(self, reply: Reply, request: JsonObject, position: int) -> Iterator[bytes]:
        """The chunks of a streamed answer, one by one."""

    @abstractmethod
    def build_answer(self, reply: Reply, request: JsonObject, position: int) -> dict[str, Any]:
        """The answer to a request that asks for no stream."""

    @abstractmethod
    def build_failure(self, status: int, message: str) -> JsonObject:
        """The body of a refusal."""

    @abstractmethod
    def answer_other_request(self, method: str, path: str, headers: Headers, body: bytes) -> FakeResponse | None:
        """The answer to anything that is no model call; None when the request is one."""

    def refuse(self, message: str, status: int = 400) -> FakeResponse:
        return make_json_answer(status, self.build_failure(status, message))

    def answer_unknown_path(self, method: str, path: str) -> FakeResponse:
        return self.refuse(f"the fake server has no {method} {path}", 404)


def answer(dialect: Dialect, reply: Reply, request: JsonObject, position: int) -> FakeResponse:
    """Turn a reply to `request`, the one after `position` answers of the assistant, into timed writes."""
    content_type = "application/json"
    if reply.error is not None or reply.status >= 400:
        error_body = {"error": reply.error} if reply.error is not None else None
        failed = error_body or dialect.build_failure(reply.status, f"scripted failure {reply.status}")
        pieces: Iterable[bytes] = [msgspec.json.encode(failed)]
    else:
        content_type, pieces = dialect.build_pieces(reply, request, position)
    if reply.raw is not None:
        pieces = [reply.raw]
    broken = reply.cut_after is not None
    body = [encode_chunk(piece) for piece in resize(pieces, reply) if piece]
    writes = [encode_head(reply.status, content_type, reply.headers), *body, b"" if broken else END]
    if not reply.split and not reply.every_s:
        writes = [b"".join(writes)]
    return FakeResponse(tuple(writes), reply.delay_s, reply.every_s, broken)


def split_text(text: str, size: int) -> list[str]:
    if not text or not size:
        return [text] if text else []
    return [text[start : start + size] for start in range(0, len(text), size)]


def resize(pieces: Iterable[bytes], reply: Reply) -> Iterable[bytes]:
    """Apply `cut_after` and `split`, which count bytes of the body, not of its chunks."""
    if reply.cut_after is None and not reply.split:
        return pieces
    body = b"".join(pieces)[: reply.cut_after]
    size = reply.split or len(body) or 1
    return [body[start : start + size] for start in range(0, len(body), size)]


class Scripted:
    def __init__(self, dialect: Dialect, script: Script, in_order: bool) -> None:
        self._dialect = dialect
        self._script = script
        self._in_order = in_order
        self.requests: list[JsonObject] = []  # the bodies of the model calls so far, in order
        self.headers: list[Headers] = []  # their headers, names in lower case
        self.paths: list[str] = []  # their paths, with the query

    def route(self, method: str, path: str, headers: Headers, body: bytes) -> FakeResponse:
        response = self._dialect.answer_other_request(method, path, headers, body)
        if response is not None:
            return response
        try:
            request = msgspec.json.decode(body, type=dict[str, object])
        except msgspec.MsgspecError as error:
            return self._dialect.refuse(f"not a JSON object: {error}")
        request_count = len(self.requests)
        self.requests.append(request)
        self.headers.append(headers)
        self.paths.append(path)
        position = self._dialect.count_answers(request)
        if callable(self._script):
            try:
                return answer(self._dialect, self._script(request), request, position)
            except Exception as error:  # the author of the script must see it at the client, where the test looks
                return self._dialect.refuse(f"the script failed: {error!r}")
        reply_index = request_count if self._in_order else position
        if reply_index >= len(self._script):
            return self._dialect.refuse(
                f"the script has {len(self._script)} replies; this asks for number {reply_index + 1}"
            )
        return answer(self._dialect, self._script[reply_index], request, position)


class FakeModelServer(Scripted, ThreadedServer):
    """A scripted server that speaks one dialect, for as long as its `with` block.

    A list of replies is indexed by the number of the assistant's answers in the request, so that a client that was
    killed and resumed gets the right one; `in_order=True` hands them out one a request instead, which suits retries.
    A callable gets the request and returns the reply."""

    dialect: ClassVar[type[Dialect]]
    base_path: ClassVar[str] = ""

    def __init__(self, script: Script = (), *, in_order: bool = False, dialect: Dialect | None = None) -> None:
        Scripted.__init__(self, dialect or self.dialect(), script, in_order)
        ThreadedServer.__init__(self, self.route)

    @property
    def base_url(self) -> str:
        return self.url + self.base_path
