"""Ollama's own protocol (M-04): models on this machine or another, without a key. Makes one call at a time, as the port
requires; the engine retries and records. The model's capabilities are requested once, before its first call."""

import asyncio
import re
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Unpack

from msgspec.structs import replace

from treadle.adapters.models.keys import Secret
from treadle.adapters.models.listing import list_from
from treadle.adapters.models.ollama.request import OllamaEncoder
from treadle.adapters.models.ollama.show import ServedModel, read_shown
from treadle.adapters.models.ollama.stream import OllamaReader
from treadle.adapters.models.provider_context import ProviderContext
from treadle.adapters.models.wire.failures import refuses
from treadle.adapters.models.wire.http_model import Access, ConnectionOptions, HttpModel
from treadle.adapters.models.wire.json import encode_json
from treadle.adapters.models.wire.output_schema import without_tools
from treadle.errors import ConfigError, ModelError
from treadle.ports.model import ModelInfo, ModelRequest
from treadle.protocol.deltas import NoticeDelta
from treadle.protocol.options import ReasoningEffort

VARIABLE = "OLLAMA_HOST"
CLOUD = "ollama.com"
_PORTS = {"http": "80", "https": "443"}
_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}
"""A server may listen on all addresses; a client must choose one."""
_HOST_AND_PORT = re.compile(r"(?P<host>\[[0-9A-Fa-f:.%]+\]|[^:\[\]@\s?#]*)(?::(?P<port>\d{1,5})?)?")
_BARE_IPV6 = re.compile(r"[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*")


def base_url(address: str) -> str:
    """The address, with scheme and port. ConfigError when it is none."""
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


BASE_URL = base_url("")
SHOWN_CAP = 16 * 1024 * 1024
"""How much is read of what the server tells of a model."""

Think = bool | Literal["low", "medium", "high", "max"]
THINK_VARIABLE = "TREADLE_OLLAMA_THINK"
_THINK: dict[str, Think | None] = {
    "": None,
    "on": True,
    "off": False,
    "low": "low",
    "medium": "medium",
    "high": "high",
    "max": "max",
}

_LEVELS: Mapping[ReasoningEffort, Think] = {
    "none": False,
    "minimal": "low",
    "low": "low",
    "medium": "medium",
    "high": "high",
    "xhigh": "high",
    "max": "max",
}
_NO_MODEL = re.compile(r"model .* not found", re.I)
_NO_MEMORY = re.compile(
    r"more system memory|(?:out of|insufficient|not enough)(?: device)? memory"
    r"|failed to allocate|alloc(?:ation)? failed",
    re.I,
)


class OllamaChat(HttpModel):
    """One model of one server. `think` asks a model that can for thinking or for none; by default it is asked to."""

    base_url = BASE_URL
    path = "/api/chat"
    effort_words: ClassVar = (("think", "think(?:ing)?"),)

    def __init__(self, info: ModelInfo, *, think: Think | None = None, **connection: Unpack[ConnectionOptions]) -> None:
        super().__init__(info, connection)
        self._given = info
        self._think = think
        self._has_levels = "gpt-oss" in info.name.lower()
        """True if the model has levels of thinking, not only on and off."""
        self._shown: ServedModel | None = None
        self._asking = asyncio.Lock()
        self._encoder = OllamaEncoder(info.ref)

    @property
    def served_model(self) -> ServedModel | None:
        """The model as its server describes it; None before it was asked. Until then `info` holds safe defaults."""
        return self._shown

    async def prepare(self) -> ModelInfo:
        """Ask the server about the model, until it has answered once: its window, and its support of tools (M-07).
        Return the model's info. Fails as a call would."""
        try:
            async with self._asking:
                if self._shown is None and (served_model := await self._show()) is not None:
                    self._shown = served_model
                    self._info = served_model.inform(self._given)
        except ModelError as error:
            raise self._explained(error) from error
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

    def _parameters(self, request: ModelRequest) -> dict[str, Any]:
        info, served_model = self._info, self._shown or ServedModel()
        options = {
            "num_ctx": min(request.window, served_model.window or request.window) or info.window,
            "num_predict": request.max_tokens or info.output_limit or None,
            "temperature": self._temperature(request),
        }
        # A request that exceeds the window must fail, so that the chat is compacted (L-19): by default the server would
        # silently drop the beginning of the conversation.
        can_think = served_model.has_capability("thinking")
        think = self._think if can_think is None or self._think is not None else True
        if request.effort:
            think = _LEVELS[request.effort] if self._has_levels else request.effort != "none"
        params: dict[str, Any] = {"stream": True, "truncate": False, "shift": False}
        params |= {"think": think if can_think is not False else None, "format": without_tools(request)}
        return {"model": info.name, **self._select_parameters(params), "options": self._select_parameters(options)}

    def _reader(self, host: str) -> OllamaReader:
        return OllamaReader(host)

    def _mend(self, error: ModelError, sent_params: Mapping[str, Any], request: ModelRequest) -> NoticeDelta | None:
        """If the server does not take the word about thinking, go without it for good and say so."""
        return self._drop("think") if "think" in sent_params and refuses(error, "think", "think(?:ing)?") else None

    def _explained(self, error: ModelError, *, has_output: bool = False) -> ModelError:
        """The failure with what a user of Ollama can do about it."""
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
        return ModelError(
            kind, error_text, status=error.status, retry_after=error.retry_after, unreachable=error.unreachable
        )


def _access(context: ProviderContext) -> tuple[Secret, str]:
    url = base_url(context.env.get(VARIABLE, ""))
    # The key store is asked for Ollama's own address only: its key must not go to another host.
    return context.find_key("OLLAMA_API_KEY", stored=f"//{CLOUD}:" in url), url


def connect(name: str, context: ProviderContext) -> OllamaChat:
    key, url = _access(context)
    think_setting = context.env.get(THINK_VARIABLE, "").strip().lower()
    if think_setting not in _THINK:
        raise ConfigError(f"{THINK_VARIABLE} is {think_setting!r}; it must be one of {', '.join(filter(None, _THINK))}")
    return OllamaChat(
        context.catalogue.look_up("ollama", name),
        base_url=url,
        api_key=key,
        http=context.http,
        think=_THINK[think_setting],
    )


async def list_models(context: ProviderContext) -> list[ModelInfo]:
    """List the models on the server, without their capabilities, which are requested before the first call."""
    key, url = _access(context)
    return await list_from(context, "ollama", Access(url, key), "/api/tags")
