"""The client without `async`: the same names, driven by one event loop in a thread of its own.

with Client(url, token) as client:
    chat = client.chats.create("How many apples are there?")
    print(client.run(chat).text)
"""

from collections.abc import Iterator
from typing import Any

from treadle.client import chats as asynchronous
from treadle.client import client, files, jobs
from treadle.client.answering import Answer, Approve, Reply, Show
from treadle.loop_thread import Facade, LoopOwner, LoopThread, same_parameters, waited
from treadle.protocol.events import Envelope
from treadle.protocol.http_answers import ChatLine, ChatView
from treadle.protocol.views import JobView

__all__ = ["Chat", "ChatFiles", "Chats", "Client", "Job"]


class Chat(Facade[asynchronous.Chat]):
    """A handle to one chat; see `treadle.client.Chat`."""

    def __init__(self, loop: LoopThread, chat: asynchronous.Chat) -> None:
        super().__init__(loop, chat)
        self.id = chat.id
        self.warnings = chat.warnings

    send = waited(asynchronous.Chat.send)
    interrupt = waited(asynchronous.Chat.interrupt)
    approve = waited(asynchronous.Chat.approve)
    deny = waited(asynchronous.Chat.deny)
    answer = waited(asynchronous.Chat.answer)
    submit = waited(asynchronous.Chat.submit)
    edit = waited(asynchronous.Chat.edit)
    apply = waited(asynchronous.Chat.apply)
    compact = waited(asynchronous.Chat.compact)
    info = waited(asynchronous.Chat.info)
    messages = waited(asynchronous.Chat.messages)

    def change(self, **changes: Any) -> ChatView:
        return self._loop.run(self._wrapped.change(**changes))

    @property
    def files(self) -> "ChatFiles":
        return ChatFiles(self._loop, self._wrapped.files)

    def jobs(self) -> "list[Job]":
        return [Job(self._loop, job) for job in self._loop.run(self._wrapped.jobs())]

    def events(self, after: int = 0, *, deltas: bool = True) -> Iterator[Envelope]:
        return self._loop.each(self._wrapped.events(after, deltas=deltas))


class ChatFiles(Facade[files.ChatFiles]):
    """The files of one chat's project; see `treadle.client.ChatFiles`."""

    runs = waited(files.ChatFiles.runs)
    changes = waited(files.ChatFiles.changes)
    preview = waited(files.ChatFiles.preview)
    undo = waited(files.ChatFiles.undo)
    redo = waited(files.ChatFiles.redo)
    keep = waited(files.ChatFiles.keep)
    back_to = waited(files.ChatFiles.back_to)


class Job(Facade[jobs.Job]):
    """A background command of a chat; see `treadle.client.jobs.Job`."""

    @property
    def view(self) -> JobView:
        return self._wrapped.view

    tail = waited(jobs.Job.tail)
    send = waited(jobs.Job.send)
    stop = waited(jobs.Job.stop)


class Chats(Facade[asynchronous.Chats]):
    def create(self, content: str = "", **options: Any) -> Chat:
        return Chat(self._loop, self._loop.run(self._wrapped.create(content, **options)))

    def get(self, id: str) -> Chat:
        return Chat(self._loop, self._loop.run(self._wrapped.get(id)))

    def list(self, **wanted: Any) -> list[ChatLine]:
        return list(self._loop.each(self._wrapped.list(**wanted)))


class Client(LoopOwner[client.Client]):
    """The same as `treadle.client.Client`, with the same arguments. Close it, or use it in a `with` block."""

    @same_parameters(client.Client)
    def __init__(self, *args: Any, **keywords: Any) -> None:
        wrapped = client.Client(*args, **keywords)
        super().__init__(wrapped)
        self.chats = Chats(self._loop, wrapped.chats)
        self.tool = wrapped.tool
        """Make a function a tool of this client; see `treadle.client.Client.tool`."""

    def chat(self, id: str) -> Chat:
        return Chat(self._loop, self._wrapped.chat(id))

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
        return self._loop.run(self._wrapped.run(named, content, approve=approve, answer=answer, show=show))
