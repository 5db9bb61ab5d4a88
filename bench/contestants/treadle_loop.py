"""Treadle as a library: every event of a run is delivered; durable chats are in SQLite, others in memory. The tool
counts as one with effects, so that its intent and its outcome are committed."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

from harness import Setting, main, noop

from treadle import Agent, Chat, ChatOptions, tool
from treadle.adapters.stores.sqlite import SqliteStore
from treadle.protocol.events import MessageDelta, SessionError

OPTIONS = ChatOptions(max_turns=10_000, context_window=1_000_000, system_prompt="You are a benchmark.")


class TreadleChat:
    def __init__(self, chat: Chat) -> None:
        self._chat = chat

    async def send(self, text: str) -> AsyncIterator[str]:
        async for event in self._chat.send(text):
            if isinstance(event.data, MessageDelta):
                yield event.data.text
            elif isinstance(event.data, SessionError):
                raise SystemExit(event.data.message)


class TreadleContestant:
    def __init__(self, setting: Setting) -> None:
        self._folder = setting.folder
        self._durable = setting.durable
        self._agent = Agent(
            setting.folder / "treadle.db" if setting.durable else None,
            tools=[tool(noop)],
            builtin=False,
            options=OPTIONS,
            env={**os.environ, "OPENAI_BASE_URL": setting.url, "OPENAI_API_KEY": ""},
        )

    async def chat(self, model: str, name: str) -> TreadleChat:
        kept = self._kept(name)
        if kept.exists():
            return TreadleChat(await self._agent.chat(kept.read_text()))
        chat = await self._agent.chat(model=f"openai:{model}")
        if self._durable:
            kept.write_text(chat.id)
        return TreadleChat(chat)

    def _kept(self, name: str) -> Path:
        """Where this program remembers a chat's id, which is all that it must."""
        return self._folder / f"{name}.id"

    def commits(self) -> int:
        store = self._agent.deps.store
        return store._writer.commits if isinstance(store, SqliteStore) else 0

    async def close(self) -> None:
        await self._agent.close()


async def make(setting: Setting) -> TreadleContestant:
    return TreadleContestant(setting)


if __name__ == "__main__":
    main(make)
