"""pydantic-ai, used as its documentation shows. It has no store of its own; a durable chat is its own JSON of the
messages, written at the end of a run."""

from collections.abc import AsyncIterator
from pathlib import Path

from harness import Setting, main, noop
from openai import AsyncOpenAI
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.usage import UsageLimits

NO_LIMITS = UsageLimits(request_limit=None)


class PydanticChat:
    def __init__(self, agent: Agent[None, str], path: Path | None) -> None:
        self._agent = agent
        self._path = path
        stored = path.read_bytes() if path and path.exists() else b"[]"
        self._messages: list[ModelMessage] = ModelMessagesTypeAdapter.validate_json(stored)

    async def send(self, text: str) -> AsyncIterator[str]:
        async with self._agent.run_stream(text, message_history=self._messages, usage_limits=NO_LIMITS) as result:
            async for piece in result.stream_text(delta=True, debounce_by=None):
                yield piece
        self._messages = result.all_messages()
        if self._path:
            self._path.write_bytes(ModelMessagesTypeAdapter.dump_json(self._messages))


class PydanticContestant:
    def __init__(self, setting: Setting) -> None:
        self._client = AsyncOpenAI(base_url=setting.url, api_key="none", max_retries=0, timeout=600)
        self._provider = OpenAIProvider(openai_client=self._client)
        self._folder = setting.folder if setting.durable else None
        self._agents: dict[str, Agent[None, str]] = {}

    async def chat(self, model: str, name: str) -> PydanticChat:
        if model not in self._agents:
            agent = self._agents[model] = Agent(OpenAIChatModel(model, provider=self._provider))
            agent.tool_plain(noop)
        return PydanticChat(self._agents[model], self._folder / f"{name}.json" if self._folder else None)

    async def close(self) -> None:
        await self._client.close()


async def make(setting: Setting) -> PydanticContestant:
    return PydanticContestant(setting)


if __name__ == "__main__":
    main(make)
