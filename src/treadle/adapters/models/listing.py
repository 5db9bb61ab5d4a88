"""The list of models that a server offers. Most servers use one of two shapes; some add limits and prices. Accepts any
subset of the fields, in any type."""

import asyncio
import re
from typing import Any

import msgspec

from treadle.adapters.models.catalog.lookup import OWN_SERVERS, ModelFacts
from treadle.adapters.models.provider_context import ProviderContext
from treadle.adapters.models.wire.http import host_of
from treadle.adapters.models.wire.http_model import Access
from treadle.adapters.models.wire.json import decode_leniently
from treadle.errors import ModelError
from treadle.ports.model import ModelInfo

LEARN_S = 5.0  # how long a first call waits for what its server knows of the model
_NO_CHAT = re.compile(
    r"embed|whisper|\btts\b|dall-e|moderation|transcribe|realtime|\bimage|imagen|\baudio\b|\bsora|\bveo\b|rerank"
    r"|\bocr\b|guard\b|davinci|babbage|\blive\b",
    re.I,
)
"""Models that do something else than to answer."""
_NO_CHAT_TYPES = ("embedding", "embeddings", "image", "audio", "rerank", "moderation", "transcribe", "video")


class _Price(msgspec.Struct):
    """USD as text or number: for one token in the first three (OpenRouter), for a million in the others (Together)."""

    prompt: float | None = None
    completion: float | None = None
    input_cache_read: float | None = None
    input: float | None = None
    cached_input: float | None = None
    output: float | None = None


class _Top(msgspec.Struct):
    max_completion_tokens: int | None = None


class _Architecture(msgspec.Struct):
    input_modalities: list[str] | None = None


class _Meta(msgspec.Struct):
    n_ctx: int | None = None
    n_ctx_train: int | None = None  # the window of the model itself; the server may have been started with less


class _Item(msgspec.Struct):
    id: str | None = None
    name: str | None = None
    type: str | None = None
    context_length: int | None = None  # OpenRouter, Together
    context_window: int | None = None  # Groq
    max_context_length: int | None = None  # Mistral, LM Studio
    max_model_len: int | None = None  # vLLM
    max_input_tokens: int | None = None  # Anthropic
    input_limit: int | None = msgspec.field(default=None, name="inputTokenLimit")  # Gemini
    output_limit: int | None = msgspec.field(default=None, name="outputTokenLimit")
    methods: list[str] | None = msgspec.field(default=None, name="supportedGenerationMethods")
    max_completion_tokens: int | None = None
    loaded_context_length: int | None = None  # LM Studio
    supported_parameters: list[str] | None = None  # OpenRouter
    architecture: _Architecture | None = None  # OpenRouter
    capabilities: Any = None  # LM Studio: a list of words
    top_provider: _Top | None = None
    pricing: _Price | None = None
    meta: _Meta | None = None


class _Generation(msgspec.Struct):
    n_ctx: int | None = None


class _Modalities(msgspec.Struct):
    vision: bool | None = None


class _Properties(msgspec.Struct):
    """The facts of llama.cpp's `/props` about the model that it serves, under any name that a request uses."""

    default_generation_settings: _Generation | None = None
    modalities: _Modalities | None = None


class _List(msgspec.Struct):
    data: list[_Item] | None = None
    models: list[_Item] | None = None


async def list_from(context: ProviderContext, provider: str, access: Access, path: str) -> list[ModelInfo]:
    """Ask there; every model with what is known of it and what the server tells."""
    url = access.base_url + path
    models = read_list(await context.http.get(url, access.headers, access.key, key_header=access.key_header))
    if models is None:
        raise ModelError("bad_request", f"{host_of(url)} gave no list of models")
    return [facts_of(item).inform(context.catalogue.look_up(provider, name)) for name, item in sorted(models.items())]


async def learn_facts(context: ProviderContext, access: Access, path: str, info: ModelInfo) -> ModelInfo:
    """Ask a server what it knows of a model that the catalogue does not have, and keep it. A server that does not tell
    is used all the same. One on the user's machine is asked by each process: it may run with another window now."""
    address = access.base_url
    stored = context.facts.find(address, info.name)
    facts = stored
    if stored is None or info.provider in OWN_SERVERS:
        try:
            async with asyncio.timeout(LEARN_S):
                document = await context.http.get(address + path, access.headers, access.key)
        except (ModelError, TimeoutError):
            document = None
        if document is not None:
            facts = read_facts(document, info.name) or stored or ModelFacts()
    if facts is None:
        return info
    if facts != stored:
        context.facts.keep(address, info.name, facts)
    return context.catalogue.adjust(facts.inform(info))


def read_facts(document: bytes, name: str) -> ModelFacts | None:
    """The facts about one model in a list of models or in the properties of a server; None if there are none."""
    models = read_list(document)
    if models is not None:
        return facts_of(models[name]) if name in models else None
    properties = decode_leniently(document, _Properties)
    settings = properties.default_generation_settings if properties is not None else None
    if properties is None or settings is None:
        return None
    vision = properties.modalities.vision if properties.modalities else None
    return ModelFacts(max(0, settings.n_ctx or 0), vision=vision)


def read_list(document: bytes) -> dict[str, _Item] | None:
    """The models that answer in words, by name; None when the document is no list of models."""
    if document.lstrip().startswith(b"["):
        document = b'{"data":' + document + b"}"
    listing = decode_leniently(document, _List)
    if listing is None:
        return None
    items = listing.data if listing.data is not None else listing.models
    if items is None:
        return None
    items = [item for item in items if item.type not in _NO_CHAT_TYPES]
    items = [item for item in items if item.methods is None or "generateContent" in item.methods]
    named = ((item.id or (item.name or "").removeprefix("models/"), item) for item in items)
    return {name: item for name, item in named if name and not _NO_CHAT.search(name)}


def facts_of(item: _Item) -> ModelFacts:
    meta = item.meta or _Meta()
    # A model that was made for more than is assumed of any model tells nothing about the server's window.
    is_small = meta.n_ctx_train is not None and meta.n_ctx_train < ModelInfo("", "").window
    windows = (
        *(item.loaded_context_length, item.context_length, item.context_window, item.max_context_length),
        *(item.max_model_len, item.max_input_tokens, item.input_limit, meta.n_ctx),
        meta.n_ctx_train if is_small and not meta.n_ctx else None,
    )
    limits = ((item.top_provider or _Top()).max_completion_tokens, item.max_completion_tokens, item.output_limit)
    price = item.pricing or _Price()
    fresh, cached, output = price.prompt or 0.0, price.input_cache_read or 0.0, price.completion or 0.0
    fresh, cached, output = fresh * 1e6, cached * 1e6, output * 1e6
    if price.input and price.output:  # Together tells them for a million tokens
        fresh, cached, output = price.input, price.cached_input or 0.0, price.output
    accepted = item.supported_parameters
    modalities = item.architecture.input_modalities if item.architecture else None
    capabilities = item.capabilities if isinstance(item.capabilities, list) else None
    tools, vision = (None if accepted is None else "tools" in accepted), None
    if modalities is not None:
        vision = "image" in modalities
    elif item.type in ("llm", "vlm"):  # LM Studio
        vision = item.type == "vlm"
        tools = None if capabilities is None else "tool_use" in capabilities
    return ModelFacts(
        next((count for count in windows if count and count > 0), 0),
        next((count for count in limits if count and count > 0), 0),
        round(fresh, 6),
        round(cached, 6),
        round(output, 6),
        tools=tools,
        vision=vision,
        reasoning=None if accepted is None else "reasoning" in accepted,
    )
