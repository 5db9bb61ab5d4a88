"""A fake Ollama on loopback: `with FakeOllama([Reply(text="Hi")]) as fake:` and point a client at `fake.url`. It
refuses what the real server refuses, in its words."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from treadle.base.types import JsonObject
from treadle.testing.fake_http import FakeResponse, Headers, encode, make_json_answer
from treadle.testing.fake_model import Dialect, FakeModelServer, Reply, Script, split_text

__all__ = ["FakeOllama", "OllamaApi", "Reply", "Script"]
ABLE = ("completion", "tools", "thinking")
_TIME = "2026-01-01T00:00:00.000000Z"


class OllamaApi(Dialect):
    """Without capabilities it is a server too old to tell them."""

    content_type = "application/x-ndjson"

    def __init__(
        self,
        capabilities: Sequence[str] | None = ABLE,
        window: int = 40_960,
        parameters: str = "",
        models: Sequence[str] = (),
    ) -> None:
        self._capabilities, self._window = capabilities, window
        self._parameters, self._models = parameters, models
        self.shown: list[str] = []

    def build_pieces(self, reply: Reply, request: JsonObject, position: int) -> tuple[str, Iterable[bytes]]:
        return super().build_pieces(reply, {"stream": True, **request}, position)

    def stream(self, reply: Reply, request: JsonObject, position: int) -> Iterator[bytes]:
        for piece in split_text(reply.thinking, reply.chunk_size):
            yield _encode_line(request, {"content": "", "thinking": piece})
        for piece in split_text(reply.text, reply.chunk_size):
            yield _encode_line(request, {"content": piece})
        for call in _build_calls(reply):
            yield _encode_line(request, {"content": "", "tool_calls": [call]})
        yield _encode_line(request, {"content": ""}, _build_ending(reply))

    def build_answer(self, reply: Reply, request: JsonObject, position: int) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": reply.text}
        if reply.thinking:
            message["thinking"] = reply.thinking
        if reply.calls:
            message["tool_calls"] = _build_calls(reply)
        return {"model": request.get("model", "fake"), "created_at": _TIME, "message": message, **_build_ending(reply)}

    def build_failure(self, status: int, message: str) -> JsonObject:
        return {"error": message}

    def answer_other_request(self, method: str, path: str, headers: Headers, body: bytes) -> FakeResponse | None:
        match method, path.partition("?")[0]:
            case "POST", "/api/chat":
                return self._find_refusal(body)
            case "POST", "/api/show":
                return self._show(msgspec.json.decode(body).get("model", ""))
            case "GET", "/api/tags":
                facts = {"modified_at": _TIME, "size": 1, "digest": "0" * 64, "details": {}}
                names = self._models or ("fake:latest",)
                return make_json_answer(200, {"models": [{"name": name, "model": name, **facts} for name in names]})
            case "GET", "/api/version":
                return make_json_answer(200, {"version": "0.13.0"})
        return self.refuse("404 page not found", 404)

    def _show(self, name: str) -> FakeResponse:
        self.shown.append(name)
        if self._models and name not in self._models:
            return self.refuse(f"model '{name}' not found", 404)
        document: dict[str, Any] = {
            "modelfile": f"FROM {name}",
            "template": "{{ .Prompt }}",
            "details": {"format": "gguf", "family": "fake", "parameter_size": "1B", "quantization_level": "Q4_0"},
            "model_info": {"general.architecture": "fake", "fake.context_length": self._window},
            "modified_at": _TIME,
        }
        if self._parameters:
            document["parameters"] = self._parameters
        if self._capabilities is not None:
            document["capabilities"] = list(self._capabilities)
        return make_json_answer(200, document)

    def _find_refusal(self, body: bytes) -> FakeResponse | None:
        """The error that the real server would answer with; None if it would accept the request."""
        try:
            request = msgspec.json.decode(body, type=_Request)
        except msgspec.MsgspecError as error:
            return self.refuse(f"json: cannot unmarshal: {error}")
        name = request.model
        able = self._capabilities if self._capabilities is not None else ABLE
        if self._models and name not in self._models:
            return self.refuse(f"model '{name}' not found", 404)
        if request.think and "thinking" not in able:
            return self.refuse(f'"{name}" does not support thinking')
        if request.tools and "tools" not in able:
            return self.refuse(f"registry.ollama.ai/library/{name}:latest does not support tools")
        return None


class FakeOllama(FakeModelServer):
    """A scripted server of one kind of model. `models` are the names it has; by default it has any."""

    def __init__(
        self,
        script: Script = (),
        *,
        in_order: bool = False,
        capabilities: Sequence[str] | None = ABLE,
        window: int = 40_960,
        parameters: str = "",
        models: Sequence[str] = (),
    ) -> None:
        self._api = OllamaApi(capabilities, window, parameters, models)
        super().__init__(script, in_order=in_order, dialect=self._api)

    @property
    def shown_models(self) -> list[str]:
        """The models of which someone asked what they are, in order."""
        return self._api.shown


class _Property(msgspec.Struct):
    """The server's own type of a schema within a tool's parameters."""

    type: str | list[str] = ""
    description: str = ""
    enum: list[Any] = []
    any_of: "list[_Property]" = msgspec.field(default_factory=list, name="anyOf")
    properties: "dict[str, _Property]" = {}
    required: list[str] = []


class _Parameters(msgspec.Struct):
    type: str = ""
    required: list[str] = []
    properties: dict[str, _Property] = {}


class _ToolFunction(msgspec.Struct):
    name: str
    description: str = ""
    parameters: _Parameters = msgspec.field(default_factory=_Parameters)


class _Tool(msgspec.Struct):
    type: str
    function: _ToolFunction


class _CallFunction(msgspec.Struct):
    name: str
    arguments: dict[str, Any]


class _Call(msgspec.Struct):
    function: _CallFunction
    id: str = ""


class _Message(msgspec.Struct):
    role: str
    content: str = ""
    images: list[str] = []
    thinking: str = ""
    tool_calls: list[_Call] = []
    tool_name: str = ""
    tool_call_id: str = ""


class _Request(msgspec.Struct):
    """The fields that the real server reads: a value of another type is refused, an unknown field ignored."""

    model: str
    messages: list[_Message]
    stream: bool = True
    truncate: bool = True
    shift: bool = True
    think: bool | str = False
    options: dict[str, Any] = {}
    tools: list[_Tool] = []


def _encode_line(request: JsonObject, message: dict[str, Any], end: dict[str, Any] | None = None) -> bytes:
    head = {"model": request.get("model", "fake"), "created_at": _TIME, "message": {"role": "assistant", **message}}
    return encode({**head, **(end or {"done": False})}) + b"\n"


def _build_calls(reply: Reply) -> list[dict[str, Any]]:
    """Without ids, unless the script has some: only newer servers make them up."""
    calls = []
    for index, (name, arguments) in enumerate(reply.calls):
        raw = arguments.encode() if isinstance(arguments, str) else encode(arguments)
        call: dict[str, Any] = {"function": {"index": index, "name": name, "arguments": msgspec.Raw(raw)}}
        calls.append({"id": reply.ids[index], **call} if index < len(reply.ids) else call)
    return calls


def _build_ending(reply: Reply) -> dict[str, Any]:
    counts = {"prompt_eval_count": reply.usage[0], "eval_count": reply.usage[1]} if reply.usage else {}
    times = {"total_duration": 5_000_000, "load_duration": 1_000_000}
    return {"done": True, "done_reason": reply.finish or "stop", **times, **counts}
