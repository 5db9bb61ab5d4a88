"""The bodies that Treadle sends fit the types of the vendors' own SDKs: every request of every case in tests/wires, the
next one with the answer in it included. Fields that a server adds to the protocol are not in those types and pass."""

import asyncio
from collections import abc
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NotRequired, Required, TypeVar, Union, get_args, get_origin, get_type_hints

import pytest
from typing_extensions import is_typeddict

from tests.lazily import lazily
from tests.wires.case import Case, all_cases, play

pytestmark = pytest.mark.thorough(one_of=12)

chat = lazily("openai.types.chat.completion_create_params")
responses = lazily("openai.types.responses.response_create_params")
messages = lazily("anthropic.types.message_create_params")
genai = lazily("google.genai.types")
ollama = lazily("ollama._types")
mistral = lazily("mistralai.client.models")

MISTRAL_EXTRAS = {"stream_options"}
"""Not in Mistral's SDK. Its server may take them or not; if not, the adapter leaves them out."""


@cache
def hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind, include_extras=True)


@cache
def required_names(kind: Any) -> frozenset[str]:
    """Not `__required_keys__`, which is wrong where a module of the SDK postpones its annotations."""
    bases = [base for base in getattr(kind, "__orig_bases__", ()) if is_typeddict(base)]
    names = frozenset(name for base in bases for name in required_names(base))
    inherited = {name for base in bases for name in hints(base)}
    origins = {name: get_origin(hint) for name, hint in hints(kind).items() if name not in inherited}
    by_default = Required if kind.__total__ else NotRequired
    return names | {
        name
        for name, origin in origins.items()
        if (origin if origin in (Required, NotRequired) else by_default) is Required
    }


def faults(value: Any, kind: Any, location: str = "request") -> list[str]:
    """Mismatches with a type of an SDK. Pydantic reads iterables of these types only in part, and fails at some."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Annotated, Required, NotRequired):
        return faults(value, arguments[0], location)
    if kind in (Any, object) or isinstance(kind, TypeVar):
        return []
    if origin in (Union, UnionType):
        alternatives = [faults(value, each, location) for each in arguments]
        return [] if [] in alternatives else min(alternatives, key=len)
    if origin is Literal:
        return [] if value in arguments else [f"{location} is {value!r}, none of {arguments}"]
    if is_typeddict(kind):
        if not isinstance(value, dict):
            return [f"{location} is no object: {value!r}"]
        missing = [f"{location} has no {name}" for name in required_names(kind) if name not in value]
        field_types = hints(kind)
        return missing + [
            fault
            for name, item in value.items()
            if name in field_types
            for fault in faults(item, field_types[name], f"{location}.{name}")
        ]
    if origin in (list, abc.Iterable, abc.Sequence):
        if not isinstance(value, list):
            return [f"{location} is no list: {value!r}"]
        return [fault for at, item in enumerate(value) for fault in faults(item, arguments[0], f"{location}[{at}]")]
    if origin in (dict, abc.Mapping):
        return [] if isinstance(value, dict) else [f"{location} is no object: {value!r}"]
    if kind in (None, NoneType):
        return [] if value is None else [f"{location} is not null: {value!r}"]
    if kind is float:
        return [] if isinstance(value, int | float) and not isinstance(value, bool) else [f"{location} is no number"]
    if isinstance(kind, type):
        return [] if isinstance(value, kind) else [f"{location} is no {kind.__name__}: {value!r}"]
    raise AssertionError(f"{kind} is not understood")


def validate(kind: Any, body: dict[str, Any]) -> None:
    assert faults(body, kind) == []


def validate_request(model: str, path: str, body: dict[str, Any]) -> None:
    provider = model.partition(":")[0]
    if provider == "anthropic":
        if not model.startswith("anthropic:claude"):  # compatible servers do not sign thinking
            body = sign_thinking(body)
        validate(messages.MessageCreateParamsStreaming, body)
    elif provider == "gemini":
        for content in body["contents"]:
            genai.Content.model_validate(content)
        genai.GenerationConfig.model_validate(body.get("generationConfig", {}))
        for tool in body.get("tools", ()):
            genai.Tool.model_validate(tool)
    elif provider == "ollama":
        ollama.ChatRequest.model_validate(body)
    elif path.endswith("/responses"):
        validate(responses.ResponseCreateParamsStreaming, body)
    elif provider == "mistral":
        validate_mistral_request(body)
    elif body.get("reasoning_effort") == "default":  # Groq's word for Qwen
        validate(chat.CompletionCreateParamsStreaming, {**body, "reasoning_effort": "high"})
    else:
        validate(chat.CompletionCreateParamsStreaming, body)


def sign_thinking(body: dict[str, Any]) -> dict[str, Any]:
    def sign(block: dict[str, Any]) -> dict[str, Any]:
        return {"signature": "", **block} if block["type"] == "thinking" else block

    signed = [{**message, "content": [sign(block) for block in message["content"]]} for message in body["messages"]]
    return {**body, "messages": signed}


def validate_mistral_request(body: dict[str, Any]) -> None:
    fields = {name: value for name, value in body.items() if name not in MISTRAL_EXTRAS}
    parsed = mistral.ChatCompletionStreamRequest.model_validate(fields).model_dump(mode="json", by_alias=True)
    assert unknown_fields(fields, parsed) == []
    levels = get_args(get_args(mistral.ReasoningEffort)[0])
    assert fields.get("reasoning_effort", "high") in levels  # the SDK takes any word


def unknown_fields(document: Any, parsed: Any, location: str = "request") -> list[str]:
    """Fields of a request that a model of an SDK left out when it read the request."""
    if isinstance(document, dict) and isinstance(parsed, dict):
        return [
            fault
            for name, value in document.items()
            for fault in (
                unknown_fields(value, parsed[name], f"{location}.{name}")
                if name in parsed
                else [f"{location} has an unknown {name}"]
            )
        ]
    if isinstance(document, list) and isinstance(parsed, list):
        pairs = enumerate(zip(document, parsed, strict=True))
        return [
            fault for at, (one, parsed_item) in pairs for fault in unknown_fields(one, parsed_item, f"{location}[{at}]")
        ]
    return []


CASES = [pytest.param(model, case, id=case.name) for model, case in all_cases()]


@pytest.mark.parametrize(("model", "case"), CASES)
def test_what_is_sent_fits_the_types_of_the_sdk(model: str, case: Case) -> None:
    played = asyncio.run(play(model, case))
    for body, path in zip(played.requests, played.paths, strict=False):
        validate_request(model, path, body)
    if played.next:
        validate_request(model, played.paths[-1], played.next)


def test_the_types_find_faults() -> None:
    good: dict[str, Any] = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "Hi."}]}
    validate_request("openai:m", "/chat/completions", good)
    for bad in (
        {**good, "reasoning_effort": "huge"},
        {**good, "messages": [{"role": "assistant", "tool_calls": [{"id": 1}]}]},
        {**good, "messages": "Hi."},
        {**good, "messages": [{"role": "user"}]},
    ):
        with pytest.raises(AssertionError):
            validate_request("openai:m", "/chat/completions", bad)
    validate_request("mistral:m", "/chat/completions", good)
    for bad in (
        {**good, "reasoning_effort": "huge"},
        {**good, "max_completion_tokens": 9},
        {**good, "messages": [{"role": "assistant", "content": "Hi.", "reasoning_content": "Hm."}]},
    ):
        with pytest.raises(AssertionError):
            validate_request("mistral:m", "/chat/completions", bad)
