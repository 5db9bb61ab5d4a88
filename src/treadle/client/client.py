"""The client: an address, a token, tools, and chats."""

import os
from collections.abc import Callable
from contextlib import aclosing
from typing import Self, Unpack, overload

import msgspec

from treadle.base.signature import AnyFunction
from treadle.base.types import CallKey
from treadle.client.answering import Answer, Approve, ClientTool, Handlers, Reply, RunFollower, Show
from treadle.client.chats import Chats, ClientChat
from treadle.client.http import Http
from treadle.errors import ApiError, InvalidInput
from treadle.protocol.events import Envelope, ExecutionComplete, FilesChanged, RunEnd
from treadle.protocol.files import FileChange
from treadle.protocol.http_answers import ChatView, Rebased, WorldChanges, WorldList, WorldView
from treadle.protocol.options import RaceKeywords
from treadle.protocol.views import ChildView, RaceResult, result_of


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
        """Apply the changes of the world to the project. ApiError `conflict` if the same files were changed in the
        project: nothing is applied."""
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
        """Put it onto what changed meanwhile: the paths of texts that both had changed. ApiError `conflict` if they
        cannot be merged: nothing is changed."""
        return (await self._http.change("POST", f"/api/worlds/{id}/rebase", {}, Rebased)).merged

    async def drop(self, id: str) -> WorldView:
        """Remove the world with all its changes. ApiError `world_busy` if a chat works there."""
        return await self._http.change("POST", f"/api/worlds/{id}/drop", {}, WorldView)


class ClientRace:
    """Several attempts at one task, each a chat in a world of its own (L-22). A race is a chat, too, so it goes on
    without this client: `ClientRace(client.chat(id))` finds it again."""

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
        return result_of(self.chat.id, envelopes)


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
