"""Ollama's own protocol (M-04): models on this machine or another, without a key. The model's capabilities are
requested once, before its first call. An answer is one JSON object a line, the last of which says so. A call comes
whole, and calls are told apart by their order, for they have no ids, or ids that repeat (M-09)."""

import asyncio
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal, Unpack

import msgspec
from msgspec.structs import replace

from treadle.adapters.models.keys import Secret
from treadle.adapters.models.listing import fetch_models
from treadle.adapters.models.provider_context import ProviderContext
from treadle.adapters.models.wire.encoder import ConversationEncoder, Picture, RequestEncoder, find_output_schema
from treadle.adapters.models.wire.failures import is_refusal_of, make_error
from treadle.adapters.models.wire.http import Access, HttpModel, HttpOptions
from treadle.adapters.models.wire.json import decode_mended, encode_json, ensure_json_object
from treadle.adapters.models.wire.reading import NO_INFO, AnswerReader, LineDecoder, split_lines
from treadle.base.types import CallKey
from treadle.errors import ConfigError, ModelError
from treadle.ports.model import ModelInfo, ModelRequest
from treadle.protocol.content import AssistantEntry, ToolResult, Usage
from treadle.protocol.deltas import NoticeDelta
from treadle.protocol.options import ReasoningEffort
from treadle.protocol.tools import ToolSpec


class OllamaConversation(ConversationEncoder):
    """A result names its tool, for older servers, and its call by an id; the templates of models differ (M-04)."""

    _names: Mapping[CallKey, str] = {}

    def _encode_user(self, text: str, images: Sequence[Picture]) -> bytes:
        image_fields = {"images": [image.data for image in images]} if images else {}
        return encode_json({"role": "user", "content": text, **image_fields})

    def _encode_assistant(self, entry: AssistantEntry, ids: Mapping[CallKey, str]) -> bytes:
        """Thinking goes back with calls, to the model that thought it: templates put it before them (M-10)."""
        self._names = {call.call: call.name or "unnamed" for call in entry.calls}
        message: dict[str, Any] = {"role": "assistant", "content": entry.text}
        if entry.calls:
            tool_calls = message["tool_calls"] = []
            for call in entry.calls:
                # The arguments are an object, where others take its text: else the server refuses the whole request.
                arguments = msgspec.Raw(ensure_json_object(call.arguments).encode())
                function = {"name": self._names[call.call], "arguments": arguments}
                tool_calls.append({"id": ids[call.call], "function": function})
            if thinking := "".join(block.text for block in entry.thinking if block.model == self._encoder.ref):
                message["thinking"] = thinking
        return encode_json(message)

    def _encode_result(self, result: ToolResult) -> bytes:
        message = {"role": "tool", "content": result.text, "tool_call_id": self._get_id(result)}
        if name := self._names.get(result.call):
            message["tool_name"] = name
        return encode_json(message)


class OllamaEncoder(RequestEncoder):
    conversation = OllamaConversation

    def _describe_tool(self, spec: ToolSpec) -> dict[str, Any]:
        parameters = {**_fit_schema(spec.parameters), "type": "object"}
        parameters.setdefault("properties", {})
        return super()._describe_tool(replace(spec, parameters=parameters))


def _fit_schema(schema: Any) -> dict[str, Any]:
    """The server has a type for each of these words and refuses the request where another stands, though a schema may
    be `true`, or a type unknown: such parts are left out."""
    if not isinstance(schema, dict):
        return {}
    fitted = {word: value for word, value in schema.items() if word not in _WORDS or _WORDS[word](value)}
    if "anyOf" in fitted:
        fitted["anyOf"] = [_fit_schema(option) for option in fitted["anyOf"]]
    if "properties" in fitted:
        fitted["properties"] = {name: _fit_schema(inner) for name, inner in fitted["properties"].items()}
    return fitted


def _is_string_list(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(item, str) for item in value)


_WORDS: dict[str, Callable[[Any], bool]] = {
    "type": lambda value: isinstance(value, str) or _is_string_list(value),
    "description": lambda value: isinstance(value, str),
    "enum": lambda value: isinstance(value, list | tuple),
    "required": _is_string_list,
    "anyOf": lambda value: isinstance(value, list | tuple),
    "properties": lambda value: isinstance(value, dict),
}


class _OllamaFunction(msgspec.Struct, gc=False):
    name: str | None = None
    arguments: msgspec.Raw = msgspec.Raw(b"{}")


class _OllamaCall(_OllamaFunction, gc=False):
    """Some servers put what belongs into `function` beside the id."""

    id: str | None = None
    function: _OllamaFunction | None = None


class _OllamaMessage(msgspec.Struct, gc=False):
    content: str | None = None
    thinking: str | None = None
    tool_calls: list[_OllamaCall] | None = None


class _Part(msgspec.Struct, gc=False):
    model: Any = None
    message: _OllamaMessage | None = None
    done: bool | None = None
    done_reason: str | None = None
    prompt_eval_count: int | None = None
    eval_count: int | None = None
    error: Any = None


_decoder = msgspec.json.Decoder(_Part)
_TROUBLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


class OllamaReader(AnswerReader):
    def __init__(self, host: str, info: ModelInfo = NO_INFO) -> None:
        super().__init__(host, info)
        self._lines = LineDecoder()
        self._stranger = b""  # the first lines, if nothing in them is part of an answer

    def _read(self, chunk: bytes) -> None:
        lines = self._lines.feed(chunk)
        if lines and not self.done:
            self._read_lines(lines)

    def _close(self) -> None:
        if not self.done and (line := self._lines.end()):
            self._read_lines(line)
        if self._stranger and not self._is_whole() and not self._has_answer:
            raise self._make_document_error(self._stranger)

    def _read_lines(self, lines: bytes) -> None:
        say = self.say
        try:
            parts: Iterable[_Part] = _decoder.decode_lines(lines)  # all at once, which costs less
        except _TROUBLE:
            parts = self._decode_lines(lines)
        for part in parts:
            message = part.message
            # First, because nearly all are nothing but text.
            if message and message.content and not (message.thinking or message.tool_calls or part.done or part.error):
                say(message.content)
                continue
            self._take(part)
            if self.done:
                break
            if message is None:
                self._stranger = self._stranger or lines.strip()

    def _decode_lines(self, lines: bytes) -> Iterator[_Part]:
        for line in split_lines(lines):
            try:
                yield _decoder.decode(line)
            except _TROUBLE:
                mended = decode_mended(line, _Part)  # its fields may have other types than they should
                if mended is None:
                    raise self._make_document_error(line) from None
                yield mended

    def _take(self, part: _Part) -> None:
        if part.error:
            raise make_error(self._where, 200, msgspec.json.encode({"error": part.error}))
        message = part.message or _OllamaMessage()
        if message.thinking:
            self.think(message.thinking)
        if message.content:
            self.say(message.content)
        for call in message.tool_calls or ():
            function = call.function or call
            self._begin_call(call.id, function.name, _decode_arguments(function.arguments))
        if not part.done:
            return
        self._identify(None, part.model)
        self.done = True
        reason = part.done_reason or "stop"
        if reason in ("load", "unload"):
            description = f"did not answer: it took the request for an order to {reason}"
            raise ModelError("cut_stream", f"{self._where} {description}")
        self.finish_reason = "tool_calls" if reason == "stop" and self._calls else reason
        # Older servers leave the count out when the prompt was cached; then what they count is not the whole.
        if part.prompt_eval_count:
            self.count(Usage(part.prompt_eval_count, part.eval_count or 0))


def _decode_arguments(raw: msgspec.Raw) -> str:
    """The text of the object. Some servers send that text as a string, as others do in other protocols."""
    text = bytes(raw).decode("utf-8", "replace").strip()
    if text.startswith('"'):
        text = msgspec.json.decode(text, type=str)
    return text if text.strip() and text != "null" else "{}"


class ServedModel(msgspec.Struct, frozen=True):
    capabilities: frozenset[str] | None = None  # completion, tools, …; None from a server that is too old to tell
    window: int = 0  # the window that the model was trained for, in tokens; 0 if unknown
    num_ctx: int = 0  # the window that its Modelfile sets, if it does
    own_temperature: bool = False  # True if its Modelfile sets a temperature

    def has_capability(self, capability: str) -> bool | None:
        """None when the server does not tell."""
        return None if self.capabilities is None else capability in self.capabilities

    def inform(self, info: ModelInfo) -> ModelInfo:
        """Add the server's facts to `info`. A larger window needs more memory, so the window of `info` is an upper
        limit for the model's own; the window of a Modelfile was chosen for this machine and is used as it is."""
        thinks, efforts = self.has_capability("thinking"), info.efforts
        if thinks is False:
            efforts = ()
        elif efforts is None and thinks:
            efforts = ("none", "high")  # most models know only whether they think
        window = self.num_ctx or min(self.window or info.window, info.window)
        return replace(
            info,
            window=window,
            max_output=min(info.max_output, window // 2),
            temperature=None if self.own_temperature else info.temperature,
            native_tools=self.has_capability("tools") is not False,
            thinking=thinks is True,
            efforts=efforts,
            vision=info.vision if self.capabilities is None else "vision" in self.capabilities,
        )


def read_shown(body: bytes) -> ServedModel:
    """Read the description of a model. Accepts any shape, and treats fields that it cannot parse as unknown."""
    try:
        document = msgspec.json.decode(body)
    except _TROUBLE:
        return ServedModel()
    if not isinstance(document, dict):
        return ServedModel()
    listed, settings = document.get("capabilities"), document.get("parameters")
    capabilities = frozenset(map(str, listed)) if isinstance(listed, list) else None
    # The parameters of a Modelfile: a name and a value on each line.
    pairs = (line.split(maxsplit=1) for line in settings.splitlines()) if isinstance(settings, str) else ()
    modelfile = {pair[0]: pair[1].strip() for pair in pairs if len(pair) == 2}
    size = modelfile.get("num_ctx", "")
    num_ctx = int(size) if size.isdecimal() and len(size) < 10 else 0
    model_info = document.get("model_info")
    model_info = model_info if isinstance(model_info, dict) else {}
    lengths = {key: value for key, value in model_info.items() if key.endswith(".context_length")}
    own_length = lengths.get(f"{model_info.get('general.architecture')}.context_length")
    window = own_length if own_length is not None else next(iter(lengths.values()), 0)
    window = window if isinstance(window, int) and window > 0 else 0
    return ServedModel(capabilities, window, num_ctx, "temperature" in modelfile)


VARIABLE = "OLLAMA_HOST"
CLOUD = "ollama.com"
_PORTS = {"http": "80", "https": "443"}
_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}  # a server may listen on all addresses, a client chooses one
_HOST_AND_PORT = re.compile(r"(?P<host>\[[0-9A-Fa-f:.%]+\]|[^:\[\]@\s?#]*)(?::(?P<port>\d{1,5})?)?")
_BARE_IPV6 = re.compile(r"[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*")


def parse_base_url(address: str) -> str:
    """ConfigError when it is no address."""
    address = address.strip()
    scheme, separator, remaining = address.partition("://")
    if not separator:
        scheme, remaining = ("https", f"{address}:443") if address == CLOUD else ("http", address)
    place, _, path = remaining.partition("/")
    if _BARE_IPV6.fullmatch(place):
        place = f"[{place}]"
    parts = _HOST_AND_PORT.fullmatch(place)
    if scheme not in _PORTS or parts is None or int(parts["port"] or 0) > 65_535:
        raise ConfigError(f"{VARIABLE} is {address!r}; write an address such as 127.0.0.1:11434 or https://example.org")
    host = parts["host"] or "127.0.0.1"
    port = parts["port"] or (_PORTS[scheme] if separator else "11434")
    return f"{scheme}://{_EVERYWHERE.get(host, host)}:{port}/{path}".rstrip("/")


BASE_URL = parse_base_url("")
SHOWN_CAP = 16 * 1024 * 1024  # how much is read of what the server tells of a model

Think = bool | Literal["low", "medium", "high", "max"]
THINK_VARIABLE = "TREADLE_OLLAMA_THINK"
_THINK: dict[str, Think | None] = {
    **{"": None, "on": True, "off": False},
    **{"low": "low", "medium": "medium", "high": "high", "max": "max"},
}
_LEVELS: Mapping[ReasoningEffort, Think] = {
    **{"none": False, "minimal": "low", "low": "low", "medium": "medium"},
    **{"high": "high", "xhigh": "high", "max": "max"},
}
_NO_MODEL = re.compile(r"model .* not found", re.I)
_NO_MEMORY = re.compile(
    r"more system memory|(?:out of|insufficient|not enough)(?: device)? memory|failed to allocate"
    r"|alloc(?:ation)? failed",
    re.I,
)


class OllamaChat(HttpModel):
    """One model of one server. `think` asks a model that can for thinking or for none; by default it is asked to."""

    base_url = BASE_URL
    path = "/api/chat"
    reader = OllamaReader
    effort_words: ClassVar = (("think", "think(?:ing)?"),)

    def __init__(self, info: ModelInfo, *, think: Think | None = None, **options: Unpack[HttpOptions]) -> None:
        super().__init__(info, options)
        self._given, self._think = info, think
        self._has_levels = "gpt-oss" in info.name.lower()  # other models know only on and off
        self.served_model: ServedModel | None = None  # None before the server was asked
        self._asking = asyncio.Lock()
        self._encoder = OllamaEncoder(info.ref)

    async def prepare(self) -> ModelInfo:
        """Ask the server about the model, until it has answered once (M-07). Fails as a call would."""
        try:
            async with self._asking:
                if self.served_model is None and (served_model := await self._show()) is not None:
                    self.served_model = served_model
                    self._info = served_model.inform(self._given)
        except ModelError as error:
            raise self._explain_error(error) from error
        return self._info

    async def _begin(self, request: ModelRequest) -> ModelRequest:
        info = await self.prepare()
        if request.rung in ("text", "plain"):
            request = replace(request, tools=())
        elif request.tools and not info.native_tools and request.rung != "native":
            raise ModelError("bad_request", f"{info.ref} does not support tools", status=400)
        return request

    async def _show(self) -> ServedModel | None:
        """Ask what the model is. A server that cannot tell is used all the same; None when it may tell next time."""
        access = self._access
        body = encode_json({"model": self._info.name})
        document = bytearray()
        try:
            with await self._http.post(f"{access.base_url}/api/show", access.headers, body, access.key) as reply:
                while len(document) < SHOWN_CAP and (chunk := await reply.read()):
                    document += chunk
        except ModelError as error:
            if error.kind in ("overloaded", "cut_stream"):
                return None
            if error.kind == "bad_request" and not _NO_MODEL.search(str(error)):
                return ServedModel()
            raise
        return read_shown(bytes(document))

    def _build_parameters(self, request: ModelRequest) -> dict[str, Any]:
        info, served_model = self._info, self.served_model or ServedModel()
        options = {
            "num_ctx": min(request.window, served_model.window or request.window) or info.window,
            "num_predict": request.max_tokens or info.output_limit or None,
            "temperature": self._choose_temperature(request),
        }
        # A request that exceeds the window must fail, so that the chat is compacted (L-19): by default the server would
        # silently drop the beginning of the conversation.
        can_think = served_model.has_capability("thinking")
        think = self._think if can_think is None or self._think is not None else True
        if request.effort:
            think = _LEVELS[request.effort] if self._has_levels else request.effort != "none"
        params: dict[str, Any] = {"stream": True, "truncate": False, "shift": False}
        params |= {"think": think if can_think is not False else None, "format": find_output_schema(request)}
        return {"model": info.name, **self._select_parameters(params), "options": self._select_parameters(options)}

    def _mend(self, error: ModelError, sent_params: Mapping[str, Any], request: ModelRequest) -> NoticeDelta | None:
        return (
            self._drop("think") if "think" in sent_params and is_refusal_of(error, "think", "think(?:ing)?") else None
        )

    def _explain_error(self, error: ModelError, *, has_output: bool = False) -> ModelError:
        kind, error_text = error.kind, str(error)
        if kind == "network" and not has_output:
            error_text += f"; is Ollama running there? Start it with: ollama serve, or set {VARIABLE} to where it runs"
        elif _NO_MODEL.search(error_text):
            error_text += f"; get it with: ollama pull {self._info.name}"
        elif kind == "auth":
            error_text += "; run: ollama signin, or set OLLAMA_API_KEY"
        elif _NO_MEMORY.search(error_text):
            kind = "bad_request"
            error_text += "; take a smaller model, or a smaller window with TREADLE_CONTEXT_WINDOW"
        wait = error.retry_after
        return ModelError(kind, error_text, status=error.status, retry_after=wait, unreachable=error.unreachable)


def _read_access(context: ProviderContext) -> tuple[Secret, str]:
    url = parse_base_url(context.env.get(VARIABLE, ""))
    # The key store is asked for Ollama's own address only: its key must not go to another host.
    return context.find_key("OLLAMA_API_KEY", stored=f"//{CLOUD}:" in url), url


def connect(name: str, context: ProviderContext) -> OllamaChat:
    key, url = _read_access(context)
    think_setting = context.env.get(THINK_VARIABLE, "").strip().lower()
    if think_setting not in _THINK:
        raise ConfigError(f"{THINK_VARIABLE} is {think_setting!r}; it must be one of {', '.join(filter(None, _THINK))}")
    info, think = context.catalogue.look_up("ollama", name), _THINK[think_setting]
    return OllamaChat(info, base_url=url, api_key=key, http=context.http, think=think)


async def list_models(context: ProviderContext) -> list[ModelInfo]:
    key, url = _read_access(context)
    return await fetch_models(context, "ollama", Access(url, key), "/api/tags")
