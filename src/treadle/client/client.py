"""The client: an address, a token, tools, and chats. It follows a run and answers tool calls, approvals and questions
until the run ends. The server's log is the only memory: a client that comes back, the same process or another, is told
what is open and goes on from there.

Within a process a call is answered by its handler at most once, however often it is announced. After a crash of the
client a handler whose result the server had not got runs again in the next one: it may remember `ToolCall.chat` and
`.id` if that matters. Results are sent under a key that is made from the calls, so that sending them again is harmless.
"""

import asyncio
import hashlib
import inspect
import os
from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Self, TypeVar, Unpack, overload

import msgspec

from treadle.base.logs import log_info
from treadle.base.signature import AnyFunction, Signature, apply_docstring, is_async
from treadle.base.types import CallKey, ChatId
from treadle.client.chats import Chats, ClientChat
from treadle.client.http import Http
from treadle.errors import ApiError, InvalidInput, ToolError
from treadle.protocol import events as e
from treadle.protocol.commands import Result
from treadle.protocol.events import Envelope, ExecutionComplete, FilesChanged, RunEnd
from treadle.protocol.files import FileChange
from treadle.protocol.http_answers import ChatView, Rebased, WorldChanges, WorldList, WorldView
from treadle.protocol.options import RaceKeywords
from treadle.protocol.tools import DynamicTool, require_name
from treadle.protocol.views import ChildView, RaceResult, build_race_result


class ToolCall(msgspec.Struct, frozen=True):
    """The call that a handler answers; a parameter of this type gets it, and is not shown to the model. `chat` and `id`
    together name the call for ever: a handler whose effect must not happen twice can remember them."""

    chat: ChatId
    id: str
    name: str
    arguments: dict[str, Any]


class ClientTool:
    """A function as a tool. Calling it calls the function."""

    def __init__(self, function: AnyFunction, name: str = "") -> None:
        self.function = function
        self.name = name or getattr(function, "__name__", "")
        require_name(self.name)
        self._signature = Signature(function, self.name, ToolCall)
        self._is_async = is_async(function)
        self.__doc__ = function.__doc__
        self.__name__ = self.name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    @property
    def spec(self) -> DynamicTool:
        """The description of the tool for the server and the model."""
        description, schema = apply_docstring(inspect.getdoc(self.function) or "", self._signature.schema)
        return DynamicTool(self.name, description, schema)

    async def answer(self, call: ToolCall) -> Result:
        """Run the handler; a sync one in a thread."""
        try:
            args, kwargs = self._signature.bind(call.arguments, call)
            if self._is_async:
                value = await self.function(*args, **kwargs)
            else:
                value = await asyncio.to_thread(self.function, *args, **kwargs)
            if inspect.isawaitable(value):
                value = await value
            return Result(call.id, msgspec.to_builtins(value))
        except ToolError as error:
            return make_error_result(call, str(error))
        except Exception as error:
            text = str(error).strip()
            return make_error_result(
                call, f"{self.name} failed with {type(error).__name__}{': ' if text else ''}{text}."
            )


def make_error_result(call: ToolCall, text: str) -> Result:
    return Result(call.id, text, is_error=True)


Approve = Callable[[e.OpenAction], bool | str | Awaitable[bool | str]]
"""True allows, False refuses, a text refuses and says why."""
Answer = Callable[[e.OpenAction], str | Awaitable[str]]
Show = Callable[[e.Envelope], object]

SETTLED = frozenset({"not_awaiting_action", "results_mismatch", "no_such_action", "idempotency_mismatch", "archived"})
"""Codes of an answer that came too late: the action was answered before, or its deadline passed. The log decides."""
REMEMBERED = 10_000

T = TypeVar("T")


class Reply(msgspec.Struct, frozen=True):
    """The result of a run."""

    text: str
    reason: str  # Why it ended, as in `session.run_end`; or `action_required`: it waits for `actions`.
    error: str = ""  # The error, or the limit that ended the run, in words.
    actions: tuple[e.OpenAction, ...] = ()


class Handlers:
    def __init__(self, tools: Mapping[str, ClientTool], concurrency: int) -> None:
        self._tools, self._room = tools, asyncio.Semaphore(concurrency)
        self._answers: dict[tuple[str, str], asyncio.Task[Result]] = {}
        """Of calls whose results the server has not got yet. Results may be large."""
        self._settled: OrderedDict[tuple[str, str], None] = OrderedDict()
        """Calls whose results the server has got: they are answered no more."""

    async def answer(self, call: ToolCall) -> Result:
        """The answer to a call; the one that is there already, if it was asked for before."""
        key = (call.chat, call.id)
        if (task := self._answers.get(key)) is None or task.cancelled():
            task = self._answers[key] = asyncio.create_task(self._run_tool(call), name=f"tool {call.name} {call.id}")
        return await asyncio.shield(task)

    def settle(self, calls: Sequence[ToolCall]) -> None:
        """The server has the results of these calls: they are kept no longer."""
        for call in calls:
            self._answers.pop((call.chat, call.id), None)
            self._settled[call.chat, call.id] = None
        while len(self._settled) > REMEMBERED:
            self._settled.popitem(last=False)

    def is_settled(self, call: ToolCall) -> bool:
        return (call.chat, call.id) in self._settled

    def drop(self, chat: str = "") -> None:
        """End what is still running for a chat, or for all, and keep no result of it: the run is over."""
        for key in [key for key in self._answers if key[0] == chat or not chat]:
            self._answers.pop(key).cancel()

    async def _run_tool(self, call: ToolCall) -> Result:
        if (tool := self._tools.get(call.name)) is None:
            return make_error_result(call, f"The client that answers here has no tool {call.name!r}.")
        async with self._room:
            return await tool.answer(call)


class RunFollower:
    def __init__(self, chat: ClientChat, handlers: Handlers, approve: Approve | None, answer: Answer | None) -> None:
        self._chat, self._handlers, self._approve, self._answer = chat, handlers, approve, answer
        self._text = self._error = ""
        self._tasks: dict[tuple[str, ...], asyncio.Task[None]] = {}
        self._queued = ""
        self._first = 0  # Runs that ended before this seq belong to other requests.

    async def see_through(self, content: str | None, show: Show | None) -> Reply:
        info = await self._chat.info()
        after_seq = info.head
        if content is not None:
            accepted = await self._chat.send(content)
            self._queued, self._first = accepted.queued, accepted.head
        elif info.status in ("idle", "error"):
            answers = [entry.content for entry in await self._chat.messages() if entry.role == "assistant"]
            return Reply(answers[-1] if answers else "", info.last_end or "done", info.last_why)
        try:
            async with aclosing(self._chat.events(after_seq)) as events:
                while True:
                    envelope = await self._read_next_event(events)
                    if show is not None:
                        show(envelope)
                    if (reply := await self._take(envelope.seq, envelope.data)) is not None:
                        return reply
        finally:
            for task in self._tasks.values():
                task.cancel()
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def _read_next_event(self, events: AsyncGenerator[e.Envelope, None]) -> e.Envelope:
        """The next event. An answer that cannot be given is raised here, instead of being waited for."""
        if not self._tasks:
            return await anext(events)
        coming = asyncio.ensure_future(anext(events))
        try:
            while not coming.done():
                await asyncio.wait({coming, *self._tasks.values()}, return_when=asyncio.FIRST_COMPLETED)
                for key, task in list(self._tasks.items()):
                    if task.done():
                        del self._tasks[key]
                        task.result()
            return coming.result()
        finally:
            coming.cancel()
            await asyncio.gather(coming, return_exceptions=True)

    async def _take(self, seq: int, event: e.Event) -> Reply | None:
        match event:
            case e.AssistantMessage(content=content) if content:
                self._text = content
            case e.ModelCall(purpose="summary", text=text):
                self._text = text
            case e.SessionError(message=message):
                self._error = message
            case e.UserMessage(queue_id=queued) if queued and queued == self._queued:
                self._queued = self._text = self._error = ""
            case e.QueueChanged(op="deleted", id=queued) if queued == self._queued:
                self._queued = ""
            case e.ActionRequired(actions=actions):
                return await self._act(actions)
            case e.RunEnd(reason=reason, why=text) if (
                seq > self._first and reason != "superseded" and await self._is_over()
            ):
                self._handlers.drop(self._chat.id)
                return Reply(self._text, reason, self._error or text)
        return None

    async def _is_over(self) -> bool:
        """True if no later run will answer the message. False while it is queued and will have its own run."""
        if not self._queued:
            return True
        info = await self._chat.info()
        return info.status in ("idle", "error") and any(item.id == self._queued for item in info.queue)

    async def _act(self, actions: Sequence[e.OpenAction]) -> Reply | None:
        calls = [action for action in actions if action.kind == "external_tool"]
        if calls:
            self._begin(tuple(action.tool_call_id for action in calls), self._submit(calls))
        open_actions = []
        for action in actions:
            if action.kind == "permission" and self._approve is not None:
                self._begin((action.action, action.hash), self._decide(action, self._approve))
            elif action.kind == "user_input" and self._answer is not None:
                self._begin((action.action,), self._answer_question(action, self._answer))
            elif action.of_person:
                open_actions.append(action)
        if not open_actions:
            return None
        await asyncio.gather(*self._tasks.values())
        return Reply(self._text, "action_required", actions=tuple(open_actions))

    def _begin(self, key: tuple[str, ...], work: Coroutine[Any, Any, None]) -> None:
        if key in self._tasks:
            work.close()  # it is announced again, after a reconnection
        else:
            self._tasks[key] = asyncio.create_task(work)

    async def _submit(self, actions: Sequence[e.OpenAction]) -> None:
        """All results of the turn together (A-03)."""
        chat = self._chat.id
        calls = [ToolCall(chat, each.tool_call_id, each.name, each.arguments) for each in actions]
        if all(self._handlers.is_settled(call) for call in calls):
            return  # announced before the server had the results
        results = await asyncio.gather(*(self._handlers.answer(call) for call in calls))
        key = hashlib.sha256("\n".join((chat, *(call.id for call in calls))).encode()).hexdigest()[:40]
        try:
            accepted = await _send_unless_settled(self._chat.submit(results, f"results-{key}"))
        except ApiError as error:
            if error.status != 413:
                raise
            short = [make_error_result(call, "The result is too large to be sent.") for call in calls]
            accepted = await _send_unless_settled(self._chat.submit(short, f"too-large-{key}"))
        if accepted:
            self._handlers.settle(calls)

    async def _decide(self, action: e.OpenAction, approve: Approve) -> None:
        if (decision := await _resolve_value(approve(action))) is True:
            await _send_unless_settled(self._chat.approve(action))
        else:
            await _send_unless_settled(self._chat.deny(action, decision if isinstance(decision, str) else ""))

    async def _answer_question(self, action: e.OpenAction, answer: Answer) -> None:
        await _send_unless_settled(self._chat.answer(action, await _resolve_value(answer(action))))


async def _resolve_value(maybe_awaitable: T | Awaitable[T]) -> T:
    return await maybe_awaitable if inspect.isawaitable(maybe_awaitable) else maybe_awaitable


async def _send_unless_settled(work: Awaitable[object]) -> bool:
    """Await the sending of an answer. Returns False if the question was settled already."""
    try:
        await work
        return True
    except ApiError as error:
        if error.reason not in SETTLED:
            raise
        log_info("the chat had its answer already: %s", error)
        return False


class WorldCommit(msgspec.Struct, frozen=True):
    """The result of a commit, and the chat that records it: `client.chat(done.chat).files.undo()` takes it back."""

    chat: str
    files: tuple[FileChange, ...]
    text: str


class ClientWorlds:
    def __init__(self, http: Http, chat: Callable[[str], ClientChat]) -> None:
        self._http, self._chat = http, chat

    async def list(self) -> tuple[WorldView, ...]:
        """The oldest first."""
        return (await self._http.get("/api/worlds", WorldList)).worlds

    async def show(self, id: str) -> WorldChanges:
        """Return the changes that a commit would make now, and its conflicts."""
        return await self._http.get(f"/api/worlds/{id}", WorldChanges)

    async def diff(self, id: str) -> str:
        """The same for people."""
        return (await self.show(id)).diff

    async def commit(self, id: str) -> WorldCommit:
        """Apply its changes to the project, or none: ApiError `conflict` if the same files were changed there."""
        chat_view = await self._http.change("POST", f"/api/worlds/{id}/commit", {}, ChatView)
        completion, files = ExecutionComplete(CallKey(""), success=False), tuple[FileChange, ...]()
        async with aclosing(self._chat(chat_view.id).events(deltas=False)) as events:
            async for envelope in events:
                match envelope.data:
                    case ExecutionComplete() as completion:
                        pass
                    case FilesChanged(files=files):
                        pass
                    case RunEnd():
                        break
        if not completion.success:
            raise ApiError(409, "conflict", completion.error or completion.result)
        return WorldCommit(chat_view.id, files, completion.result)

    async def rebase(self, id: str) -> tuple[str, ...]:
        """Put it onto what changed meanwhile: the merged paths. ApiError `conflict`, and no change, if that fails."""
        return (await self._http.change("POST", f"/api/worlds/{id}/rebase", {}, Rebased)).merged

    async def drop(self, id: str) -> WorldView:
        """Remove the world with all its changes. ApiError `world_busy` if a chat works there."""
        return await self._http.change("POST", f"/api/worlds/{id}/drop", {}, WorldView)


class ClientRace:
    """Attempts at one task, each a chat in a world of its own (L-22); `ClientRace(client.chat(id))` finds it again."""

    def __init__(self, chat: ClientChat) -> None:
        self.chat = chat

    async def attempts(self) -> tuple[ChildView, ...]:
        """Its attempts as they are now."""
        return await self.chat.children()

    async def result(self) -> RaceResult:
        """Wait until it is over. RunFailed if it came to nothing."""
        envelopes: list[Envelope] = []
        async with aclosing(self.chat.events(deltas=False)) as events:
            async for envelope in events:
                envelopes.append(envelope)
                if isinstance(envelope.data, RunEnd):
                    break
        return build_race_result(self.chat.id, envelopes)


class Client:
    """`concurrency`: how many calls of its tools run at once. `patience_s`: for how long a server that cannot be
    reached is asked again before that is an error."""

    def __init__(self, url: str, token: str = "", *, concurrency: int = 8, patience_s: float = 60.0) -> None:
        self._http = Http(url, token, patience_s)
        self._patience_s = patience_s
        self.tools: dict[str, ClientTool] = {}
        self._handlers = Handlers(self.tools, concurrency)
        self.worlds = ClientWorlds(self._http, self.chat)
        self.chats = Chats(self._http, lambda: [tool.spec for tool in self.tools.values()], patience_s)

    @overload
    def tool(self, function: AnyFunction, /) -> ClientTool: ...

    @overload
    def tool(self, /, *, name: str = "") -> Callable[[AnyFunction], ClientTool]: ...

    def tool(
        self, function: AnyFunction | None = None, /, *, name: str = ""
    ) -> ClientTool | Callable[[AnyFunction], ClientTool]:
        """Make a function a tool of this client: `@client.tool`, or `@client.tool(name="…")`. Its schema comes from the
        type hints and the docstring. A handler that is not async runs in a thread."""

        def decorate(function: AnyFunction) -> ClientTool:
            client_tool = ClientTool(function, name)
            if client_tool.name in self.tools:
                raise InvalidInput(f"This client has a tool {client_tool.name!r} already; names must be unique.")
            self.tools[client_tool.name] = client_tool
            return client_tool

        return decorate if function is None else decorate(function)

    def chat(self, id: str) -> ClientChat:
        """A handle to a chat by its id; nothing is asked of the server yet."""
        return ClientChat(self._http, id, self._patience_s)

    async def race(self, task: str, **race_options: Unpack[RaceKeywords]) -> ClientRace:
        """Begin a race: so many attempts at a task of a project (`root`), of which the best is committed. `models` are
        given out in turn; `check` is a command that must succeed in the world of an attempt; `judge` a model that
        chooses; with `all` no attempt is stopped because another has passed. Options are those of the API."""
        body = {"task": task, **msgspec.to_builtins(race_options, enc_hook=os.fspath)}
        chat_view = await self._http.change("POST", "/api/races", body, ChatView)
        return ClientRace(ClientChat(self._http, chat_view.id, self._patience_s, chat_view.warnings))

    async def run(
        self,
        chat: ClientChat | str,
        content: str | None = None,
        *,
        approve: Approve | None = None,
        answer: Answer | None = None,
        show: Show | None = None,
    ) -> Reply:
        """See a run through: say `content`, if it is given, answer calls of this client's tools as they come, and give
        back what the run came to. Survives restarts of the server; after one of the client, call it again without
        `content`. `approve` and `answer` are asked for what needs a person; without them the reply says what the chat
        waits for. `show` gets every event."""
        client_chat = self.chat(chat) if isinstance(chat, str) else chat
        return await RunFollower(client_chat, self._handlers, approve, answer).see_through(content, show)

    async def close(self) -> None:
        """End handlers that still run, and the connection. Nothing is lost: the chats wait for their answers."""
        self._handlers.drop()
        await self._http.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
