"""Shared by all scenes: a place for chats, tools, and short ways to follow a chat. Each scene makes one chat with the
real engine and a scripted model, and returns its id."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from treadle import Agent
from treadle.adapters.models.scripted import Delay, ScriptedModel
from treadle.adapters.tools.function import tool
from treadle.base.types import ChatId
from treadle.library.chat import Chat
from treadle.library.command_stream import CommandStream
from treadle.ports.model import Model, ModelInfo
from treadle.ports.store import Store
from treadle.protocol.events import Envelope
from treadle.protocol.options import ChatOptions
from treadle.protocol.tools import DynamicTool

PRICED = ModelInfo("scripted", "priced", window=200_000, usd_per_million_input=3.0, usd_per_million_output=15.0)


@tool(read_only=True)
def look(what: str) -> str:
    """Look at something."""
    return f"{what} looks fine\nand more"


@tool(read_only=True)
async def peek(what: str, wait: float = 0.0) -> str:
    """Look at something that takes its time."""
    await asyncio.sleep(wait)
    return f"{what} was seen"


@tool
def change(what: str, times: int = 1) -> str:
    """Change something."""
    return f"{what} changed {times} times"


@tool(needs_approval=True)
def launch(target: str) -> str:
    """Launch something."""
    return f"launched {target}"


@tool
def stumble() -> str:
    """Fail."""
    raise RuntimeError("out of luck")


@tool
async def linger() -> str:
    """Never end."""
    await asyncio.Event().wait()
    return "never"


CLIENT = DynamicTool("ask_client", "Asks the client.", {"type": "object", "properties": {"q": {"type": "string"}}})
TOOLS = (look, peek, change, launch, stumble, linger)
Scene = Callable[["World"], Awaitable[ChatId]]
SCENES: dict[str, Scene] = {}


class World:
    """A store and a folder in which chats are made."""

    def __init__(self, store: Store, root: Path) -> None:
        self.store = store
        self.root = root

    def agent(self, model: Model | None = None, **settings: Any) -> Agent:
        settings.setdefault("retry_base_s", 0.0)
        return Agent(self.store, model=model, tools=TOOLS, **settings)

    def options(self, **changes: Any) -> ChatOptions:
        return ChatOptions(**{"root": str(self.root), **changes})


class ModelHold:
    """Holds a scripted model at its first Delay, and tells when it is there."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()

    async def hold(self, _seconds: float) -> None:
        self.reached.set()
        await asyncio.Event().wait()


HOLD = Delay(0.0)


def scene(function: Scene) -> Scene:
    SCENES[function.__name__] = function
    return function


async def watch(following: CommandStream, until: Callable[[Envelope], bool] = lambda _event: False) -> None:
    """Follow a chat to its rest, or to the first event that is meant."""
    async for envelope in following:
        if until(envelope):
            return


async def finish(agent: Agent) -> None:
    """Stop the agent but keep its store."""
    await agent.worker.close()


async def ask(world: World, model: ScriptedModel, *messages: str, **options: Any) -> ChatId:
    """One chat, one message after the other."""
    agent = world.agent(model)
    chat = agent.chat(options=world.options(**options))
    for message in messages:
        await watch(chat.send(message))
    model.assert_done()
    await finish(agent)
    return chat.id


def is_kind(kind: type) -> Callable[[Envelope], bool]:
    return lambda envelope: isinstance(envelope.data, kind)


async def idle(chat: Chat) -> None:
    """Wait until the chat has come to rest after work that no reader followed."""
    await watch(chat.resume())
