"""A hand loop on the openai SDK. It has no store of its own; a durable chat is a JSON file, written when a run ends."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from harness import Setting, done, main
from openai import AsyncOpenAI

TOOLS: list[Any] = [
    {
        "type": "function",
        "function": {
            "name": "noop",
            "description": "Do nothing.",
            "parameters": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]},
        },
    }
]


class OpenAIChat:
    def __init__(self, client: AsyncOpenAI, model: str, path: Path | None) -> None:
        self._client = client
        self._model = model
        self._path = path
        self._messages: list[Any] = json.loads(path.read_bytes()) if path and path.exists() else []

    async def send(self, text: str) -> AsyncIterator[str]:
        self._messages.append({"role": "user", "content": text})
        while True:
            texts: list[str] = []
            calls: list[dict[str, Any]] = []
            async for piece in self._turn(calls):
                texts.append(piece)
                yield piece
            message: dict[str, Any] = {"role": "assistant", "content": "".join(texts)}
            self._messages.append(message)
            if not calls:
                break
            message["tool_calls"] = calls
            for call in calls:
                result = done(**json.loads(call["function"]["arguments"]))
                self._messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
        if self._path:
            self._path.write_text(json.dumps(self._messages, separators=(",", ":")))

    async def _turn(self, calls: list[dict[str, Any]]) -> AsyncIterator[str]:
        stream = await self._client.chat.completions.create(
            model=self._model, messages=self._messages, tools=TOOLS, stream=True
        )
        async for chunk in stream:
            for choice in chunk.choices:
                if choice.delta.content:
                    yield choice.delta.content
                for part in choice.delta.tool_calls or ():
                    if part.id:
                        function = {"name": part.function.name, "arguments": ""}
                        calls.append({"id": part.id, "type": "function", "function": function})
                    calls[part.index]["function"]["arguments"] += part.function.arguments or ""


class OpenAIContestant:
    def __init__(self, setting: Setting) -> None:
        self._client = AsyncOpenAI(base_url=setting.url, api_key="none", max_retries=0, timeout=600)
        self._folder = setting.folder if setting.durable else None

    async def chat(self, model: str, name: str) -> OpenAIChat:
        return OpenAIChat(self._client, model, self._folder / f"{name}.json" if self._folder else None)

    async def close(self) -> None:
        await self._client.close()


async def make(setting: Setting) -> OpenAIContestant:
    return OpenAIContestant(setting)


if __name__ == "__main__":
    main(make)
