"""The list of models that a server offers. Most servers use one of two shapes; some add limits and prices. Accepts any
subset of the fields, in any type."""

import asyncio
import re
from typing import Any, TypeVar

import msgspec

from treadle.adapters.models.catalog.lookup import OWN_SERVERS, ModelFacts
from treadle.adapters.models.provider_context import ProviderContext
from treadle.adapters.models.wire.http import Access, format_host
from treadle.errors import ModelError
from treadle.ports.model import ModelInfo
from treadle.protocol.options import MAX_USD

LEARN_S = 5.0  # how long a first call waits for what its server knows of the model
_NO_CHAT = re.compile(  # models that do something else than to answer
    r"embed|whisper|\btts\b|dall-e|moderation|transcribe|realtime|\bimage|imagen|\baudio\b|\bsora|\bveo\b|rerank"
    r"|\bocr\b|guard\b|davinci|babbage|\blive\b",
    re.I,
)
_NO_CHAT_TYPES = ("embedding", "embeddings", "image", "audio", "rerank", "moderation", "transcribe", "video")
_WINDOWS = (  # LM Studio, OpenRouter and Together, Groq, Mistral and LM Studio, vLLM, Anthropic, Gemini
    *("loaded_context_length", "context_length", "context_window", "max_context_length", "max_model_len"),
    *("max_input_tokens", "inputTokenLimit"),
)
_LIMITS = ("top_provider.max_completion_tokens", "max_completion_tokens", "outputTokenLimit")
_T = TypeVar("_T")


async def fetch_models(context: ProviderContext, provider: str, access: Access, path: str) -> list[ModelInfo]:
    """Ask there; every model with what is known of it and what the server tells."""
    url = access.base_url + path
    models = read_list(await context.http.get(url, access.headers, access.key, key_header=access.key_header))
    if models is None:
        raise ModelError("bad_request", f"{format_host(url)} gave no list of models")
    return [
        parse_facts(item).inform(context.catalogue.look_up(provider, name)) for name, item in sorted(models.items())
    ]


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


def _decode(document: bytes) -> Any:
    try:
        return msgspec.json.decode(document)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None


def _get(value: Any, kind: type[_T], *path: str) -> _T | None:
    """What stands at this path of an object, if it fits; numbers may be text."""
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    try:
        return msgspec.convert(value, kind | None, strict=False)
    except msgspec.ValidationError:
        return None


def read_facts(document: bytes, name: str) -> ModelFacts | None:
    """The facts about one model in a list of models or in the properties of a server; None if there are none."""
    models = read_list(document)
    if models is not None:
        return parse_facts(models[name]) if name in models else None
    # llama.cpp's `/props` is about the model that it serves, under any name that a request uses.
    properties = _decode(document)
    if not isinstance(properties, dict) or not isinstance(properties.get("default_generation_settings"), dict):
        return None
    window = _get(properties, int, "default_generation_settings", "n_ctx") or 0
    return ModelFacts(max(0, window), vision=_get(properties, bool, "modalities", "vision"))


def read_list(document: bytes) -> dict[str, dict[str, Any]] | None:
    """The models that answer in words, by name; None when the document is no list of models."""
    listing = _decode(document)
    if isinstance(listing, dict):
        listing = next((listing[key] for key in ("data", "models") if isinstance(listing.get(key), list)), None)
    if not isinstance(listing, list):
        return None
    models: dict[str, dict[str, Any]] = {}
    for item in listing:
        name = _get(item, str, "id") or (_get(item, str, "name") or "").removeprefix("models/")
        methods = _get(item, list, "supportedGenerationMethods")
        if name and item.get("type") not in _NO_CHAT_TYPES and (methods is None or "generateContent" in methods):
            models[name] = item
    return {name: item for name, item in models.items() if not _NO_CHAT.search(name)}


def parse_facts(item: dict[str, Any]) -> ModelFacts:
    trained_window, served_window = _get(item, int, "meta", "n_ctx_train"), _get(item, int, "meta", "n_ctx")
    # A model that was made for more than is assumed of any model tells nothing about the server's window.
    is_small = trained_window is not None and trained_window < ModelInfo("", "").window
    windows = [_get(item, int, key) for key in _WINDOWS]
    windows += [served_window, trained_window if is_small and not served_window else None]
    limits = [_get(item, int, *path.split(".")) for path in _LIMITS]
    # OpenRouter tells prices for a token, Together for a million: in USD, as text or number.
    fresh, cached, output = (_get(item, float, "pricing", key) for key in ("input", "cached_input", "output"))
    unit = 1.0
    if not fresh or not output:
        keys, unit = ("prompt", "input_cache_read", "completion"), 1e6
        fresh, cached, output = (_get(item, float, "pricing", key) for key in keys)
    # A price below zero stands for one that differs from call to call.
    usd = [round((price or 0.0) * unit, 6) for price in (fresh, cached, output)]
    fresh, cached, output = (price if 0 <= price <= MAX_USD else 0.0 for price in usd)
    accepted = _get(item, list, "supported_parameters")
    modalities, capabilities = _get(item, list, "architecture", "input_modalities"), item.get("capabilities")
    tools, vision = (None if accepted is None else "tools" in accepted), None
    if modalities is not None:
        vision = "image" in modalities
    elif item.get("type") in ("llm", "vlm"):  # LM Studio
        vision = item["type"] == "vlm"
        tools = "tool_use" in capabilities if isinstance(capabilities, list) else None
    return ModelFacts(
        next((count for count in windows if count and count > 0), 0),
        next((count for count in limits if count and count > 0), 0),
        fresh,
        cached,
        output,
        tools=tools,
        vision=vision,
        reasoning=None if accepted is None else "reasoning" in accepted,
    )
