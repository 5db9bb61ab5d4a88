"""Checks a conversation by the rules of every provider: each adapter's own encoder makes the request, and that
provider's rules judge it. Returns sentences, as the checker does; knows nothing of logs."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from treadle.adapters.models.anthropic import AnthropicEncoder
from treadle.adapters.models.capability_ladder import Retelling
from treadle.adapters.models.gemini.adapter import GeminiEncoder
from treadle.adapters.models.ollama import OllamaEncoder
from treadle.adapters.models.openai_chat.adapter import ChatEncoder
from treadle.adapters.models.openai_responses import ResponsesEncoder
from treadle.adapters.models.providers import SERVERS
from treadle.adapters.models.wire.encoder import RequestEncoder
from treadle.base.types import CallKey
from treadle.ports.model import ModelRequest
from treadle.protocol.content import AssistantEntry, Entry, ResultsEntry, Thinking
from treadle.protocol.tools import ToolSpec
from treadle.testing import fake_anthropic, fake_gemini, fake_responses
from treadle.testing.fake_ollama import OllamaApi

Problems = list[str]
Body = dict[str, Any]
STRANGER = "stranger"  # the name of a model that made none of the answers
TOOLS = (ToolSpec("tool", "Does something."),)
_SEALS = ("signature", "data", "encrypted_content", "thoughtSignature")  # providers know their thinking by these


class Wire(NamedTuple):
    provider: str
    encoder: Callable[[str], RequestEncoder]  # made for a `provider:name`
    parameters: dict[str, Any]
    complaints: Callable[[bytes, Sequence[str]], Iterable[str]]  # errors; seals count as the model's own
    calls: Callable[[Body], int]  # how many calls a request tells
    native: bool = True


def check_history(history: Sequence[Entry]) -> Problems:
    """Every assistant's calls are followed at once by exactly their results, in order; no result stands alone."""
    problems: Problems = []
    open_calls: list[CallKey] = []
    for place, entry in enumerate(history):
        answered_calls = [result.call for result in entry.results] if isinstance(entry, ResultsEntry) else []
        if answered_calls != open_calls:
            problems.append(f"entry {place} of the history answers {answered_calls} where {open_calls} were asked")
        open_calls = [call.call for call in entry.calls] if isinstance(entry, AssistantEntry) else []
    return [*problems, f"the history ends with {open_calls} unanswered"] if open_calls else problems


def check_requests(history: Sequence[Entry], wires: Sequence[Wire] | None = None) -> Problems:
    """Each provider takes the conversation, from the models that made its answers and from one that made none."""
    problems: Problems = []
    blocks = [block for entry in history if isinstance(entry, AssistantEntry) for block in entry.thinking]
    for wire in WIRES if wires is None else wires:
        own_models = {block.model for block in blocks if block.opaque and block.model.startswith(f"{wire.provider}:")}
        for ref in (f"{wire.provider}:{STRANGER}", *sorted(own_models)):
            suffix = "" if wire.native else " (tools in text)"
            problems += [f"{ref}{suffix}: {problem}" for problem in _find_refusals(wire, ref, history, blocks)]
    return problems


def _find_refusals(wire: Wire, ref: str, history: Sequence[Entry], blocks: Sequence[Thinking]) -> Iterator[str]:
    if not history:
        return
    entries = history if wire.native else Retelling().retell(history)
    request = ModelRequest("Be good.", entries, TOOLS if wire.native else ())
    body = wire.encoder(ref).encode_body(wire.parameters, request)
    own_seals = [seal for block in blocks if block.model == ref for seal in _list_seals(block)]
    yield from wire.complaints(body, own_seals)
    call_count = sum(len(entry.calls) for entry in history if isinstance(entry, AssistantEntry)) if wire.native else 0
    if (encoded_count := wire.calls(msgspec.json.decode(body))) != call_count:
        yield f"the request tells {encoded_count} of {call_count} calls"
    foreign = {seal for block in blocks if block.model != ref for seal in _list_seals(block) if seal} - set(own_seals)
    yield from (f"the seal {seal[:40]!r} of another model is sent" for seal in foreign if seal.encode() in body)


def _list_seals(block: Thinking) -> list[str]:
    try:
        decoded = msgspec.json.decode(block.opaque) if block.opaque else None
    except msgspec.MsgspecError:
        return []
    return list(_find_seals(decoded))


def _find_seals(value: object) -> Iterator[str]:
    """The seals in a block; an empty one for thinking that its server did not sign."""
    if isinstance(value, dict) and value.get("type") == "thinking" and not value.get("signature"):
        yield ""
    if isinstance(value, list):
        for item in value:
            yield from _find_seals(item)
    elif isinstance(value, dict):
        for name, item in value.items():
            if name in _SEALS and isinstance(item, str) and item:
                yield item
            else:
                yield from _find_seals(item)


def check_messages(messages: Sequence[Mapping[str, Any]]) -> Problems:
    """The messages of a Chat Completions request: every call has its result right behind it, and ids are used once."""
    problems: Problems = []
    open_ids: list[str] = []
    used_ids: set[str] = set()
    for place, message in enumerate(messages):
        role = message.get("role")
        if role not in ("system", "user", "assistant", "tool") or (role == "system" and place > 0):
            problems.append(f"message {place} has the role {role!r}")
        if role == "tool":
            if not open_ids or message.get("tool_call_id") != open_ids.pop(0):
                problems.append(f"message {place} answers {message.get('tool_call_id')!r} out of turn")
            continue
        if open_ids:
            problems.append(f"message {place} ({role}) stands where results of {open_ids} belong")
        open_ids = [call["id"] for call in message.get("tool_calls") or ()]
        if used_ids.intersection(open_ids) or len(set(open_ids)) < len(open_ids):
            problems.append(f"message {place} repeats call ids of {open_ids}")
        used_ids.update(open_ids)
        if role == "assistant" and not open_ids and not message.get("content"):
            problems.append(f"message {place} of the assistant is empty")
    return [*problems, f"the messages end with {open_ids} unanswered"] if open_ids else problems


def _check_chat(body: bytes, own_seals: Sequence[str]) -> Problems:
    return check_messages(msgspec.json.decode(body)["messages"])


def _check_mistral(body: bytes, own_seals: Sequence[str]) -> Problems:
    ids = [call["id"] for call in _list_tool_calls(msgspec.json.decode(body))]
    bad = [one for one in ids if not _MISTRAL_IDS.fullmatch(one)]
    return _check_chat(body, own_seals) + [f"the id {one!r} is not in its form" for one in bad]


def _check_ollama(body: bytes, own_seals: Sequence[str]) -> Problems:
    refused = OllamaApi().answer_other_request("POST", "/api/chat", {}, body)
    problems = _check_chat(body, own_seals) + ([] if refused is None else [repr(refused)])
    names: dict[str, str] = {}
    for place, message in enumerate(msgspec.json.decode(body)["messages"]):
        names |= {call["id"]: call["function"]["name"] for call in message.get("tool_calls", ())}
        if message["role"] == "tool" and names.get(message["tool_call_id"]) != message.get("tool_name"):
            problems.append(f"message {place} is the result of {message.get('tool_name')!r}, which was not called")
    return problems


def _check_anthropic(body: bytes, own_seals: Sequence[str]) -> Iterator[str]:
    problem = fake_anthropic.find_complaint({"anthropic-version": "2023-06-01"}, body, own_seals)
    return filter(None, [problem])


def _make_gemini_check(strict: bool) -> Callable[[bytes, Sequence[str]], Iterable[str]]:
    return lambda body, own_seals: filter(None, [fake_gemini.find_complaint(body, own_seals, strict=strict)])


def _list_tool_calls(body: Body) -> list[Any]:
    return [call for message in body["messages"] for call in message.get("tool_calls") or ()]


def _count_message_calls(body: Body) -> int:
    return len(_list_tool_calls(body))


def _count_anthropic_calls(body: Body) -> int:
    return sum(block["type"] == "tool_use" for message in body["messages"] for block in message["content"])


def _count_gemini_calls(body: Body) -> int:
    return sum("functionCall" in part for content in body["contents"] for part in content["parts"])


_CHAT = {"model": "m", "stream": True}
_MESSAGES = {"model": "m", "max_tokens": 4_096}
_GENERATE = {"maxOutputTokens": 4_096}
_MISTRAL_IDS = re.compile(SERVERS["mistral"].ids)

WIRES: Sequence[Wire] = (
    Wire("openai", ChatEncoder, _CHAT, _check_chat, _count_message_calls),
    Wire("mistral", lambda ref: ChatEncoder(ref, ids=_MISTRAL_IDS), _CHAT, _check_mistral, _count_message_calls),
    Wire(
        *("openai-responses", ResponsesEncoder, {"model": "m", "store": False}),
        lambda body, own_seals: filter(None, [fake_responses.find_complaint(body, own_seals)]),
        lambda body: sum(item.get("type") == "function_call" for item in body["input"]),
    ),
    Wire("anthropic", AnthropicEncoder, _MESSAGES, _check_anthropic, _count_anthropic_calls),
    Wire("gemini", GeminiEncoder, _GENERATE, _make_gemini_check(strict=False), _count_gemini_calls),
    Wire(
        "gemini",
        lambda ref: GeminiEncoder(ref, stand_in=True),
        _GENERATE,
        _make_gemini_check(strict=True),
        _count_gemini_calls,
    ),
    Wire("ollama", OllamaEncoder, _CHAT, _check_ollama, _count_message_calls),
    # Tools in text: what holds for the strictest of both ways to speak must hold without any native call.
    Wire("openai", ChatEncoder, _CHAT, _check_chat, _count_message_calls, native=False),
    Wire("anthropic", AnthropicEncoder, _MESSAGES, _check_anthropic, _count_anthropic_calls, native=False),
)
"""Every wire format that Treadle speaks, and the strictest dialects of each."""
