"""A server that counts the output limit against its window, as many do: the requested limit fits the remaining window,
in turns and in the calls that shorten a conversation (L-19)."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest

from treadle import Agent, tool
from treadle.adapters.models.openai_chat.adapter import OpenAIChat
from treadle.adapters.stores.memory import MemoryStore
from treadle.base.types import JsonObject
from treadle.ports.model import ModelInfo
from treadle.protocol import events as e
from treadle.testing.fake_openai import FakeOpenAI, Reply

WINDOW = 8_192
TURNS = 39


class Strict:
    """Refuses what would not fit its window; calls a tool as often as there are turns, then answers."""

    def __init__(self) -> None:
        self.refused = 0
        self.turns = 0
        self.shortened: list[JsonObject] = []

    def __call__(self, request: JsonObject) -> Reply:
        token_count = len(msgspec.json.encode([request["messages"], request.get("tools", [])])) // 4
        limit = request["max_tokens"]
        if token_count + limit > WINDOW:
            self.refused += 1
            message = (
                f"This model's maximum context length is {WINDOW} tokens. However, you requested "
                f"{token_count + limit} tokens "
                f"({token_count} in the messages, {limit} in the completion)."
            )
            return Reply(status=400, error={"message": message, "code": "context_length_exceeded"})
        if not request.get("tools"):
            self.shortened.append(request)
            return Reply(text="Much was read.", usage=(token_count, 5))
        self.turns += 1
        calls = [("read_note", {"number": self.turns})] if self.turns <= TURNS else []
        return Reply(text="" if calls else "All read.", calls=calls, usage=(token_count, 20))


@tool(read_only=True)
def read_note(number: int) -> str:
    """Read a note."""
    return f"Note {number}: " + "some words of it. " * 30


@asynccontextmanager
async def strict_chat(**options: int) -> AsyncIterator[tuple[Strict, Agent]]:
    server = Strict()
    with FakeOpenAI(server) as fake:
        model = OpenAIChat(ModelInfo("openai", "small", window=WINDOW, max_output=WINDOW), base_url=fake.base_url)
        async with Agent(MemoryStore(), model=model, tools=[read_note], builtin=False, retry_base_s=0.0001) as agent:
            yield server, agent


@pytest.mark.parametrize("max_tokens", [0, WINDOW, 6_000])
async def test_the_output_limit_fits_what_is_left_of_the_window(max_tokens: int) -> None:
    """Before, nearly every turn began with a refusal and a compaction that did not help."""
    async with strict_chat() as (server, agent):
        chat = agent.chat(max_turns=TURNS + 5, max_tokens=max_tokens)
        news = [envelope.data async for envelope in chat.send("Read all notes.")]
        triggers = [event.trigger for event in news if isinstance(event, e.CompactionStart)]
        assert "context_limit" not in triggers
        assert server.refused == 0
        assert server.turns == TURNS + 1
        assert "threshold" in triggers
        assert len(server.shortened) >= 1
        completions = [event for event in news if isinstance(event, e.CompactionComplete)]
        assert [event.success for event in completions] == [True] * len(triggers)
        assert news[-1] == e.SessionIdle("done")
