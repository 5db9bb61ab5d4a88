"""Chats of this process: the connection to an Agent. Loaded only when the screen is there already."""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import to_builtins
from msgspec.structs import replace

from treadle.adapters.models.keys import store_key, store_server
from treadle.adapters.models.registry import ModelRegistry
from treadle.adapters.policy.trust import render_disclosure
from treadle.base.types import ChatId
from treadle.diff.changes import drop_parents, sort_out
from treadle.diff.diff import FileDiff
from treadle.frontends.tui.connection import (
    ChatLink,
    ChatRow,
    ModelRow,
    OpenQuestion,
    Outcome,
    make_outcome,
    preview_lines,
)
from treadle.frontends.tui.desktop import read_picture
from treadle.library.agent import Agent
from treadle.library.chat import Chat
from treadle.library.feeds import Feeds
from treadle.library.files import RunSpan
from treadle.library.message_expansion import expand_message, list_commands, list_resources
from treadle.library.model_choice import ModelChoice, check_key, find_server, list_models
from treadle.library.searching import search_chats
from treadle.library.transfer import fork_chat
from treadle.ports.store import ChatFilter, Listed, Store
from treadle.protocol import commands as c
from treadle.protocol import wire
from treadle.protocol.content import Image
from treadle.protocol.events import Delivery, Envelope, Restored
from treadle.protocol.http_answers import RuleView
from treadle.protocol.options import ChatOptions, Project
from treadle.protocol.views import get_shown_status

if TYPE_CHECKING:
    from treadle.library.skills.reading import CustomAgent, OwnCommand
    from treadle.library.worlds.worlds import Worlds

PAGE = 1_000
TAIL = 200
"""Events at the end of the log that a reader of live text must have seen: which calls are under way stands there."""
WATCH_S = 60.0
BACKLOG = 10_000
Find = Callable[[Store, str], Awaitable[ChatId]]


class EmbeddedChat(ChatLink):
    def __init__(self, agent: Agent, feeds: Feeds, chat: Chat) -> None:
        self._agent = agent
        self._feeds = feeds
        self.chat: Chat = chat

    async def stream_events(self, after_seq: int = 0) -> AsyncIterator[Sequence[Envelope]]:
        """A long log in large pages, decoded beside the screen; its end and what follows as any reader gets it."""
        store, chat = self._agent.deps.store, self.chat
        state = await chat.state()

        def decode(records: Sequence[wire.Record]) -> list[Envelope]:
            return [wire.decode(chat.id, each) for each in records]

        while after_seq < state.head - TAIL:
            records = await store.read(chat.id, after_seq, min(PAGE, state.head - TAIL - after_seq))
            if not records:
                break
            after_seq = records[-1].seq
            yield await asyncio.to_thread(decode, records)
        turn = state.open_turn.turn if state.open_turn is not None else 0
        async with self._feeds.open_reader(chat.id, after_seq, turn) as reader:
            async for batch in self._feeds.stream_batches(reader, WATCH_S):
                if batch:
                    yield batch

    async def send(self, text: str, delivery: Delivery = "queued", images: Sequence[str] = ()) -> None:
        pictures = []
        for path in images:
            kind, data = await asyncio.to_thread(read_picture, path)
            pictures.append(Image(kind, await self._agent.deps.store.put_blob(data)))
        options = (await self.chat.state()).options
        self._agent.remember_model(options.model)
        text, attached = await expand_message(self._agent, options, text)
        await self.chat.send(text, delivery=delivery, images=[*pictures, *attached])

    async def go_on(self) -> bool:
        if await self.chat.status() != "pending":
            return False
        await self.chat.carry_out(None)
        return True

    async def list_questions_below(self) -> Sequence[OpenQuestion]:
        rows = [row for row in await self.chat.children() if row.waits]
        actions = [(row, action) for row in rows for action in await self.chat.get_chat(row.chat).actions()]
        return [OpenQuestion(action, row.chat, row.title, below=True) for row, action in actions if action.of_person]

    async def change(self, **options: Any) -> None:
        await self.chat.change(**options)
        if options.get("model"):
            self._agent.remember_model(options["model"])

    async def list_file_diffs(self, *, everything: bool = False) -> Sequence[FileDiff]:
        files = self.chat.files
        file_diffs = await files.diff(RunSpan() if everything else await files.last_run())
        reported = sort_out(each.change for each in file_diffs).reported_files
        visible_paths = {each.path for each in drop_parents(reported)}
        return [each for each in file_diffs if each.change.path in visible_paths]

    async def undo(
        self, paths: Sequence[str] = (), hunks: Mapping[str, Sequence[int]] | None = None, *, everything: bool = False
    ) -> Outcome:
        span = RunSpan() if everything else None
        return _convert_restored(await self.chat.files.undo(span, paths, hunks=hunks or {}))

    async def redo(self) -> Outcome:
        return _convert_restored(await self.chat.files.redo())

    async def keep(self, paths: Sequence[str] = (), hunks: Mapping[str, Sequence[int]] | None = None) -> Outcome:
        return _convert_restored(await self.chat.files.keep(None, paths, hunks))

    async def preview_back(self, message: int) -> Sequence[str]:
        return preview_lines(await self.chat.files.preview(RunSpan(message - 1)))

    async def go_back_to(self, message: int, *, conversation: bool, files: bool) -> Outcome:
        undone = await self.chat.files.back_to(message, conversation=conversation, files=files)
        return Outcome(0) if undone is None else _convert_restored(undone)


class Embedded:
    """`options`: the options of a new chat. `find`: finds a chat by the text that a person types for it."""

    place = "this process"
    stays = False  # true if a run goes on when the app is left
    away = False  # true if the server cannot be reached at the moment
    takes_keys = True  # true if keys and addresses can be entered here

    def __init__(self, agent: Agent, options: ChatOptions, find: Find, registry: ModelRegistry | None = None) -> None:
        self.agent = agent
        self.initial = options
        self._find = find
        self._registry = registry
        self._feeds = Feeds(agent.deps, BACKLOG, agent.worker.is_holding)

    @property
    def worlds(self) -> "Worlds":
        return self.agent.worlds

    def _make_link(self, chat: Chat) -> EmbeddedChat:
        return EmbeddedChat(self.agent, self._feeds, chat)

    async def find_default_model(self) -> ModelChoice | None:
        """The model of a chat that names none, and why; None: a person must choose."""
        return ModelChoice(self.initial.model, "") if self.initial.model else await self.agent.choose_model()

    async def create(self, **options: Any) -> EmbeddedChat:
        model = options.get("model") or self.initial.model
        self.agent.deps.models.get(model)
        self.agent.remember_model(model)
        return self._make_link(await self.agent.chat(options=self.initial, interactive=True, **options).open())

    async def open(self, id: str) -> EmbeddedChat:
        """By its id, the beginning of it, or `last`; NotFound."""
        return self._make_link(self.agent.chat(await self._find(self.agent.deps.store, id)))

    async def fork(self, id: str, seq: int) -> EmbeddedChat:
        store = self.agent.deps.store
        copy = await fork_chat(store, ChatId(id), seq or await store.read_head(ChatId(id)), {"interactive": True})
        return self._make_link(self.agent.chat(copy))

    async def list_chat_rows(self, query: str = "", *, archived: bool = False, limit: int = 200) -> Sequence[ChatRow]:
        store, chat_filter = self.agent.deps.store, ChatFilter(archived=archived)
        if not query.strip():
            return [_make_chat_row(each) for each in await store.list(chat_filter, limit=limit)]
        rows: list[ChatRow] = []
        async for hit in search_chats(store, chat_filter, query):
            rows.append(_make_chat_row(hit.listed, hit.text))
            if len(rows) == limit:
                break
        return rows

    async def list_model_rows(self) -> Sequence[ModelRow]:
        registry = self._registry or ModelRegistry(os.environ, home=self.agent.home)
        return [
            ModelRow(info.ref, info.window, why, info.vision, place, info.offered_efforts)
            for info, why, place in await list_models(registry, os.environ)
        ]

    async def store_key(self, provider: str, variable: str, key: str) -> str:
        """Keep a key for later runs, unless the provider refuses it; returns the place in words."""
        await check_key(provider, variable, key)
        return await asyncio.to_thread(store_key, self.agent.home, variable, key)

    async def add_server(self, url: str, key: str) -> int:
        """Keep the address of a server whose models are `custom:NAME`; returns how many it has."""
        address, models = await find_server(url, key)
        await asyncio.to_thread(store_server, self.agent.home, address, key)
        return len(models)

    async def list_own_commands(self, root: str, chat: str = "") -> "Mapping[str, OwnCommand]":
        """Prompts under a name: the user's, the project's trusted ones, those of MCP servers; of a chat or the next."""
        return await list_commands(self.agent, await self._load_options(root, chat))

    async def list_resource_names(self, root: str, chat: str = "") -> Sequence[str]:
        """The resources that can be attached as `@server:uri`, without the @; likewise."""
        return [each.typed[1:] for each in await list_resources(self.agent, await self._load_options(root, chat))]

    async def _load_options(self, root: str, chat: str) -> ChatOptions:
        return (await self.agent.deps.log.load(ChatId(chat))).options if chat else replace(self.initial, root=root)

    async def list_custom_agents(self, root: str) -> "Mapping[str, CustomAgent]":
        return await asyncio.to_thread(self.agent.custom_agents, Project(root))

    async def read_rules(self, chat: str = "") -> Sequence[RuleView]:
        book = self.agent.rules
        of_chat = (await self.agent.deps.log.load(ChatId(chat))).options.rules if chat else ()

        def read() -> list[RuleView]:
            rules = [*((rule, "") for rule in book.list_readable()[0]), *((rule, chat) for rule in of_chat)]
            return [RuleView(rule=rule, chat=of, used_ms=book.read_last_use_ms(rule.id)) for rule, of in rules]

        return await asyncio.to_thread(read)

    async def revoke(self, rule: RuleView) -> None:
        if not rule.chat:
            await asyncio.to_thread(self.agent.rules.revoke, rule.rule.id)
            return
        rules = (await self.agent.deps.log.load(ChatId(rule.chat))).options.rules
        remaining_rules = [to_builtins(each) for each in rules if each.id != rule.rule.id]
        await self.agent.chat(rule.chat).command(c.ChangeOptions({"rules": remaining_rules}))
        self.agent.rules.forget_use(rule.rule.id)

    async def get_disclosure(self, model: str) -> str:
        """The notice that the user must see before this model is used; empty if there is none (S-10)."""
        missing_consent = self.agent.consent.find_unknown_recipient(model)
        return render_disclosure(missing_consent) if missing_consent else ""

    async def record_consent(self, model: str) -> None:
        await asyncio.to_thread(self.agent.consent.disclose, model)

    async def close(self) -> None:
        """End all subscriptions. The code that opened the agent closes it."""
        self._feeds.end()


def _make_chat_row(listed: Listed, excerpt: str = "") -> ChatRow:
    line = listed.summary
    return ChatRow(
        line.chat, line.title, get_shown_status(line.status, listed.leased), line.root, line.model, line.updated_ms,
        line.archived, line.head, line.parent.partition("/")[0], excerpt,
    )  # fmt: skip


def _convert_restored(restored: Restored) -> Outcome:
    return make_outcome(restored, len(restored.files))
