"""Chat Completions (M-01): OpenAI and every server that speaks its language; those that differ in little but their
address are one row each in `treadle.adapters.models.providers`. Makes one call at a time, as the port says; retries
and records are the engine's business."""

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, ClassVar, Unpack
from urllib.parse import quote

from treadle.adapters.models.keys import Secret
from treadle.adapters.models.listing import learn_facts, list_from
from treadle.adapters.models.openai_chat.effort import EFFORT_FIELDS, EFFORT_STYLES, style_of_host
from treadle.adapters.models.openai_chat.request import ChatEncoder
from treadle.adapters.models.openai_chat.stream import ChatReader
from treadle.adapters.models.openai_chat.switching import ChatOrResponses
from treadle.adapters.models.provider_context import ProviderContext
from treadle.adapters.models.providers import SERVERS, address_variable, key_variable
from treadle.adapters.models.wire.failures import refuses
from treadle.adapters.models.wire.http import host_of
from treadle.adapters.models.wire.http_model import Access, ConnectionOptions, HttpModel
from treadle.adapters.models.wire.output_schema import json_schema_format
from treadle.errors import ConfigError, ModelError
from treadle.ports.model import Model, ModelInfo, ModelRequest
from treadle.protocol.deltas import NoticeDelta

BASE_URL = "https://api.openai.com/v1"

_ABOUT_THINKING = re.compile(r"reasoning|thinking|thought|signature", re.I)
_WANTS_THINKING = re.compile(r"(reasoning_content)\W.{0,80}(?:passed back|missing|required)", re.I)
_OTHER_NAME = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}


class OpenAIChat(HttpModel):
    """One model behind one base URL, or behind an endpoint that looks up address and key for each call.

    `thinking_field`: the field in which the server wants the model's thinking back; by default none until it complains.
    `ids`: a pattern of the call ids that the server accepts; by default any. `learn`: asks the server for facts about
    the model, before the first call. `effort_style`: how the reasoning effort is sent to the server, a key of
    `EFFORT_STYLES`.
    """

    base_url = BASE_URL
    path = "/chat/completions"
    effort_words: ClassVar = tuple((name, rf"{name}|effort") for name in EFFORT_FIELDS)

    def __init__(
        self,
        info: ModelInfo,
        *,
        thinking_field: str = "",
        ids: re.Pattern[str] | None = None,
        effort_style: str = "",
        start_hint: str = "",
        learn: Callable[[ModelInfo], Awaitable[ModelInfo]] | None = None,
        **connection: Unpack[ConnectionOptions],
    ) -> None:
        super().__init__(info, connection)
        self.start_hint = start_hint
        self._learn = learn
        self._encoder: ChatEncoder = ChatEncoder(info.ref, thinking_field=thinking_field, ids=ids)
        # The newer name is the only one that all of OpenAI's own models take; elsewhere it is often unknown.
        host = "" if "endpoint" in connection else host_of(self._access.base_url)
        is_openai = host == "api.openai.com"
        self._effort_fields = EFFORT_STYLES[effort_style or style_of_host(host)]
        self._limit_name = "max_completion_tokens" if is_openai else "max_tokens"

    async def _begin(self, request: ModelRequest) -> ModelRequest:
        if self._learn is not None:
            learn, self._learn = self._learn, None
            self._info = await learn(self._info)
        return request

    def _parameters(self, request: ModelRequest) -> dict[str, Any]:
        shape = json_schema_format(request)
        params: dict[str, Any] = {
            "stream": True,
            "stream_options": {"include_usage": True},
            "temperature": self._temperature(request),
            "response_format": {"type": "json_schema", "json_schema": shape} if shape is not None else None,
            self._limit_name: request.max_tokens or self._info.output_limit or None,
        }
        if request.effort:
            params |= self._effort_fields(request.effort)
        return {"model": self._info.name, **self._select_parameters(params)}

    def _reader(self, host: str) -> ChatReader:
        return ChatReader(host, self._encoder.thinking_field, self._info)

    def _mend(self, error: ModelError, sent_params: Mapping[str, Any], request: ModelRequest) -> NoticeDelta | None:
        """If the server refused a parameter by name, go without it for good and say so (M-01). A refused name of
        the output limit is first tried by its other name. Sealed thinking that is refused is left out (M-10)."""
        thinking_match = _WANTS_THINKING.search(str(error)) if error.kind == "bad_request" else None
        if thinking_match and not self._encoder.thinking_field:
            self._encoder.want_thinking(thinking_match[1])
            return self._notice(
                "thinking_returned", f"wants its thinking back as {thinking_match[1]}; from now on it gets it"
            )
        name = next((name for name in sent_params if name not in ("model", "stream") and refuses(error, name)), None)
        if name is None:
            about_thinking = error.kind == "bad_request" and _ABOUT_THINKING.search(str(error))
            if about_thinking and self._encoder.drop_thinking(request):
                return self._notice("thinking_dropped", "refuses earlier thinking; it goes on without it")
            return None
        dropped = self._drop(name)
        other_name = _OTHER_NAME.get(name, "")
        if other_name and other_name not in self._refused:
            self._limit_name = other_name
            return self._notice("parameter_renamed", f"takes {other_name} instead of {name}")
        return dropped


def connect(name: str, context: ProviderContext) -> Model:
    key, url = context.access(f"openai:{name}", "OPENAI_API_KEY", "OPENAI_BASE_URL")
    info = context.catalogue.look_up("openai", name)
    connection = ConnectionOptions(base_url=url or BASE_URL, api_key=key, http=context.http)

    def connect_responses() -> Model:
        from treadle.adapters.models.openai_responses.adapter import OpenAIResponses

        return OpenAIResponses(info, **connection)

    if info.thinking and not url:
        return connect_responses()  # OpenAI's own models that think are refused tools on this wire
    return ChatOrResponses(OpenAIChat(info, **connection), connect_responses)


async def list_models(context: ProviderContext) -> list[ModelInfo]:
    from treadle.adapters.models.openai_responses import adapter as openai_responses

    return await openai_responses.list_models(context, "openai")


def connect_to(server: str, name: str, context: ProviderContext) -> OpenAIChat:
    key, url = _access(server, f"{server}:{name}", context)
    row = SERVERS[server]
    info = context.catalogue.look_up(server, name)
    learn = None
    if row.facts_path and (info.is_unknown or not info.has_price):
        access = Access(_facts_address(server, url), key)
        path = row.facts_path.replace("{model}", quote(name, safe=""))

        async def learn(known_info: ModelInfo) -> ModelInfo:
            return await learn_facts(context, access, path, known_info)

        info = _with_facts(info, access.base_url, context)
    return OpenAIChat(
        info,
        learn=learn,
        base_url=url,
        api_key=key,
        thinking_field=row.thinking_field,
        ids=re.compile(row.ids) if row.ids else None,
        start_hint=row.start_hint,
        effort_style="groq-qwen" if server == "groq" and "qwen" in name.lower() else row.effort_style,
        http=context.http,
    )


async def list_models_of(server: str, context: ProviderContext) -> list[ModelInfo]:
    """List the models that the server offers, if it accepts the key."""
    key, url = _access(server, server, context)
    access = Access(url.rstrip("/"), key)
    if path := SERVERS[server].key_path:
        try:
            await context.http.get(access.base_url + path, {}, key)
        except ModelError as error:
            if error.status != 404:  # a relay in its place need not know this path
                raise
    return await list_from(context, server, access, "/models")


def used_models_of(server: str, context: ProviderContext) -> list[ModelInfo]:
    """The models that were used lately and of which the server told something."""
    try:
        _, url = _access(server, server, context)
    except ConfigError:
        return []
    address = _facts_address(server, url)
    infos = [context.catalogue.look_up(server, name) for name in context.facts.names(address)]
    return [_with_facts(info, address, context) for info in infos]


def _with_facts(info: ModelInfo, address: str, context: ProviderContext) -> ModelInfo:
    facts = context.facts.find(address, info.name)
    return info if facts is None else context.catalogue.adjust(facts.inform(info))


def _facts_address(server: str, url: str) -> str:
    url = url.rstrip("/")
    return url if SERVERS[server].facts_path in ("", "/models") else url.removesuffix("/v1")


def _access(server: str, ref: str, context: ProviderContext) -> tuple[Secret, str]:
    row = SERVERS[server]
    if row.needs_key:
        key, url = context.access(ref, key_variable(server), address_variable(server))
    else:
        # A server without a fixed address gets the key that was stored with its address. One on this machine asks for a
        # key only if its owner told it to; nothing is stored for it.
        stored = not row.base_url and not context.env.get(address_variable(server))
        key = context.find_key(key_variable(server), stored=stored)
        url = context.address(address_variable(server))
        if not url and not row.base_url:
            raise ConfigError(f"{ref} needs an address: set {address_variable(server)}")
    return key, url or row.base_url
