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

chat = lazily("openai.types.chat.completion_create_params")
responses = lazily("openai.types.responses.response_create_params")
messages = lazily("anthropic.types.message_create_params")
genai = lazily("google.genai.types")
ollama = lazily("ollama._types")


@cache
def hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind, include_extras=True)


def faults(value: Any, kind: Any, where: str = "request") -> list[str]:
    """What does not fit a type of an SDK. Pydantic reads iterables of these types only in part, and fails at some."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Annotated, Required, NotRequired):
        return faults(value, arguments[0], where)
    if kind in (Any, object) or isinstance(kind, TypeVar):
        return []
    if origin in (Union, UnionType):
        found = [faults(value, each, where) for each in arguments]
        return [] if [] in found else min(found, key=len)
    if origin is Literal:
        return [] if value in arguments else [f"{where} is {value!r}, none of {arguments}"]
    if is_typeddict(kind):
        if not isinstance(value, dict):
            return [f"{where} is no object: {value!r}"]
        missing = [f"{where} has no {name}" for name in kind.__required_keys__ if name not in value]
        known = hints(kind)
        return missing + [
            fault
            for name, item in value.items()
            if name in known
            for fault in faults(item, known[name], f"{where}.{name}")
        ]
    if origin in (list, abc.Iterable, abc.Sequence):
        if not isinstance(value, list):
            return [f"{where} is no list: {value!r}"]
        return [fault for at, item in enumerate(value) for fault in faults(item, arguments[0], f"{where}[{at}]")]
    if origin in (dict, abc.Mapping):
        return [] if isinstance(value, dict) else [f"{where} is no object: {value!r}"]
    if kind in (None, NoneType):
        return [] if value is None else [f"{where} is not null: {value!r}"]
    if kind is float:
        return [] if isinstance(value, int | float) and not isinstance(value, bool) else [f"{where} is no number"]
    if isinstance(kind, type):
        return [] if isinstance(value, kind) else [f"{where} is no {kind.__name__}: {value!r}"]
    raise AssertionError(f"{kind} is not understood")


def validate(kind: Any, body: dict[str, Any]) -> None:
    assert faults(body, kind) == []


def validate_request(model: str, path: str, body: dict[str, Any]) -> None:
    provider = model.partition(":")[0]
    if provider == "anthropic":
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
    elif provider == "mistral":  # its content may hold chunks of thinking
        plain = [{**message, "content": str(message.get("content") or "")} for message in body["messages"]]
        validate(chat.CompletionCreateParamsStreaming, {**body, "messages": plain})
    elif body.get("reasoning_effort") == "default":  # Groq's word for Qwen
        validate(chat.CompletionCreateParamsStreaming, {**body, "reasoning_effort": "high"})
    else:
        validate(chat.CompletionCreateParamsStreaming, body)


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
    ):
        with pytest.raises(AssertionError):
            validate_request("openai:m", "/chat/completions", bad)
