"""The list of models that a server gives of itself. Most give one of two shapes, some add limits and prices; content
with any of it, in whatever types."""

import re

import msgspec
from msgspec.structs import replace

from treadle.errors import ModelError
from treadle.models.catalog.lookup import OUTPUT_CAP
from treadle.models.provider_context import ProviderContext
from treadle.models.wire.http import host_of
from treadle.models.wire.http_model import Access
from treadle.models.wire.json import decode_leniently
from treadle.ports.model import ModelInfo

_NO_CHAT = re.compile(
    r"embed|whisper|\btts\b|dall-e|moderation|transcribe|realtime|\bimage|imagen|\baudio\b|\bsora|\bveo\b|rerank"
    r"|\bocr\b|guard\b|davinci|babbage|\blive\b",
    re.I,
)
"""Models that do something else than to answer."""
_NO_CHAT_TYPES = ("embedding", "embeddings", "image", "audio", "rerank", "moderation", "transcribe", "video")


class _Price(msgspec.Struct):
    """USD, for one token in the first three, as text or number."""

    prompt: float | None = None
    completion: float | None = None
    input_cache_read: float | None = None


class _Top(msgspec.Struct):
    max_completion_tokens: int | None = None


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
    top_provider: _Top | None = None
    pricing: _Price | None = None


class _List(msgspec.Struct):
    data: list[_Item] | None = None
    models: list[_Item] | None = None


async def list_from(context: ProviderContext, provider: str, access: Access, path: str) -> list[ModelInfo]:
    """Ask there; every model with what is known of it and what the server tells."""
    url = access.base_url + path
    models = read_list(await context.http.get(url, access.headers, access.key, key_header=access.key_header))
    if models is None:
        raise ModelError("bad_request", f"{host_of(url)} gave no list of models")
    return [_told(context.catalogue.look_up(provider, name), item) for name, item in sorted(models.items())]


def read_list(document: bytes) -> dict[str, _Item] | None:
    """The models that answer in words, by name; None when the document is no list of models."""
    if document.lstrip().startswith(b"["):
        document = b'{"data":' + document + b"}"
    found = decode_leniently(document, _List)
    if found is None:
        return None
    items = found.data if found.data is not None else found.models
    if items is None:
        return None
    named = ((item.id or (item.name or "").removeprefix("models/"), item) for item in items)
    return {name: item for name, item in named if name and _answers(name, item)}


def _answers(name: str, item: _Item) -> bool:
    if item.methods is not None and "generateContent" not in item.methods:
        return False
    return item.type not in _NO_CHAT_TYPES and not _NO_CHAT.search(name)


def _told(info: ModelInfo, item: _Item) -> ModelInfo:
    """The model with the facts of its server where the catalogue has none, or only those of the model's family."""
    unknown = info.is_unknown or not info.has_price
    windows = (
        item.context_length,
        item.context_window,
        item.max_context_length,
        item.max_model_len,
        item.max_input_tokens,
        item.input_limit,
    )
    window = next((count for count in windows if count and count > 0), 0)
    most = (item.top_provider.max_completion_tokens if item.top_provider else None) or item.max_completion_tokens
    most = most or item.output_limit or 0
    if unknown and window:
        info = replace(info, window=window, max_output=min(info.max_output, window // 2))
    if unknown and most > 0:
        info = replace(info, max_output=min(most, OUTPUT_CAP, info.window))
    price = item.pricing
    if price is not None and price.prompt and price.completion and not info.usd_per_million_input:
        info = replace(
            info,
            usd_per_million_input=round(price.prompt * 1e6, 6),
            usd_per_million_cached=round((price.input_cache_read or price.prompt) * 1e6, 6),
            usd_per_million_output=round(price.completion * 1e6, 6),
        )
    return info
