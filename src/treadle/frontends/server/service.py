"""The service behind the routes: the agent whose chats they serve, who may see which, the execution of commands, and
signing in. Knows nothing of HTTP but the answers that are remembered."""

import asyncio
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any
from weakref import WeakValueDictionary

import msgspec

from treadle.base.types import ChatId, make_chat_id
from treadle.chat.state import ChatState, compute_status
from treadle.engine.worker import Worker
from treadle.errors import AlreadyAnswered, NotFound, TreadleError
from treadle.frontends.server.admission import Admission
from treadle.frontends.server.render_process import Rendering
from treadle.frontends.server.replies import ApiReply, Key, Problem, build_chat_view, encode_reply, find_answer
from treadle.frontends.server.tokens import LOCAL, Tokens, get_owner, get_user, hash_token
from treadle.frontends.server.usage import ChatCounts, Metrics, UsageHistory
from treadle.library.agent import Agent
from treadle.library.commands import WORKS, check_rules, execute_commands, go_on
from treadle.library.feeds import Feeds
from treadle.ports.store import Remembered
from treadle.ports.workspace import Workspace
from treadle.protocol import commands as c
from treadle.protocol import wire
from treadle.protocol.commands import Command
from treadle.protocol.events import Envelope, SessionCreated
from treadle.protocol.options import ChatOptions, Project

LETTERS = "23456789ABCDEFGHJKMNPQRSTVWXYZ"  # Without those that look like others.
LENGTH = 8
PAUSE_S = 1.0
LABEL = "signed in with a code"


def make_code() -> str:
    letters = "".join(secrets.choice(LETTERS) for _ in range(LENGTH))
    return f"{letters[:4]}-{letters[4:]}"


class SignIn:
    """The code of a server. Without `renewed` there is none, and every one is wrong. `renewed` is told each new one."""

    def __init__(
        self, tokens: Tokens, renewed: Callable[[str], None] | None = None, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._tokens, self._renewed, self._now = tokens, renewed, now
        self._wrong = float("-inf")
        self.code = make_code() if renewed is not None else ""

    def redeem(self, sent_code: str) -> str:
        if self._now() < self._wrong + PAUSE_S:
            raise Problem("too_many_tries", "A wrong code was tried a moment ago; try again.", {"retry-after": "1"})
        letters = _normalize_code(sent_code)
        if self._renewed is None or not secrets.compare_digest(letters.encode(), _normalize_code(self.code).encode()):
            self._wrong = self._now()
            raise Problem("unauthorized", "That is not the code that the server's terminal shows; each is good once.")
        self.code = make_code()
        token = self._tokens.add(LOCAL, LABEL)[1]
        self._renewed(self.code)
        return token


def _normalize_code(text: str) -> str:
    return "".join(text.upper().split()).replace("-", "")


TICKETS = "(tickets)"  # Whose answers used tickets are among; no user has such a name.
KEPT = 512
_ID = re.compile(r"[A-Za-z0-9_.:-]{1,128}")

First = Callable[[ChatOptions], Awaitable[Sequence[Command]]]
"""Returns the first commands of a chat, given its final options."""
Answered = Callable[[ChatState], ApiReply]  # The answer to a command, by what it made of the chat.


class Limits(msgspec.Struct, frozen=True):
    """Limits per request, per reader and per user."""

    body: int = 256 * 1024
    large_body: int = 16 * 1024 * 1024  # For results of tools and for images.
    body_s: float = 30.0
    file: int = 16 * 1024 * 1024
    streams: int = 100  # Open streams of one user.
    heartbeat_s: float = 10.0
    backlog: int = 1_000  # How many pieces of news are kept for a slow reader, before it is put back to the log.


class Frames:
    """JSON of envelopes, kept for the other readers of the same chat."""

    def __init__(self) -> None:
        self._kept: OrderedDict[int, tuple[Envelope, bytes]] = OrderedDict()

    def encode(self, envelope: Envelope) -> bytes:
        if (cached := self._kept.get(id(envelope))) is not None:
            return cached[1]
        encoded = wire.to_json(envelope)
        self._kept[id(envelope)] = (envelope, encoded)  # which keeps its id from being used again
        if len(self._kept) > KEPT:
            self._kept.popitem(last=False)
        return encoded


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
        self.agent, self.tokens = agent, tokens
        self.admission = admission or Admission(agent.options)
        self.limits, self.hosts = limits or Limits(), hosts
        self.sign_in = sign_in or SignIn(tokens)
        self.rendering, self.usage_history = Rendering(), UsageHistory(agent.deps.store)
        self.metrics, self.frames = Metrics(), Frames()
        self.worker: Worker | None = agent.worker if works else None
        self.feeds = Feeds(agent.deps, self.limits.backlog, agent.worker.is_holding)
        self.chat_counts = ChatCounts(agent.deps.store)
        self._requests: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()
        """By key: the lock of a request that is being carried out."""
        self.openapi = b""  # The description of the API; filled in by the application.
        self.draining = asyncio.Event()  # Set when the server is to end: streams end, and no new client is accepted.

    async def choose_default_model(self, user: str) -> str:
        """The model of a chat that names none: the server's setting; for the user of this machine, the usual choice
        (U-10)."""
        if self.admission.options.model or user != LOCAL:
            return self.admission.options.model
        choice = await self.agent.choose_model()
        return "" if choice is None else choice.model

    async def begin(self, user: str, changes: Mapping[str, Any]) -> ChatOptions:
        """The options of a new chat; its model is found if neither the request nor the server names one."""
        if "model" not in changes and not self.admission.options.model:
            changes = {**changes, "model": await self.choose_default_model(user)}
        return self.admission.begin(user, changes)

    def remember_model(self, user: str, model: str) -> None:
        if user == LOCAL:
            self.agent.remember_model(model)

    async def require_own_chat(self, user: str, id: str) -> ChatId:
        """Return the chat with this id. Another user's chat is reported like one that does not exist (S-13)."""
        chat = ChatId(id)
        if _ID.fullmatch(id):
            state = self.agent.deps.log.peek(chat)
            with suppress(NotFound):
                listed = state or (await self.agent.deps.store.get(chat)).summary
                if listed.owner == get_owner(user):
                    return chat
        raise Problem("not_found", f"There is no chat {id[:128]!r}.")

    async def load_state(self, user: str, id: str) -> ChatState:
        return await self.agent.deps.log.load(await self.require_own_chat(user, id))

    async def require_project(self, state: ChatState) -> Project:
        """The project of a chat, for use now. RootChanged or InvalidInput if it is open to the chat's owner no more."""
        await asyncio.to_thread(self.admission.use, get_user(state.owner), state.options)
        return state.options.project

    async def require_work(self, state: ChatState, *, restores: bool = False) -> None:
        """RootChanged or InvalidInput if the chat may not go on with its project; putting files back is less."""
        await self.require_project(state)
        if not restores:
            self.admission.require_world(get_user(state.owner), state.options)

    async def open_workspace(self, state: ChatState) -> Workspace:
        """The files of a chat as it sees them, for use now."""
        return await asyncio.to_thread(self.agent.workspace_of, await self.require_project(state))

    async def create(
        self, user: str, options: ChatOptions, first: Sequence[Command] | First, key: Key | None
    ) -> ApiReply:
        """Begin a chat and say the first word in it, in one commit; the answer is the chat."""
        highest = self.admission.find_open_folder(user, options.root) if options.root else ""
        deps = self.agent.deps
        own_world = "" if key is None else key.make_id("world", deps.clock.now_ms())
        ready = await asyncio.to_thread(self.agent.prepare, options, highest, get_owner(user), own_world)
        chat = make_chat_id()

        def build_reply(state: ChatState) -> ApiReply:
            return encode_reply(build_chat_view(state, compute_status(state), ready.warnings), 201)

        try:
            first = await first(ready.options) if callable(first) else first
            check_rules(self.agent.chat_home, first)
            answer = None if key is None else key.make_answer_builder(build_reply, deps.clock.now_ms())
            begin = SessionCreated(ready.options, get_owner(user))
            state = await deps.log.create(chat, begin, *ready.notices, first=first, answer=answer)
        except TreadleError:
            if ready.options.world != options.world:  # opened for this chat
                with suppress(TreadleError):  # without the store this is unknown: `treadle gc` removes the world
                    if not await self._is_recorded(chat, key):
                        await self.agent.worlds.drop(ready.options.world)
            raise
        await self.agent.chat_home.claim_world(ready.options)
        self.go_on(state)
        return build_reply(state)

    async def _is_recorded(self, chat: ChatId, key: Key | None) -> bool:
        """True if the chat was recorded all the same, or the same request has made one."""
        if key is not None:
            return await find_answer(self.agent.deps.store, key) is not None
        with suppress(NotFound):
            return await self.agent.deps.store.read_head(chat) > 0
        return False

    async def execute(
        self, chat: ChatId, commands: Sequence[Command], key: Key | None, make_reply: Answered
    ) -> ApiReply:
        """Carry out commands as one; a refusal changes nothing. A worker goes on with the chat."""
        deps = self.agent.deps

        async def require_work() -> None:
            if any(isinstance(command, WORKS) for command in commands):
                restores = all(isinstance(command, c.Restore) for command in commands)
                await self.require_work(await deps.log.load(chat), restores=restores)

        answer = None if key is None else key.make_answer_builder(make_reply, deps.clock.now_ms())
        home, work = self.agent.chat_home, self.worker is not None
        return make_reply(await execute_commands(home, chat, commands, prepare=require_work, answer=answer, work=work))

    async def delete(self, user: str, id: str) -> None:
        """Delete a chat of this user. Repeated, it changes nothing."""
        if _ID.fullmatch(id):
            with suppress(NotFound):
                return await self.agent.delete_chat(id, owner=get_owner(user))
        raise Problem("not_found", f"There is no chat {id[:128]!r}.")

    def get_lock(self, key: Key) -> asyncio.Lock:
        """Of equal requests that come at once, one is carried out here, and the others get its answer."""
        return self._requests.setdefault((key.owner, key.key), asyncio.Lock())

    def go_on(self, state: ChatState) -> None:
        if self.worker is not None:
            go_on(self.agent.chat_home, state)

    async def spend(self, ticket: str) -> bool:
        """Use a ticket up, for all servers of the store; False if it was used before."""
        store, clock = self.agent.deps.store, self.agent.deps.clock
        try:
            await store.remember(Remembered(TICKETS, hash_token(ticket), "", 0, b"", clock.now_ms()))
        except AlreadyAnswered:
            return False
        return True

    @contextmanager
    def hold_stream(self, user: str) -> Iterator[None]:
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
