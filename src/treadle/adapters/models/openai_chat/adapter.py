"""Chat Completions (M-01): OpenAI and every server that speaks its language; those that differ in little but their
address are one row each in `treadle.adapters.models.providers`. A model of which the server says that it speaks only
the Responses API goes on with that (M-05)."""

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any, ClassVar, Unpack
from urllib.parse import quote
from weakref import WeakKeyDictionary

import msgspec
from msgspec.structs import replace

from treadle.adapters.models.base import ModelBase
from treadle.adapters.models.keys import Secret
from treadle.adapters.models.listing import fetch_models, learn_facts
from treadle.adapters.models.openai_chat.stream import AT, CALL_EXTRAS, THINK_CHUNKS, ChatReader
from treadle.adapters.models.provider_context import ProviderContext
from treadle.adapters.models.providers import SERVERS, name_address_variable, name_key_variable
from treadle.adapters.models.wire.encoder import ConversationEncoder, Picture, RequestEncoder, build_schema_format
from treadle.adapters.models.wire.failures import is_refusal_of
from treadle.adapters.models.wire.http import Access, HttpModel, HttpOptions, format_host
from treadle.adapters.models.wire.json import encode_json, ensure_json_object
from treadle.base.types import CallKey
from treadle.errors import ConfigError, ModelError
from treadle.ports.model import Memo, Model, ModelInfo, ModelRequest
from treadle.protocol.content import AssistantEntry, ToolResult
from treadle.protocol.deltas import Delta, NoticeDelta
from treadle.protocol.options import ReasoningEffort

EFFORT_FIELDS = ("reasoning_effort", "reasoning", "thinking", "enable_thinking", "chat_template_kwargs")


def build_effort_fields(style: str, effort: ReasoningEffort) -> dict[str, Any]:
    """The reasoning effort in the words of a server (M-16): some have a field of their own, or know only on and off."""
    is_on = effort != "none"
    match style:
        case "openrouter":
            return {"reasoning": {"effort": effort}}
        case "switch":  # DeepSeek, Z.ai and Kimi: a switch, and the level beside it
            level = {"reasoning_effort": effort} if is_on else {}
            return {"thinking": {"type": "enabled" if is_on else "disabled"}, **level}
        case "groq-qwen":  # Qwen on Groq: `default` is the word for thinking
            return {"reasoning_effort": "default" if is_on else "none"}
        case "together" if not is_on:
            return {"reasoning": {"enabled": False}}
        case "qwen":
            return {"enable_thinking": is_on}
        case "template":  # vLLM and llama.cpp: templates know one of these words or the other, and ignore the rest
            level = {"reasoning_effort": effort} if is_on else {}
            return {"chat_template_kwargs": {"enable_thinking": is_on, **level}}
        case _:
            return {"reasoning_effort": effort}


_HOSTS = {  # servers that are known by their address, where a user names nothing else
    r"(?:^|\.)(?:z\.ai|bigmodel\.cn|deepseek\.com|moonshot\.(?:ai|cn))$": "switch",
    r"(?:^|\.)(?:dashscope[\w-]*\.aliyuncs\.com|maas\.aliyuncs\.com)$": "qwen",
    r"(?:^|\.)openrouter\.ai$": "openrouter",
    r"(?:^|\.)together\.(?:xyz|ai)$": "together",
}


def find_effort_style(host: str) -> str:
    return next((style for pattern, style in _HOSTS.items() if re.search(pattern, host.partition(":")[0].lower())), "")


_fields = msgspec.json.Decoder(dict[str, Any])


class ChatConversation(ConversationEncoder):
    _encoder: "ChatEncoder"

    def _encode_user(self, text: str, images: Sequence[Picture]) -> bytes:
        parts = [{"type": "image_url", "image_url": {"url": image.url}} for image in images]
        content = [{"type": "text", "text": text}, *parts] if text and parts else parts or text
        return encode_json({"role": "user", "content": content})

    def _encode_assistant(self, entry: AssistantEntry, ids: Mapping[CallKey, str]) -> bytes:
        """Thinking goes back in the fields in which it came, exactly as it came (M-10). Where the server demands it in
        one field, an answer from before that was known has its recorded text there."""
        message: dict[str, Any] = {"role": "assistant", "content": entry.text}
        if entry.calls:
            message["content"] = entry.text or None
            tool_calls = message["tool_calls"] = []
            for call in entry.calls:
                # Servers refuse an empty name, with which the whole chat would be stuck.
                function = {"name": call.name or "unnamed", "arguments": ensure_json_object(call.arguments)}
                tool_calls.append({"id": ids[call.call], "type": "function", "function": function})
        returned = [sealed.block for _, sealed in self._unseal_thinking(entry)]
        demanded = self._encoder.thinking_field
        if demanded and not any(demanded in _fields.decode(block) for block in returned):
            text = "".join(block.text for block in entry.thinking if block.model == self._encoder.ref)
            returned.append(encode_json({demanded: text}))
        return self._join(message, returned, entry)

    def _join(self, body: dict[str, Any], returned: Sequence[bytes], entry: AssistantEntry) -> bytes:
        """The message with the fields that go back. Mistral's thinking is in the content, extras with their call."""
        blocks: list[bytes] = []
        for block in returned:
            if CALL_EXTRAS not in (fields := _fields.decode(block)) and THINK_CHUNKS not in fields:
                blocks.append(block)  # to the letter: there may be signatures in it
                continue
            extras = fields.pop(CALL_EXTRAS, {})
            for position, (call, tool_call) in enumerate(zip(entry.calls, body.get("tool_calls", ()), strict=False)):
                extra = extras.get(call.id or f"{AT}{position}")
                if extra is not None:
                    tool_call["extra_content"] = extra
            if THINK_CHUNKS in fields:
                text = [{"type": "text", "text": entry.text}] if entry.text else []
                body["content"] = [*fields.pop(THINK_CHUNKS), *text]
            body |= fields
        message = encode_json(body)
        for block in blocks:
            message = message[:-1] + b"," + block[1:]
        return message

    def _encode_result(self, result: ToolResult) -> bytes:
        return encode_json({"role": "tool", "tool_call_id": self._get_id(result), "content": result.text})


class ChatEncoder(RequestEncoder):
    """`thinking_field`: where the server wants the thinking of every answer; `ids`: what it takes as a call's id."""

    conversation = ChatConversation
    tool_choice = b',"tool_choice":"auto"'

    def __init__(self, ref: str = "", *, thinking_field: str = "", ids: re.Pattern[str] | None = None) -> None:
        super().__init__(ref)
        self.thinking_field, self.ids = thinking_field, ids


BASE_URL = "https://api.openai.com/v1"

_ABOUT_THINKING = re.compile(r"reasoning|thinking|thought|signature", re.I)
_WANTS_THINKING = re.compile(r"(reasoning_content)\W.{0,80}(?:passed back|missing|required)", re.I)
_OTHER_NAME = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}


class OpenAIChat(HttpModel):
    """`thinking_field` and `ids` as of `ChatEncoder`. `learn`: asks the server for facts about the model, before the
    first call. `effort_style`: how the reasoning effort is sent (`build_effort_fields`)."""

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
        **options: Unpack[HttpOptions],
    ) -> None:
        super().__init__(info, options)
        self.start_hint, self._learn = start_hint, learn
        self._encoder: ChatEncoder = ChatEncoder(info.ref, thinking_field=thinking_field, ids=ids)
        host = "" if "endpoint" in options else format_host(self._access.base_url)
        self._effort_style = effort_style or find_effort_style(host)
        # The newer name is the only one that all of OpenAI's own models take; elsewhere it is often unknown.
        self._limit_name = "max_completion_tokens" if host == "api.openai.com" else "max_tokens"

    async def _begin(self, request: ModelRequest) -> ModelRequest:
        if self._learn is not None:
            learn, self._learn = self._learn, None
            self._info = await learn(self._info)
        return request

    def reader(self, host: str, info: ModelInfo) -> ChatReader:
        return ChatReader(host, info, self._encoder.thinking_field)

    def _build_parameters(self, request: ModelRequest) -> dict[str, Any]:
        shape = build_schema_format(request)
        params: dict[str, Any] = {
            "stream": True,
            "stream_options": {"include_usage": True},
            "temperature": self._choose_temperature(request),
            "response_format": {"type": "json_schema", "json_schema": shape} if shape is not None else None,
            self._limit_name: request.max_tokens or self._info.output_limit or None,
        }
        if request.effort:
            params |= build_effort_fields(self._effort_style, request.effort)
        return {"model": self._info.name, **self._select_parameters(params)}

    def _mend(self, error: ModelError, sent_params: Mapping[str, Any], request: ModelRequest) -> NoticeDelta | None:
        """A refused name of the output limit is first tried by its other name (M-01). See also M-10."""
        thinking_match = _WANTS_THINKING.search(str(error)) if error.kind == "bad_request" else None
        if thinking_match and not self._encoder.thinking_field:
            self._encoder.change(thinking_field=thinking_match[1])
            description = f"wants its thinking back as {thinking_match[1]}; from now on it gets it"
            return self._make_notice("thinking_returned", description)
        name = next(
            (name for name in sent_params if name not in ("model", "stream") and is_refusal_of(error, name)), None
        )
        if name is None:
            about_thinking = error.kind == "bad_request" and _ABOUT_THINKING.search(str(error))
            if about_thinking and self._encoder.drop_thinking(request):
                return self._make_notice("thinking_dropped", "refuses earlier thinking; it goes on without it")
            return None
        dropped = self._drop(name)
        other_name = _OTHER_NAME.get(name, "")
        if other_name and other_name not in self._refused:
            self._limit_name = other_name
            return self._make_notice("parameter_renamed", f"takes {other_name} instead of {name}")
        return dropped


def connect(name: str, context: ProviderContext) -> Model:
    key, url = context.require_access(f"openai:{name}")
    info = context.catalogue.look_up("openai", name)
    options = HttpOptions(base_url=url or BASE_URL, api_key=key, http=context.http)

    def connect_responses() -> Model:
        from treadle.adapters.models.openai_responses import OpenAIResponses

        return OpenAIResponses(info, **options)

    if info.thinking and not url:
        return connect_responses()  # OpenAI's own models that think are refused tools on this wire
    return ChatOrResponses(OpenAIChat(info, **options), connect_responses)


async def list_models(context: ProviderContext) -> list[ModelInfo]:
    from treadle.adapters.models import openai_responses

    return await openai_responses.list_models(context, "openai")


def connect_to(server: str, name: str, context: ProviderContext) -> OpenAIChat:
    key, url = _require_access(server, f"{server}:{name}", context)
    row = SERVERS[server]
    info = context.catalogue.look_up(server, name)
    learn = None
    if row.facts_path and (info.is_unknown or not info.has_price):
        address = _build_facts_address(server, url)
        path = row.facts_path.replace("{model}", quote(name, safe=""))
        learn = partial(learn_facts, context, Access(address, key), path)
        info = _add_facts(info, address, context)
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
    key, url = _require_access(server, server, context)
    access = Access(url.rstrip("/"), key)
    if path := SERVERS[server].key_path:
        try:
            await context.http.get(access.base_url + path, {}, key)
        except ModelError as error:
            if error.status != 404:  # a relay in its place need not know this path
                raise
    return await fetch_models(context, server, access, "/models")


def list_used_models_of(server: str, context: ProviderContext) -> list[ModelInfo]:
    try:
        _, url = _require_access(server, server, context)
    except ConfigError:
        return []
    address = _build_facts_address(server, url)
    infos = [context.catalogue.look_up(server, name) for name in context.facts.list_names(address)]
    return [_add_facts(info, address, context) for info in infos]


def _add_facts(info: ModelInfo, address: str, context: ProviderContext) -> ModelInfo:
    facts = context.facts.find(address, info.name)
    return info if facts is None else context.catalogue.adjust(facts.inform(info))


def _build_facts_address(server: str, url: str) -> str:
    url = url.rstrip("/")
    return url if SERVERS[server].facts_path in ("", "/models") else url.removesuffix("/v1")


def _require_access(server: str, ref: str, context: ProviderContext) -> tuple[Secret, str]:
    row = SERVERS[server]
    if row.needs_key:
        return context.require_access(ref, row.base_url)
    # A server without a fixed address gets the key that was stored with its address. One on this machine asks for a key
    # only if its owner told it to; nothing is stored for it.
    stored = not row.base_url and not context.env.get(name_address_variable(server))
    key = context.find_key(name_key_variable(server), stored=stored)
    url = context.find_address(name_address_variable(server)) or row.base_url
    if not url:
        raise ConfigError(f"{ref} needs an address: set {name_address_variable(server)}")
    return key, url


_OTHER_WIRE = re.compile(
    r"/responses\b.*/chat/completions|/chat/completions\b.*/responses|not (?:accessible|supported).*/chat/completions",
    re.I | re.S,
)


class ChatOrResponses(ModelBase):
    """`chat` is used until the server names the other protocol; `make_responses` makes the model for that."""

    def __init__(self, chat: Model, make_responses: Callable[[], Model]) -> None:
        super().__init__(chat.info)
        self._chat, self._make_responses = chat, make_responses
        self._responses: Model | None = None
        self._memos: WeakKeyDictionary[Memo, Memo] = WeakKeyDictionary()  # those of conversations on the second wire

    def __repr__(self) -> str:
        return repr(self._responses or self._chat)

    async def stream(self, request: ModelRequest) -> AsyncIterator[Sequence[Delta]]:
        if self._responses is None:
            try:
                async with aclosing(self._chat.stream(request)) as stream:  # type: ignore[type-var]
                    async for deltas in stream:
                        yield deltas
                return
            except ModelError as error:
                if error.kind != "bad_request" or _OTHER_WIRE.search(str(error)) is None:
                    raise
                self._responses = self._make_responses()
        memo = self._memos.setdefault(request.memo, Memo())
        async with aclosing(self._responses.stream(replace(request, memo=memo))) as stream:  # type: ignore[type-var]
            async for deltas in stream:
                yield deltas

    async def close(self) -> None:
        await self._chat.close()
        if self._responses is not None:
            await self._responses.close()
