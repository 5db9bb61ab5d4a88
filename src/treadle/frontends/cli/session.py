"""Functions that the commands share: settings, an agent on the user's database, finding a chat by the text that a
person types, and the folder that a run works in."""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from gc import freeze
from typing import Any, TypeVar

from treadle.adapters.models.registry import ModelRegistry
from treadle.adapters.stores import open_store
from treadle.base.inert import make_inert_line, print_note
from treadle.base.logs import make_last_resort_inert
from treadle.base.types import ChatId
from treadle.errors import InvalidInput, NotFound, StoreError, suggest_name
from treadle.frontends.cli.options import LAST
from treadle.library.agent import Agent
from treadle.library.chat import Chat
from treadle.library.config import OTEL_VARIABLES, Config, load
from treadle.ports.hooks import Hooks
from treadle.ports.store import ChatFilter, Store

T = TypeVar("T")
_AGENT_SETTINGS = (
    *("allowance", "answer_s", "extensions", "instructions"),
    *("retry_base_s", "retry_limit_s", "silence_s", "skills"),
)


def load_config(flags: Mapping[str, Any] | None = None) -> Config:
    """Return the settings in force, and print warnings about their sources."""
    config = load(flags=flags)
    warn(config.warnings)
    return config


def warn(warnings: Iterable[str]) -> None:
    for warning in warnings:
        print_note(f"treadle: {make_inert_line(warning)}")


@asynccontextmanager
async def open_agent(
    config: Config,
    *,
    works: bool = False,
    mcp: bool = True,
    concurrency: int = 0,
    relays: bool = False,
    hooks: Sequence[Hooks] = (),
    stays: bool = False,
) -> AsyncIterator[Agent]:
    """An agent for the length of a command: with plugins if it `works`, with titles if it `stays` beyond a run."""
    make_last_resort_inert()
    freeze()  # modules loaded so far are never garbage, and scanning them takes long
    home, settings = config.home, config.settings
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)  # at first use, for its owner alone
    except OSError as error:
        problem = f"cannot be made: {error.strerror}; choose another with TREADLE_HOME"
        raise StoreError(f"Treadle's home {home} {problem}") from error
    if works and not os.access(home, os.W_OK):
        problem = "is read-only: chats can be read, but not worked on; allow writing, or choose another"
        raise StoreError(f"Treadle's home {home} {problem} with TREADLE_HOME")
    telemetry: Any = False
    if settings.otel_endpoint or any(map(os.environ.get, OTEL_VARIABLES)):
        from treadle.adapters.telemetry.settings import Telemetry

        # We report the important errors ourselves, once.
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
        telemetry = Telemetry(settings.otel_endpoint, settings.otel_protocol, settings.otel_content)
    models = ModelRegistry(os.environ, home=home)
    if works:
        warn(models.catalogue.warnings)
    if works and config.hooks:
        from treadle.adapters.tools.hooks import CommandHooks

        hooks = [*hooks, CommandHooks(config.hooks, os.environ)]
    agent = Agent(
        open_store(config.store, lease_s=settings.lease_s),
        models=models,
        plugins=works,
        mcp=works and settings.mcp and mcp,
        hooks=hooks,
        home=home,
        accepted=settings.consent,
        renew_s=settings.lease_s / 3,
        concurrency=concurrency,
        relays=relays,
        telemetry=telemetry,
        titles=settings.titles if stays else "off",
        **{name: getattr(settings, name) for name in _AGENT_SETTINGS},
    )
    if works:
        agent.rules.list_rules()  # a worker must not find out in the middle of a run that they are damaged
    warn(agent.warnings)
    async with agent:
        yield agent


async def select_model(agent: Agent, config: Config) -> str:
    """The model of a new chat: the one that is set, else one that can be used here. A line on standard error says which
    it is and why, unless a flag named it (U-10)."""
    model, source = config.settings.model, config.sources["model"]
    if not model:
        model, source = await agent.require_model()
    elif source.startswith("flag "):
        return model
    else:
        source = f"set in {source.partition(' ')[2]}"
    print_note(f"treadle: using {make_inert_line(model)} ({make_inert_line(source)}); choose another with --model")
    return model


def run_with_agent(work: Callable[[Agent], Awaitable[T]], *, works: bool = False) -> T:
    async def run() -> T:
        async with open_agent(load_config(), works=works) as agent:
            return await work(agent)

    return asyncio.run(run())


async def open_chat(agent: Agent, chat_ref: str) -> Chat:
    return agent.chat(await find_chat(agent.deps.store, chat_ref))


async def find_chat(store: Store, chat_ref: str) -> ChatId:
    """The chat that a person means: its id, a part of the beginning of it that no other has, or `last`."""
    if not chat_ref:
        raise InvalidInput("name a chat: its id, the beginning of it, or `last`")
    if chat_ref == LAST:
        newest = await store.list(limit=1)
        if not newest:
            raise NotFound("there is no chat yet; begin one with: treadle run PROMPT")
        return newest[0].summary.chat
    ids = [listed.summary.chat for listed in await store.list(ChatFilter(query=chat_ref))]
    if chat_ref in ids:
        return ChatId(chat_ref)
    matches = [chat for chat in ids if chat.startswith(chat_ref) or chat.startswith(f"c_{chat_ref}")]
    if not matches:
        known_ids = [listed.summary.chat for listed in await store.list(limit=1000)]
        suggestion = suggest_name(chat_ref if chat_ref.startswith("c_") else f"c_{chat_ref}", [LAST, *known_ids])
        raise NotFound(f"there is no chat {chat_ref!r}{suggestion or ';'} see them with: treadle chats")
    if len(matches) > 1:
        examples = ", ".join(matches[:5]) + (" …" if len(matches) > 5 else "")
        raise InvalidInput(f"{chat_ref!r} is the beginning of {len(matches)} chats ({examples}); type more of it")
    return matches[0]
