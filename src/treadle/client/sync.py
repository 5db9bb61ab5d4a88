"""The client without `async`: the same names, driven by one event loop in a thread of its own."""

from collections.abc import Iterator
from typing import Any, Unpack

from treadle.base.loop_thread import Facade, LoopOwner, LoopThread, same_parameters, waited
from treadle.client import chats as asynchronous
from treadle.client import client, files
from treadle.client.answering import Answer, Approve, Reply, Show
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

    send = waited(asynchronous.ClientChat.send)
    commands = waited(asynchronous.ClientChat.commands)
    resources = waited(asynchronous.ClientChat.resources)
    interrupt = waited(asynchronous.ClientChat.interrupt)
    approve = waited(asynchronous.ClientChat.approve)
    deny = waited(asynchronous.ClientChat.deny)
    answer = waited(asynchronous.ClientChat.answer)
    submit = waited(asynchronous.ClientChat.submit)
    edit = waited(asynchronous.ClientChat.edit)
    apply = waited(asynchronous.ClientChat.apply)
    children = waited(asynchronous.ClientChat.children)
    actions = waited(asynchronous.ClientChat.actions)
    compact = waited(asynchronous.ClientChat.compact)
    run_command = waited(asynchronous.ClientChat.run_command)
    arguments = waited(asynchronous.ClientChat.arguments)
    edit_queued = waited(asynchronous.ClientChat.edit_queued)
    delete_queued = waited(asynchronous.ClientChat.delete_queued)
    promote = waited(asynchronous.ClientChat.promote)
    export = waited(asynchronous.ClientChat.export)
    models = waited(asynchronous.ClientChat.models)
    change = waited(asynchronous.ClientChat.change)
    delete = waited(asynchronous.ClientChat.delete)
    info = waited(asynchronous.ClientChat.info)
    messages = waited(asynchronous.ClientChat.messages)

    def fork(self, seq: int = 0) -> "ClientChat":
        return ClientChat(self._loop, self._loop.run(self._wrapped.fork(seq)))

    @property
    def files(self) -> "ClientFiles":
        return ClientFiles(self._loop, self._wrapped.files)

    def jobs(self) -> "list[ClientJob]":
        return [ClientJob(self._loop, job) for job in self._loop.run(self._wrapped.jobs())]

    def events(self, after_seq: int = 0, *, deltas: bool = True) -> Iterator[Envelope]:
        return self._loop.each(self._wrapped.events(after_seq, deltas=deltas))


class ClientFiles(Facade[files.ClientFiles]):
    """The files of one chat's project; see `treadle.client.ClientFiles`."""

    runs = waited(files.ClientFiles.runs)
    changes = waited(files.ClientFiles.changes)
    preview = waited(files.ClientFiles.preview)
    undo = waited(files.ClientFiles.undo)
    redo = waited(files.ClientFiles.redo)
    keep = waited(files.ClientFiles.keep)
    back_to = waited(files.ClientFiles.back_to)


class ClientJob(Facade[asynchronous.ClientJob]):
    """A background command of a chat; see `treadle.client.chats.ClientJob`."""

    @property
    def view(self) -> JobView:
        return self._wrapped.view

    tail = waited(asynchronous.ClientJob.tail)
    send = waited(asynchronous.ClientJob.send)
    stop = waited(asynchronous.ClientJob.stop)
    changes = waited(asynchronous.ClientJob.changes)
    commit = waited(asynchronous.ClientJob.commit)
    discard = waited(asynchronous.ClientJob.discard)


class ClientRace(Facade[client.ClientRace]):
    """Several attempts at one task; see `treadle.client.ClientRace`."""

    @property
    def chat(self) -> ClientChat:
        return ClientChat(self._loop, self._wrapped.chat)

    attempts = waited(client.ClientRace.attempts)
    result = waited(client.ClientRace.result)


class ClientWorlds(Facade[client.ClientWorlds]):
    """Your worlds on the server; see `treadle.client.ClientWorlds`."""

    list = waited(client.ClientWorlds.list)
    show = waited(client.ClientWorlds.show)
    diff = waited(client.ClientWorlds.diff)
    commit = waited(client.ClientWorlds.commit)
    rebase = waited(client.ClientWorlds.rebase)
    drop = waited(client.ClientWorlds.drop)


class Chats(Facade[asynchronous.Chats]):
    def create(self, content: str = "", **options: Any) -> ClientChat:
        return ClientChat(self._loop, self._loop.run(self._wrapped.create(content, **options)))

    def get(self, id: str) -> ClientChat:
        return ClientChat(self._loop, self._loop.run(self._wrapped.get(id)))

    search = waited(asynchronous.Chats.search)

    def list(self, **filters: Any) -> list[ChatLine]:
        return list(self._loop.each(self._wrapped.list(**filters)))


class Client(LoopOwner[client.Client]):
    """The same as `treadle.client.Client`, with the same arguments. Close it, or use it in a `with` block."""

    @same_parameters(client.Client)
    def __init__(self, *args: Any, **keywords: Any) -> None:
        wrapped = client.Client(*args, **keywords)
        super().__init__(wrapped)
        self.chats = Chats(self._loop, wrapped.chats)
        self.worlds = ClientWorlds(self._loop, wrapped.worlds)
        self.tool = wrapped.tool  # Make a function a tool of this client; see `treadle.client.Client.tool`.

    def chat(self, id: str) -> ClientChat:
        return ClientChat(self._loop, self._wrapped.chat(id))

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
