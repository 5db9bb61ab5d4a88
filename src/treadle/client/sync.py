"""The client without `async`: the same names, driven by one event loop in a thread of its own.

with Client(url, token) as client:
    chat = client.chats.create("How many apples are there?")
    print(client.run(chat).text)
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Self, Unpack, overload

from treadle.client import chats as asynchronous
from treadle.client import client, files
from treadle.client.answering import Answer, Approve, Reply, Show
from treadle.client.files import Choice, Restoration, Run, UndoChoice
from treadle.client.tools import ClientTool
from treadle.errors import InvalidInput
from treadle.loop_thread import LoopThread
from treadle.protocol.commands import Result
from treadle.protocol.events import Delivery, Envelope, OpenAction
from treadle.protocol.http_answers import Accepted, ChangedFile, ChatLine, ChatView, MessageView, RunView
from treadle.protocol.permissions import RuleScope
from treadle.signature import AnyFunction

__all__ = ["Chat", "ChatFiles", "Chats", "Client"]


class Chat:
    """A handle to one chat; see `treadle.client.Chat`."""

    def __init__(self, loop: LoopThread, chat: asynchronous.Chat) -> None:
        self._loop = loop
        self._chat = chat
        self.id = chat.id
        self.warnings = chat.warnings

    def send(self, content: str, *, delivery: Delivery = "queued") -> Accepted:
        return self._loop.run(self._chat.send(content, delivery=delivery))

    def interrupt(self) -> Accepted:
        return self._loop.run(self._chat.interrupt())

    def approve(
        self,
        action: OpenAction,
        *,
        arguments: Mapping[str, Any] | None = None,
        offer: int | None = None,
        scope: RuleScope = "chat",
    ) -> Accepted:
        return self._loop.run(self._chat.approve(action, arguments=arguments, offer=offer, scope=scope))

    def deny(self, action: OpenAction, feedback: str = "") -> Accepted:
        return self._loop.run(self._chat.deny(action, feedback))

    def answer(self, action: OpenAction | str, text: str) -> Accepted:
        return self._loop.run(self._chat.answer(action, text))

    def submit(self, results: Sequence[Result], key: str = "") -> None:
        self._loop.run(self._chat.submit(results, key))

    def edit(self, message: int, content: str, *, files: bool = False) -> Accepted:
        return self._loop.run(self._chat.edit(message, content, files=files))

    @property
    def files(self) -> "ChatFiles":
        return ChatFiles(self._loop, self._chat.files)

    def apply(self, path: str, *, content: str | None = None, block: int | None = None) -> Accepted:
        return self._loop.run(self._chat.apply(path, content=content, block=block))

    def compact(self) -> Accepted:
        return self._loop.run(self._chat.compact())

    def change(self, **changes: Any) -> ChatView:
        return self._loop.run(self._chat.change(**changes))

    def info(self) -> ChatView:
        return self._loop.run(self._chat.info())

    def messages(self, *, limit: int = 50) -> tuple[MessageView, ...]:
        return self._loop.run(self._chat.messages(limit=limit))

    def events(self, after: int = 0, *, deltas: bool = True) -> Iterator[Envelope]:
        events = self._chat.events(after, deltas=deltas)
        try:
            while True:
                yield self._loop.run(_next(events))
        finally:
            with suppress(InvalidInput):  # the client was closed first
                self._loop.run(events.aclose())


class ChatFiles:
    """The files of one chat's project; see `treadle.client.ChatFiles`."""

    def __init__(self, loop: LoopThread, found: files.ChatFiles) -> None:
        self._loop = loop
        self._files = found

    def runs(self) -> tuple[RunView, ...]:
        return self._loop.run(self._files.runs())

    def changes(self, run: Run = "last", path: str = "", *, even_kept: bool = False) -> tuple[ChangedFile, ...]:
        return self._loop.run(self._files.changes(run, path, even_kept=even_kept))

    def preview(self, **choice: Unpack[UndoChoice]) -> Restoration:
        return self._loop.run(self._files.preview(**choice))

    def undo(self, **choice: Unpack[UndoChoice]) -> Restoration:
        return self._loop.run(self._files.undo(**choice))

    def redo(self, undo: str = "", *, merge: bool = False) -> Restoration:
        return self._loop.run(self._files.redo(undo, merge=merge))

    def keep(self, **choice: Unpack[Choice]) -> Restoration:
        return self._loop.run(self._files.keep(**choice))

    def back_to(
        self, message: int, *, conversation: bool = True, files: bool = True, merge: bool = False
    ) -> Restoration:
        return self._loop.run(self._files.back_to(message, conversation=conversation, files=files, merge=merge))


class Chats:
    def __init__(self, loop: LoopThread, chats: asynchronous.Chats) -> None:
        self._loop = loop
        self._chats = chats

    def create(self, content: str = "", **options: Any) -> Chat:
        return Chat(self._loop, self._loop.run(self._chats.create(content, **options)))

    def get(self, id: str) -> Chat:
        return Chat(self._loop, self._loop.run(self._chats.get(id)))

    def list(self, **wanted: Any) -> list[ChatLine]:
        async def all_of() -> list[ChatLine]:
            return [line async for line in self._chats.list(**wanted)]

        return self._loop.run(all_of())


class Client:
    """The same as `treadle.client.Client`, with the same arguments. Close it, or use it in a `with` block."""

    def __init__(self, url: str, token: str = "", *, concurrency: int = 8, patience_s: float = 60.0) -> None:
        self._loop = LoopThread()
        self._client = client.Client(url, token, concurrency=concurrency, patience_s=patience_s)
        self.chats = Chats(self._loop, self._client.chats)

    @overload
    def tool(self, function: AnyFunction, /) -> ClientTool: ...

    @overload
    def tool(self, /, *, name: str = "") -> Callable[[AnyFunction], ClientTool]: ...

    def tool(
        self, function: AnyFunction | None = None, /, *, name: str = ""
    ) -> ClientTool | Callable[[AnyFunction], ClientTool]:
        return self._client.tool(name=name) if function is None else self._client.tool(name=name)(function)

    def chat(self, id: str) -> Chat:
        return Chat(self._loop, self._client.chat(id))

    def run(
        self,
        chat: Chat | str,
        content: str | None = None,
        *,
        approve: Approve | None = None,
        answer: Answer | None = None,
        show: Show | None = None,
    ) -> Reply:
        named = chat if isinstance(chat, str) else chat.id
        return self._loop.run(self._client.run(named, content, approve=approve, answer=answer, show=show))

    def close(self) -> None:
        with suppress(InvalidInput):
            self._loop.run(self._client.close())
        self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


async def _next(events: Any) -> Envelope:
    envelope: Envelope = await anext(events)
    return envelope
