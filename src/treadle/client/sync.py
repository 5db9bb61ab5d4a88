"""The client without `async`: the same names, driven by one event loop in a thread of its own.

with Client(url, token) as client:
    chat = client.chats.create("How many apples are there?")
    print(client.run(chat).text)
"""

from collections.abc import Iterator
from typing import Any, Unpack

from treadle.base.loop_thread import Facade, LoopOwner, LoopThread, copy_parameters, make_blocking, make_wrapping
from treadle.client import chats as asynchronous
from treadle.client import client
from treadle.client.client import Answer, Approve, Reply, Show
from treadle.protocol.events import Envelope
from treadle.protocol.http_answers import ChatLine
from treadle.protocol.options import RaceKeywords
from treadle.protocol.views import JobView

__all__ = ["Chats", "Client", "ClientChat", "ClientFiles", "ClientJob", "ClientRace", "ClientWorlds"]


class ClientChat(Facade[asynchronous.ClientChat]):
    """A handle to one chat; see `treadle.client.ClientChat`."""

    def __init__(self, loop: LoopThread, chat: asynchronous.ClientChat) -> None:
        super().__init__(loop, chat)
        self.id, self.warnings = chat.id, chat.warnings

    send = make_blocking(asynchronous.ClientChat.send)
    commands = make_blocking(asynchronous.ClientChat.commands)
    resources = make_blocking(asynchronous.ClientChat.resources)
    interrupt = make_blocking(asynchronous.ClientChat.interrupt)
    approve = make_blocking(asynchronous.ClientChat.approve)
    deny = make_blocking(asynchronous.ClientChat.deny)
    answer = make_blocking(asynchronous.ClientChat.answer)
    submit = make_blocking(asynchronous.ClientChat.submit)
    edit = make_blocking(asynchronous.ClientChat.edit)
    apply = make_blocking(asynchronous.ClientChat.apply)
    children = make_blocking(asynchronous.ClientChat.children)
    actions = make_blocking(asynchronous.ClientChat.actions)
    compact = make_blocking(asynchronous.ClientChat.compact)
    run_command = make_blocking(asynchronous.ClientChat.run_command)
    arguments = make_blocking(asynchronous.ClientChat.arguments)
    edit_queued = make_blocking(asynchronous.ClientChat.edit_queued)
    delete_queued = make_blocking(asynchronous.ClientChat.delete_queued)
    promote = make_blocking(asynchronous.ClientChat.promote)
    export = make_blocking(asynchronous.ClientChat.export)
    models = make_blocking(asynchronous.ClientChat.models)
    change = make_blocking(asynchronous.ClientChat.change)
    delete = make_blocking(asynchronous.ClientChat.delete)
    info = make_blocking(asynchronous.ClientChat.info)
    messages = make_blocking(asynchronous.ClientChat.messages)

    def fork(self, seq: int = 0) -> "ClientChat":
        return ClientChat(self._loop, self._loop.run(self._wrapped.fork(seq)))

    @property
    def files(self) -> "ClientFiles":
        return ClientFiles(self._loop, self._wrapped.files)

    def jobs(self) -> "list[ClientJob]":
        return [ClientJob(self._loop, job) for job in self._loop.run(self._wrapped.jobs())]

    def events(self, after_seq: int = 0, *, deltas: bool = True) -> Iterator[Envelope]:
        return self._loop.iterate(self._wrapped.events(after_seq, deltas=deltas))


class ClientFiles(Facade[asynchronous.ClientFiles]):
    """The files of one chat's project; see `treadle.client.ClientFiles`."""

    runs = make_blocking(asynchronous.ClientFiles.runs)
    changes = make_blocking(asynchronous.ClientFiles.changes)
    preview = make_blocking(asynchronous.ClientFiles.preview)
    undo = make_blocking(asynchronous.ClientFiles.undo)
    redo = make_blocking(asynchronous.ClientFiles.redo)
    keep = make_blocking(asynchronous.ClientFiles.keep)
    back_to = make_blocking(asynchronous.ClientFiles.back_to)


class ClientJob(Facade[asynchronous.ClientJob]):
    """A background command of a chat; see `treadle.client.chats.ClientJob`."""

    @property
    def view(self) -> JobView:
        return self._wrapped.view

    tail = make_blocking(asynchronous.ClientJob.tail)
    send = make_blocking(asynchronous.ClientJob.send)
    stop = make_blocking(asynchronous.ClientJob.stop)
    changes = make_blocking(asynchronous.ClientJob.changes)
    commit = make_blocking(asynchronous.ClientJob.commit)
    discard = make_blocking(asynchronous.ClientJob.discard)


class ClientRace(Facade[client.ClientRace]):
    """Several attempts at one task; see `treadle.client.ClientRace`."""

    @property
    def chat(self) -> ClientChat:
        return ClientChat(self._loop, self._wrapped.chat)

    attempts = make_blocking(client.ClientRace.attempts)
    result = make_blocking(client.ClientRace.result)


class ClientWorlds(Facade[client.ClientWorlds]):
    """Your worlds on the server; see `treadle.client.ClientWorlds`."""

    list = make_blocking(client.ClientWorlds.list)
    show = make_blocking(client.ClientWorlds.show)
    diff = make_blocking(client.ClientWorlds.diff)
    commit = make_blocking(client.ClientWorlds.commit)
    rebase = make_blocking(client.ClientWorlds.rebase)
    drop = make_blocking(client.ClientWorlds.drop)


class Chats(Facade[asynchronous.Chats]):
    def create(self, content: str = "", **options: Any) -> ClientChat:
        return ClientChat(self._loop, self._loop.run(self._wrapped.create(content, **options)))

    def get(self, id: str) -> ClientChat:
        return ClientChat(self._loop, self._loop.run(self._wrapped.get(id)))

    search = make_blocking(asynchronous.Chats.search)

    def list(self, **filters: Any) -> list[ChatLine]:
        return list(self._loop.iterate(self._wrapped.list(**filters)))


class Client(LoopOwner[client.Client]):
    """The same as `treadle.client.Client`, with the same arguments. Close it, or use it in a `with` block."""

    @copy_parameters(client.Client)
    def __init__(self, *args: Any, **keywords: Any) -> None:
        wrapped = client.Client(*args, **keywords)
        super().__init__(wrapped)
        self.chats = Chats(self._loop, wrapped.chats)
        self.worlds = ClientWorlds(self._loop, wrapped.worlds)
        self.tool = wrapped.tool  # Make a function a tool of this client; see `treadle.client.Client.tool`.

    chat = make_wrapping(client.Client.chat, ClientChat)

    def race(self, task: str, **race_options: Unpack[RaceKeywords]) -> ClientRace:
        return ClientRace(self._loop, self._loop.run(self._wrapped.race(task, **race_options)))

    def run(
        self,
        chat: ClientChat | str,
        content: str | None = None,
        *,
        approve: Approve | None = None,
        answer: Answer | None = None,
        show: Show | None = None,
    ) -> Reply:
        chat_id = chat if isinstance(chat, str) else chat.id
        return self._loop.run(self._wrapped.run(chat_id, content, approve=approve, answer=answer, show=show))
