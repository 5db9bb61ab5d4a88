"""The service behind the routes: the agent whose chats they serve, who may see which, and the execution of commands.
Knows nothing of HTTP but the answers that are remembered."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any
from weakref import WeakValueDictionary

import msgspec

from treadle.base.types import ChatId, new_chat_id
from treadle.chat.state import ChatState, status, summary
from treadle.engine.log import Take
from treadle.engine.worker import Worker
from treadle.errors import AlreadyAnswered, NotFound, TreadleError
from treadle.frontends.server.admission import Admission
from treadle.frontends.server.chat_counts import ChatCounts
from treadle.frontends.server.idempotency import Key, first_answer
from treadle.frontends.server.metrics import Metrics
from treadle.frontends.server.problems import Problem
from treadle.frontends.server.render_process import Rendering
from treadle.frontends.server.replies import ApiReply, reply
from treadle.frontends.server.sign_in import SignIn
from treadle.frontends.server.sse import Frames
from treadle.frontends.server.tokens import LOCAL, Tokens, digest, owner_of, user_of
from treadle.frontends.server.usage_history import UsageHistory
from treadle.frontends.server.views import chat_view
from treadle.library.agent import Agent
from treadle.library.feeds.fan_out import Feeds
from treadle.ports.store import Remembered
from treadle.ports.workspace import Workspace
from treadle.protocol import commands as c
from treadle.protocol.commands import Command
from treadle.protocol.events import SessionCreated
from treadle.protocol.options import ChatOptions, Project
from treadle.protocol.views import Status, shown_status

TICKETS = "(tickets)"
"""Whose answers used tickets are among; no user has such a name."""
_ID = re.compile(r"[A-Za-z0-9_.:-]{1,128}")

WORK = (c.Send, c.SubmitResults, c.Decide, c.Answer, c.Edit, c.Rewind, c.Restore, c.Promote, c.ExtendTurns, c.Apply)
"""Commands after which a chat works on its project."""

First = Callable[[ChatOptions], Awaitable[Sequence[Command]]]
"""Returns the first commands of a chat, given its final options."""
Answered = Callable[[ChatState], ApiReply]
"""The answer to a command, by what it made of the chat."""


class Limits(msgspec.Struct, frozen=True):
    """Limits per request, per reader and per user."""

    body: int = 256 * 1024
    large_body: int = 16 * 1024 * 1024
    """For results of tools and for images."""
    body_s: float = 30.0
    file: int = 16 * 1024 * 1024
    streams: int = 100
    """Open streams of one user."""
    heartbeat_s: float = 10.0
    backlog: int = 1_000
    """How many pieces of news are kept for a slow reader, before it is put back to the log."""


class Service:
    """`works` says whether the agent's worker takes up what is asked for here; else some other process does."""

    def __init__(
        self,
        agent: Agent,
        tokens: Tokens,
        admission: Admission | None = None,
        *,
        works: bool = True,
        limits: Limits | None = None,
        hosts: tuple[str, ...] = (),
        sign_in: SignIn | None = None,
    ) -> None:
        self.agent = agent
        self.tokens = tokens
        self.admission = admission or Admission(agent.options)
        self.limits = limits or Limits()
        self.hosts = hosts
        self.sign_in = sign_in or SignIn(tokens)
        self.rendering = Rendering()
        self.usage_history = UsageHistory(agent.deps.store)
        self.metrics = Metrics()
        self.worker: Worker | None = agent.worker if works else None
        self.frames = Frames()
        self.feeds = Feeds(agent.deps, self.limits.backlog, agent.worker.holds)
        self.chat_counts = ChatCounts(agent.deps.store)
        self._requests: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()
        """By key: the lock of a request that is being carried out."""
        self.openapi = b""
        """The description of the API; filled in by the application."""
        self.draining = asyncio.Event()
        """Set when the server is to end: streams end, and no new client is accepted."""

    async def default_model(self, user: str) -> str:
        """Return the model of a chat that names none: the one in the server's settings; without one, for the user of
        this machine, the choice that every front end makes (U-10). Empty: the request must name a model."""
        if self.admission.options.model or user != LOCAL:
            return self.admission.options.model
        choice = await self.agent.choose_model()
        return "" if choice is None else choice.model

    async def begin(self, user: str, changes: Mapping[str, Any]) -> ChatOptions:
        """The options of a new chat; its model is found if neither the request nor the server names one."""
        if "model" not in changes and not self.admission.options.model:
            changes = {**changes, "model": await self.default_model(user)}
        return self.admission.begin(user, changes)

    def remember_model(self, user: str, model: str) -> None:
        if user == LOCAL:
            self.agent.remember_model(model)

    # -- access of users ----------------------------------------------------------------------------------------------

    async def owned(self, user: str, id: str) -> ChatId:
        """Return the chat with this id. Another user's chat is reported like one that does not exist (S-13)."""
        chat = ChatId(id)
        if _ID.fullmatch(id):
            cached_state = self.agent.deps.log.peek(chat)
            try:
                owner = (
                    cached_state.owner
                    if cached_state is not None
                    else (await self.agent.deps.store.get(chat)).summary.owner
                )
            except NotFound:
                owner = None
            if owner == owner_of(user):
                return chat
        raise Problem("not_found", f"There is no chat {id[:128]!r}.")

    async def state(self, user: str, id: str) -> ChatState:
        return await self.agent.deps.log.load(await self.owned(user, id))

    async def project(self, state: ChatState) -> Project:
        """The project of a chat, for use now. RootChanged or InvalidInput if it is open to the chat's owner no more."""
        await asyncio.to_thread(self.admission.use, user_of(state.owner), state.options)
        return state.options.project

    async def require_work(self, state: ChatState, *, restores: bool = False) -> None:
        """RootChanged or InvalidInput if the chat may not go on with its project; putting files back is less."""
        await self.project(state)
        if not restores:
            self.admission.work(user_of(state.owner), state.options)

    async def workspace(self, state: ChatState) -> Workspace:
        """The files of a chat as it sees them, for use now."""
        return await asyncio.to_thread(self.agent.workspace_of, await self.project(state))

    async def get_shown_status(self, state: ChatState) -> Status:
        chat_status = status(state)
        return shown_status(
            chat_status, chat_status != "running" or (await self.agent.deps.store.get(state.chat)).leased
        )

    # -- commands -----------------------------------------------------------------------------------------------------

    async def create(
        self, user: str, options: ChatOptions, first: Sequence[Command] | First, key: Key | None
    ) -> ApiReply:
        """Begin a chat and say the first word in it, in one commit; the answer is the chat."""
        highest = self.admission.highest(user, options.root) if options.root else ""
        deps = self.agent.deps
        own_world = "" if key is None else key.own_id("world", deps.clock.now_ms())
        ready = await asyncio.to_thread(self.agent.prepare, options, highest, owner_of(user), own_world)
        if callable(first):
            try:
                first = await first(ready.options)
            except TreadleError:
                is_new_world = ready.options.world != options.world  # for this chat, unless the same request made one
                if is_new_world and (key is None or await first_answer(deps.store, key) is None):
                    with suppress(TreadleError):
                        await self.agent.worlds.drop(ready.options.world)
                raise

        def build_reply(state: ChatState) -> ApiReply:
            return reply(chat_view(state, status(state), ready.warnings), 201)

        state = await deps.log.create(
            new_chat_id(),
            SessionCreated(ready.options, owner_of(user)),
            *ready.notices,
            first=first,
            answer=None if key is None else key.answer(build_reply, deps.clock.now_ms()),
        )
        self.go_on(state)
        return build_reply(state)

    async def execute(
        self, chat: ChatId, commands: Sequence[Command], key: Key | None, make_reply: Answered
    ) -> tuple[ApiReply, ChatState]:
        """Record commands in one commit; a refusal changes nothing. A worker goes on with the chat."""
        deps = self.agent.deps
        answer = None if key is None else key.answer(make_reply, deps.clock.now_ms())
        if any(isinstance(command, WORK) for command in commands):
            restores = all(isinstance(command, c.Restore) for command in commands)
            await self.require_work(await deps.log.load(chat), restores=restores)
        with self._taking(chat) as take:
            state = await deps.log.execute(chat, commands, None, take, answer)
        self.go_on(state)
        return make_reply(state), state

    async def delete(self, user: str, id: str) -> None:
        """Delete a chat of this user. Repeated, it changes nothing."""
        if _ID.fullmatch(id):
            with suppress(NotFound):
                return await self.agent.delete_chat(id, owner=owner_of(user))
        raise Problem("not_found", f"There is no chat {id[:128]!r}.")

    def alone(self, key: Key) -> asyncio.Lock:
        """Of equal requests that come at once, one is carried out here, and the others get its answer."""
        return self._requests.setdefault((key.owner, key.key), asyncio.Lock())

    @contextmanager
    def _taking(self, chat: ChatId) -> Iterator[Take | None]:
        if self.worker is None:
            yield None
            return
        with self.worker.taking(chat) as take:
            yield take

    def go_on(self, state: ChatState) -> None:
        if self.worker is not None and summary(state).runnable:
            self.worker.start(state.chat)

    # -- tickets ------------------------------------------------------------------------------------------------------

    async def spend(self, ticket: str) -> bool:
        """Use a ticket up, for all servers of the store; False if it was used before."""
        store, clock = self.agent.deps.store, self.agent.deps.clock
        try:
            await store.remember(Remembered(TICKETS, digest(ticket), "", 0, b"", clock.now_ms()))
        except AlreadyAnswered:
            return False
        return True

    # -- streams ------------------------------------------------------------------------------------------------------

    @contextmanager
    def streaming(self, user: str) -> Iterator[None]:
        """Counts a stream of the user while it is open."""
        if self.draining.is_set():
            raise Problem("draining", "The server is shutting down; connect again.", {"retry-after": "1"})
        if self.metrics.streams[user] >= self.limits.streams:
            raise Problem("too_many_streams", f"{self.limits.streams} streams of yours are open; close some.")
        self.metrics.streams[user] += 1
        try:
            yield
        finally:
            self.metrics.streams[user] -= 1
            if not self.metrics.streams[user]:
                del self.metrics.streams[user]
