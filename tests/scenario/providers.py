"""Every provider that has a fake server, as the command line uses it: its model, how it is found, and what its server
must have seen afterwards. Data for the tests that run the same task with all of them."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from tests.fake_copilot import GITHUB_TOKEN, FakeCopilot
from treadle.adapters.models.gemini.adapter import STAND_IN
from treadle.testing.fake_anthropic import FakeAnthropic
from treadle.testing.fake_gemini import FakeGemini
from treadle.testing.fake_model import FakeModelServer, Script
from treadle.testing.fake_ollama import FakeOllama
from treadle.testing.fake_openai import FakeOpenAI
from treadle.testing.fake_responses import FakeResponses

KEY = "sk-test-51a0c3d9e7b2f4a6c8d0"

Fake = Any
"""A fake server: each has some words of its own."""


class Provider(NamedTuple):
    model: str
    make: Callable[[Script], FakeModelServer]
    env: Callable[[Fake], Mapping[str, str]]
    """Where the command line finds the fake, and what opens its door."""
    has_expected_requests: Callable[[Fake], bool] = lambda _: True
    """Checks the requests that the server has received after three rounds."""
    secrets: tuple[str, ...] = (KEY,)
    """Texts that must be found nowhere afterwards (M-13)."""


def copilot(name: str, path: str) -> Provider:
    def has_expected_requests(fake: FakeCopilot) -> bool:
        initiators = [headers["x-initiator"] for headers in fake.headers]
        return (fake.exchanges, set(fake.paths), initiators) == (1, {path}, ["user", *["agent"] * 3])

    return Provider(
        f"copilot:{name}",
        lambda script: FakeCopilot(script, only_responses=["gpt-5.3-codex"]),
        lambda fake: fake.env,
        has_expected_requests,
        (GITHUB_TOKEN, "tid="),
    )


def gemini(model: str) -> Provider:
    return Provider(
        model,
        FakeGemini,
        lambda fake: {
            "GEMINI_API_KEY": KEY,
            "GEMINI_BASE_URL": fake.base_url,
            "GOOGLE_ACCESS_TOKEN": KEY,
            "GOOGLE_CLOUD_PROJECT": "p",
            "GOOGLE_VERTEX_BASE_URL": fake.base_url,
        },
    )


PROVIDERS = {
    "openai": Provider(
        "openai:gpt-4.1", FakeOpenAI, lambda fake: {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": fake.base_url}
    ),
    "compatible": Provider(
        "openrouter:z-ai/glm-5.2",
        FakeOpenAI,
        lambda fake: {"OPENROUTER_API_KEY": KEY, "OPENROUTER_BASE_URL": fake.base_url},
        lambda fake: {request["model"] for request in fake.requests} == {"z-ai/glm-5.2"},
    ),
    "responses": Provider(
        "openai-responses:gpt-5", FakeResponses, lambda fake: {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": fake.base_url}
    ),
    "anthropic": Provider(
        "anthropic:claude-opus-5-5",
        FakeAnthropic,
        lambda fake: {"ANTHROPIC_API_KEY": KEY, "ANTHROPIC_BASE_URL": fake.base_url},
    ),
    "gemini": gemini("gemini:gemini-3.8-flash"),
    "gemini-2.5": gemini("gemini:gemini-2.5-pro"),
    "vertex": gemini("vertex:gemini-3.8-flash"),
    "ollama": Provider(
        "ollama:qwen3:8b",
        FakeOllama,
        lambda fake: {"OLLAMA_HOST": fake.url.removeprefix("http://")},
        lambda fake: fake.shown_models == ["qwen3:8b"],
    ),
    "copilot": copilot("gpt-4.1", "/chat/completions"),
    "copilot-responses": copilot("gpt-5.3-codex", "/responses"),
}


def thoughts_in_messages(fake: Fake, thoughts: list[str]) -> bool:
    blocks = [block for message in fake.requests[-1]["messages"] for block in message["content"]]
    return [block["thinking"] for block in blocks if block["type"] == "thinking"] == thoughts


def thoughts_in_items(fake: Fake, thoughts: list[str]) -> bool:
    items = [item for item in fake.requests[-1]["input"] if item["type"] == "reasoning"]
    return ["\n\n".join(part["text"] for part in item["summary"]) for item in items] == thoughts


def signatures(fake: Fake) -> list[str]:
    """The signatures of the calls that went back to Gemini."""
    parts = [part for content in fake.requests[-1]["contents"] for part in content["parts"]]
    return [part["thoughtSignature"] for part in parts if "functionCall" in part]


def has_signed_thoughts(fake: Fake, thoughts: list[str]) -> bool:
    return len(set(signatures(fake)) - {STAND_IN}) == len(thoughts)


def beside_calls(fake: Fake, thoughts: list[str]) -> bool:
    """Thinking goes back to Ollama with the calls; every result names its tool."""
    messages = fake.requests[-1]["messages"]
    tool_names = [message["tool_name"] for message in messages if message["role"] == "tool"]
    returned = [message["thinking"] for message in messages if message.get("tool_calls")]
    return tool_names == ["read_file", "write_file", "run_command"] and returned == thoughts


RETURNED: dict[str, Callable[[Fake, list[str]], bool]] = {
    "responses": thoughts_in_items,
    "anthropic": thoughts_in_messages,
    "gemini": has_signed_thoughts,
    "ollama": beside_calls,
}
"""Checks that the thinking of earlier turns went back in the form that the provider wants (M-10)."""
