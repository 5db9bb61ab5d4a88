"""Helpers for the scenarios with MCP servers."""

import asyncio
import sys
from pathlib import Path
from typing import Any

from treadle import Agent, Chat, Envelope
from treadle.adapters.models.scripted import ScriptedModel, Step
from treadle.adapters.stores.sqlite import SqliteStore
from treadle.library.command_stream import CommandStream
from treadle.library.replay import replay
from treadle.ports.model import Model
from treadle.protocol.events import ActionRequired, ExecutionComplete
from treadle.testing.checker import check

ODD = str(Path(__file__).with_name("odd_server.py"))
PATIENCE_S = 60


class Kit:
    """Agents on one database, with a server that behaves badly when asked to."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.root = folder / "project"
        self.notes = folder / "notes"
        self.home.mkdir()
        self.root.mkdir()
        self.agents: list[Agent] = []
        self.replayed = True

    @property
    def odd(self) -> dict[str, Any]:
        return {"command": sys.executable, "args": ["-S", ODD, str(self.notes)]}

    def agent(self, steps: list[Step] | Model, mcp: Any = None, **settings: Any) -> Agent:
        model = steps if not isinstance(steps, list) else ScriptedModel(steps)
        servers = {"odd": self.odd} if mcp is None else mcp
        store = SqliteStore(self.folder / "treadle.db")
        new_agent = Agent(store, model=model, home=self.home, mcp=servers, retry_base_s=0.0, **settings)
        self.agents.append(new_agent)
        return new_agent

    def chat(self, agent: Agent, **options: Any) -> Chat:
        return agent.chat(root=self.root, **{"mode": "autopilot", "max_continuations": 0} | options)

    @property
    def note_lines(self) -> list[str]:
        """The notes that the server's tools wrote, in order."""
        return self.notes.read_text().split("\n")[:-1] if self.notes.exists() else []

    def describe_note(self, text: str) -> None:
        """Set the description of the tool `note` from the server's next start on."""
        Path(f"{self.notes}.description").write_text(text)

    async def close(self) -> None:
        """In every case the logs are sound, and can be driven again (D-07)."""
        for agent in self.agents:
            await agent.close()
        store = SqliteStore(self.folder / "treadle.db")
        for listed in await store.list():
            chat = listed.summary.chat
            assert await check(store, chat, is_idle=False) == []
            if self.replayed:
                result = await replay(store, chat)
                assert result.divergence is None, result.divergence.text
        await store.close()


async def collect_events(following: CommandStream) -> list[Envelope]:
    async with asyncio.timeout(PATIENCE_S):
        return [envelope async for envelope in following]


def results(events: list[Envelope]) -> list[ExecutionComplete]:
    return [envelope.data for envelope in events if isinstance(envelope.data, ExecutionComplete)]


def action(events: list[Envelope]) -> Any:
    """The action that the chat waits for."""
    return next(envelope.data for envelope in events if isinstance(envelope.data, ActionRequired)).actions[0]
