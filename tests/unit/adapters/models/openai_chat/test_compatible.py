"""Servers that are known by an address and a key (M-01), and what some of them want beside."""

import re
import sys
from typing import Any

import msgspec
import pytest

from treadle.adapters.models.openai_chat.adapter import OpenAIChat
from treadle.adapters.models.providers import ADDRESSES, KEYS, SERVERS, VARIABLES
from treadle.adapters.models.registry import PROVIDERS, ModelRegistry
from treadle.base.types import CallKey, JsonObject
from treadle.chat.assembly import Assembler, ModelAnswer
from treadle.errors import ConfigError, ModelError
from treadle.ports.model import Memo, Model, ModelInfo, ModelRequest
from treadle.protocol.content import AssistantEntry, Entry, ResultsEntry, Thinking, ToolRequest, ToolResult, UserEntry
from treadle.protocol.deltas import NoticeDelta
from treadle.testing.fake_anthropic import FakeAnthropic
from treadle.testing.fake_gemini import FakeGemini
from treadle.testing.fake_ollama import FakeOllama
from treadle.testing.fake_openai import FakeOpenAI, Reply

KEY = "sk-very-secret-key"


@pytest.fixture(autouse=True)
def no_keyring(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "keyring", None)


async def ask(model: Model, entries: list[Entry], memo: Memo | None = None) -> tuple[ModelAnswer, list[NoticeDelta]]:
    assembler = Assembler(1)
    async for deltas in model.stream(ModelRequest("", entries, memo=memo or Memo())):
        assembler.feed(deltas)
    return assembler.finish(model.info.ref), assembler.notices


def test_every_provider_says_what_it_reads() -> None:
    assert {*PROVIDERS, *SERVERS} <= set(VARIABLES)
    assert not set(PROVIDERS) & set(SERVERS)
    assert {"GROQ_API_KEY", "OPENAI_API_KEY", "COPILOT_GITHUB_TOKEN"} <= set(KEYS)
    assert {"GROQ_BASE_URL", "OPENAI_BASE_URL", "COPILOT_BASE_URL"} <= set(ADDRESSES)


@pytest.mark.parametrize("server", SERVERS)
async def test_a_server_by_its_name_and_by_another_address(server: str) -> None:
    key, address = f"{server.upper()}_API_KEY", f"{server.upper()}_BASE_URL"
    assert ModelRegistry({}).providers.count(server) == 1
    if SERVERS[server].needs_key:
        with pytest.raises(ConfigError, match=f"{server}:any needs a key: set {key}, or {address}"):
            ModelRegistry({}).get(f"{server}:any")
    if SERVERS[server].base_url:
        default_model = ModelRegistry({key: KEY}).get(f"{server}:any")
        assert SERVERS[server].base_url in repr(default_model)
        assert KEY not in repr(default_model)
    else:
        with pytest.raises(ConfigError, match=f"{server}:any needs an address: set {address}"):
            ModelRegistry({key: KEY}).get(f"{server}:any")
    with FakeOpenAI([Reply(text="hi")]) as fake:
        registry = ModelRegistry({address: fake.base_url, key: KEY})
        answer, _ = await ask(registry.get(f"{server}:some/model"), [UserEntry("x")])
        listed = await registry.ask(server)
        await registry.close()
    assert (answer.text, fake.requests[0]["model"]) == ("hi", "some/model")
    assert fake.headers[0]["authorization"] == f"Bearer {KEY}"
    assert [info.ref for info in listed or ()] == [f"{server}:fake"]
    with pytest.raises(ConfigError, match=f"{address} is 'nowhere'; it must begin with http"):
        ModelRegistry({address: "nowhere", key: KEY}).get(f"{server}:any")


async def test_others_can_be_asked_too() -> None:
    with FakeOpenAI() as openai, FakeAnthropic() as anthropic, FakeGemini() as gemini, FakeOllama() as ollama:
        registry = ModelRegistry(
            {
                "ANTHROPIC_BASE_URL": anthropic.base_url,
                "GEMINI_BASE_URL": gemini.base_url,
                "OLLAMA_HOST": ollama.url,
                "OPENAI_BASE_URL": openai.base_url + "/chat/completions",
            }
        )
        providers = ("openai", "openai-responses", "anthropic", "gemini", "ollama")
        model_lists = [await registry.ask(name) for name in providers]
        assert await registry.ask("scripted") is None
        assert await registry.ask("nobody") is None
        await registry.close()
    assert [info.ref for infos in model_lists for info in infos or ()] == [
        "openai:fake",
        "openai-responses:fake",
        "anthropic:claude-opus-5-5",
        "gemini:gemini-2.5-pro",
        "ollama:fake:latest",
    ]
    assert (model_lists[2] or [])[0].window == 1_000_000


@pytest.mark.parametrize(
    ("ref", "elsewhere", "kind"),
    [
        ("openai:gpt-4.1", False, "OpenAIChat"),
        ("openai:gpt-6.1-sol", False, "OpenAIResponses"),
        ("openai:gpt-5.3-codex", False, "OpenAIResponses"),
        ("openai:gpt-6.1-sol", True, "OpenAIChat"),
        ("openai:unknown", False, "OpenAIChat"),
        ("deepseek:deepseek-flash", False, "OpenAIChat"),
    ],
)
def test_models_of_openai_that_think_are_spoken_to_by_the_other_protocol(ref: str, elsewhere: bool, kind: str) -> None:
    env = {"OPENAI_API_KEY": KEY, "DEEPSEEK_API_KEY": KEY}
    env |= {"OPENAI_BASE_URL": "http://127.0.0.1:9/v1"} if elsewhere else {}
    model = ModelRegistry(env).get(ref)
    assert f"{kind}('{ref}'" in repr(model)
    assert model.info.ref == ref


def call(turn: int, identity: str) -> ToolRequest:
    return ToolRequest(CallKey(f"{turn}.0"), "look", id=identity)


def result(turn: int) -> ResultsEntry:
    return ResultsEntry(turn, (ToolResult(CallKey(f"{turn}.0"), "seen"),))


async def test_mistral_gets_ids_that_it_takes() -> None:  # M-09
    entries: list[Entry] = [
        UserEntry("x"),
        AssistantEntry(1, calls=(call(1, "call_of_another_provider"),)),
        result(1),
        AssistantEntry(2, calls=(call(2, "abcDEF123"),)),
        result(2),
    ]
    with FakeOpenAI(lambda _: Reply(text="hi")) as fake:
        registry = ModelRegistry({"MISTRAL_BASE_URL": fake.base_url})
        await ask(registry.get("mistral:mistral-large-latest"), entries)
        await registry.close()
    messages: Any = fake.requests[0]["messages"]
    ids = [message["tool_calls"][0]["id"] for message in messages if message.get("tool_calls")]
    assert ids == [message["tool_call_id"] for message in messages if message["role"] == "tool"]
    assert all(re.fullmatch("[A-Za-z0-9]{9}", identity) for identity in ids)
    assert ids[1] == "abcDEF123"


def strict(request: JsonObject) -> Reply:
    """A server that thinks and wants its thinking back, as DeepSeek does."""
    messages: Any = request["messages"]
    answers = [message for message in messages if message["role"] == "assistant"]
    if any("reasoning_content" not in message for message in answers):
        error_text = "The `reasoning_content` in the thinking mode must be passed back to the API."
        return Reply(status=400, error={"message": error_text, "type": "invalid_request_error"})
    if not answers:
        return Reply(thinking="I should look. Ünsure: “x”", calls=[("look", {})], chunk_size=3)
    return Reply(text=f"after {answers[-1]['reasoning_content']!r}")


async def two_turns(model: Model, memo: Memo) -> tuple[ModelAnswer, ModelAnswer, list[NoticeDelta]]:
    first, _ = await ask(model, [UserEntry("x")], memo)
    entries = [UserEntry("x"), AssistantEntry(1, first.text, first.thinking, first.requests), result(1)]
    second, notices = await ask(model, entries, memo)
    return first, second, notices


async def test_deepseek_gets_its_thinking_back() -> None:  # M-10
    with FakeOpenAI(strict) as fake:
        registry = ModelRegistry({"DEEPSEEK_BASE_URL": fake.base_url})
        first, second, notices = await two_turns(registry.get("deepseek:deepseek-flash"), Memo())
        await registry.close()
    (block,) = first.thinking
    assert (block.text, block.model) == ("I should look. Ünsure: “x”", "deepseek:deepseek-flash")
    assert second.text == "after 'I should look. Ünsure: “x”'"
    assert notices == []


async def test_thinking_of_another_model_is_not_sent_but_its_place_is() -> None:  # M-10, fault 24
    entries: list[Entry] = [UserEntry("x"), AssistantEntry(1, "so", calls=(call(1, "c"),)), result(1)]
    with FakeOpenAI(strict) as fake:
        registry = ModelRegistry({"DEEPSEEK_BASE_URL": fake.base_url})
        answer, _ = await ask(registry.get("deepseek:deepseek-v4-pro"), entries)
        await registry.close()
    assert answer.text == "after ''"


async def test_thinking_goes_back_with_calls_without_a_complaint() -> None:  # M-10
    with FakeOpenAI(strict) as fake:
        model = OpenAIChat(ModelInfo("openai", "x"), base_url=fake.base_url)
        _, second, notices = await two_turns(model, Memo())
        await model.close()
    assert notices == []
    assert second.text == "after 'I should look. Ünsure: “x”'"
    assert len(fake.requests) == 2


async def test_a_server_that_demands_thinking_gets_the_recorded_text() -> None:  # M-10: of logs from before
    error = {"message": "The reasoning_content in the thinking mode must be passed back to the API."}
    thinking = (Thinking("I looked.", model="openai:x"), Thinking("Another model's.", model="groq:y"))
    entries: list[Entry] = [UserEntry("x"), AssistantEntry(1, "", thinking, (call(1, "c"),)), result(1)]

    def demand(request: JsonObject) -> Reply:
        messages: Any = request["messages"]
        reasoning = messages[1].get("reasoning_content")
        return Reply(status=400, error=error) if reasoning is None else Reply(text=reasoning)

    with FakeOpenAI(demand) as fake:
        model = OpenAIChat(ModelInfo("openai", "x"), base_url=fake.base_url)
        answer = (await ask(model, entries))[0]
        await model.close()
    assert answer.text == "I looked."


async def test_a_server_that_is_never_content_is_not_asked_forever() -> None:
    error = {"message": "reasoning_content is missing in assistant tool call message"}
    entries: list[Entry] = [UserEntry("x"), AssistantEntry(1, calls=(call(1, "c"),)), result(1)]
    with FakeOpenAI(lambda _: Reply(status=400, error=error)) as fake:
        model = OpenAIChat(ModelInfo("openai", "x"), base_url=fake.base_url)
        with pytest.raises(ModelError, match="reasoning_content is missing"):
            await ask(model, entries)
        await model.close()
    assert len(fake.requests) == 2


DETAILS = [
    [{"type": "reasoning.text", "text": "I ", "index": 0, "format": "google-gemini-v1", "signature": None}],
    [{"type": "reasoning.text", "text": "löok", "index": 0}, {"type": "reasoning.summary", "summary": "s", "index": 1}],
    [{"type": "reasoning.text", "index": 0, "signature": "abc+/="}, "odd", 7],
    [{"type": "reasoning.encrypted", "data": "xyz", "id": "call_1"}, {"type": "reasoning.encrypted", "data": "uvw"}],
    "odd",
    {},
]


async def test_the_details_of_openrouter_go_back_whole() -> None:  # M-10
    chunks = [{"choices": [{"index": 0, "delta": {"reasoning": "t", "reasoning_details": part}}]} for part in DETAILS]
    call = {"index": 0, "id": "call_1", "function": {"name": "look", "arguments": "{}"}}
    chunks.append({"choices": [{"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": "tool_calls"}]})
    raw = b"".join(b"data: " + msgspec.json.encode(chunk) + b"\n\n" for chunk in chunks) + b"data: [DONE]\n\n"
    replies = [Reply(raw=raw), Reply(text="seen")]
    for split in (0, 1):
        with FakeOpenAI([msgspec.structs.replace(reply, split=split) for reply in replies]) as fake:
            registry = ModelRegistry({"OPENROUTER_BASE_URL": fake.base_url})
            first, second, _ = await two_turns(registry.get("openrouter:google/gemini-3.8-flash"), Memo())
            await registry.close()
        assert (first.thinking[0].text, second.text) == ("tttttt", "seen")
        messages: Any = fake.requests[1]["messages"]
        assert messages[1]["reasoning_details"] == [
            {
                "type": "reasoning.text",
                "text": "I löok",
                "index": 0,
                "format": "google-gemini-v1",
                "signature": "abc+/=",
            },
            {"type": "reasoning.summary", "summary": "s", "index": 1},
            {"type": "reasoning.encrypted", "data": "xyz", "id": "call_1"},
            {"type": "reasoning.encrypted", "data": "uvw"},
        ]
