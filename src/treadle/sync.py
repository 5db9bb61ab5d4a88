"""The library without `async`: the same names, driven by one event loop in a thread of its own.

    from treadle.sync import Agent

    with Agent("chats.db") as agent:
        chat = agent.chat(model="openai:gpt-4.1", root=".")
        for event in chat.send("Why does the test fail?"):
            print(event.type, event.data)

Every method is that of the class of the same name in `treadle.library.agent`, `chat`, `files` and `jobs`, waited
for. May be used from any number of threads, not from inside a running event loop."""

from collections.abc import Iterator
from functools import wraps
from typing import TYPE_CHECKING, Any, Self

from treadle.base.loop_thread import Facade, LoopOwner, LoopThread, copy_parameters, make_blocking, make_wrapping
from treadle.base.types import ChatId
from treadle.chat.state import ChatState
from treadle.library import agent as runtime
from treadle.library import chat as handle
from treadle.library import command_stream, files, jobs
from treadle.ports.store import Listed
from treadle.protocol.events import Envelope
from treadle.protocol.options import Project
from treadle.protocol.views import JobView

if TYPE_CHECKING:
    from treadle.library.skills.reading import CustomAgent, OwnCommand
    from treadle.library.worlds.worlds import SyncWorlds
    from treadle.protocol.views import RaceResult

__all__ = ["Agent", "Chat", "ChatFiles", "CommandStream", "Job"]


class CommandStream(Facade[command_stream.CommandStream]):
    """A command to a chat. Iterate over it to carry it out and see everything until the chat is idle or waits for
    someone; call it to carry it out and leave. Leaving the iteration stops nothing (law 11)."""

    def __iter__(self) -> Iterator[Envelope]:
        return self._loop.iterate(aiter(self._wrapped))

    def __call__(self) -> ChatState:
        return self._loop.run(_await(self._wrapped))


class ChatFiles(Facade[files.ChatFiles]):
    """The files of one chat's project; see `treadle.library.files.ChatFiles`."""

    runs = make_blocking(files.ChatFiles.runs)
    last_run = make_blocking(files.ChatFiles.last_run)
    changes = make_blocking(files.ChatFiles.changes)
    diff = make_blocking(files.ChatFiles.diff)
    net = make_blocking(files.ChatFiles.net)
    texts = make_blocking(files.ChatFiles.texts)
    preview = make_blocking(files.ChatFiles.preview)
    undo = make_blocking(files.ChatFiles.undo)
    redo = make_blocking(files.ChatFiles.redo)
    keep = make_blocking(files.ChatFiles.keep)
    back_to = make_blocking(files.ChatFiles.back_to)
    find_unfinished_restore = make_blocking(files.ChatFiles.find_unfinished_restore)
    interrupted_call = make_blocking(files.ChatFiles.interrupted_call)
    complete = make_blocking(files.ChatFiles.complete)


class Job(Facade[jobs.Job]):
    """A background command of a chat; see `treadle.library.jobs.Job`."""

    @property
    def view(self) -> JobView:
        return self._wrapped.view

    tail = make_blocking(jobs.Job.tail)
    send = make_blocking(jobs.Job.send)
    stop = make_blocking(jobs.Job.stop)
    look = make_blocking(jobs.Job.look)
    changes = make_blocking(jobs.Job.changes)
    discard = make_blocking(jobs.Job.discard)


class Chat(Facade[handle.Chat]):
    """A handle to one chat; see `treadle.library.chat.Chat`."""

    def __init__(self, loop: LoopThread, chat: handle.Chat) -> None:
        super().__init__(loop, chat)
        self.id, self.warnings = chat.id, chat.warnings

    def open(self) -> Self:
        self._loop.run(self._wrapped.open())
        return self

    @property
    def files(self) -> ChatFiles:
        return ChatFiles(self._loop, self._wrapped.files)

    def jobs(self) -> list[Job]:
        return [Job(self._loop, job) for job in self._loop.run(self._wrapped.jobs())]

    def fork(self, seq: int = 0) -> "Chat":
        return Chat(self._loop, self._loop.run(self._wrapped.fork(seq)))

    def get_chat(self, id: ChatId) -> "Chat":
        return Chat(self._loop, self._wrapped.get_chat(id))

    send = make_wrapping(handle.Chat.send, CommandStream)
    submit = make_wrapping(handle.Chat.submit, CommandStream)
    approve = make_wrapping(handle.Chat.approve, CommandStream)
    deny = make_wrapping(handle.Chat.deny, CommandStream)
    answer = make_wrapping(handle.Chat.answer, CommandStream)
    edit = make_wrapping(handle.Chat.edit, CommandStream)
    apply = make_wrapping(handle.Chat.apply, CommandStream)
    commit_world = make_wrapping(handle.Chat.commit_world, CommandStream)
    run_command = make_wrapping(handle.Chat.run_command, CommandStream)
    commit_job = make_wrapping(handle.Chat.commit_job, CommandStream)
    race = make_wrapping(handle.Chat.race, CommandStream)
    compact = make_wrapping(handle.Chat.compact, CommandStream)
    promote = make_wrapping(handle.Chat.promote, CommandStream)
    edit_queued = make_wrapping(handle.Chat.edit_queued, CommandStream)
    delete_queued = make_wrapping(handle.Chat.delete_queued, CommandStream)
    resume = make_wrapping(handle.Chat.resume, CommandStream)
    arguments = make_blocking(handle.Chat.arguments)
    ask = make_blocking(handle.Chat.ask)
    interrupt = make_blocking(handle.Chat.interrupt)
    command = make_blocking(handle.Chat.command)
    change = make_blocking(handle.Chat.change)
    delete = make_blocking(handle.Chat.delete)
    children = make_blocking(handle.Chat.children)
    export = make_blocking(handle.Chat.export)
    models = make_blocking(handle.Chat.models)
    state = make_blocking(handle.Chat.state)
    status = make_blocking(handle.Chat.status)
    actions = make_blocking(handle.Chat.actions)
    events = make_blocking(handle.Chat.events)
    events_of = make_blocking(handle.Chat.events_of)
    wait = make_blocking(handle.Chat.wait)
    load_full_event = make_blocking(handle.Chat.load_full_event)


class Agent(LoopOwner[runtime.Agent]):
    """The same as `treadle.Agent`, with the same arguments. Close it, or use it in a `with` block."""

    @copy_parameters(runtime.Agent)
    def __init__(self, *args: Any, **keywords: Any) -> None:
        agent = runtime.Agent(*args, **keywords)
        super().__init__(agent)
        self.warnings = agent.warnings

    chat = make_wrapping(runtime.Agent.chat, Chat)

    def jobs(self) -> list[Job]:
        return [Job(self._loop, job) for job in self._loop.run(self._wrapped.jobs())]

    chats = make_blocking(runtime.Agent.chats)
    delete_chat = make_blocking(runtime.Agent.delete_chat)
    choose_model = make_blocking(runtime.Agent.choose_model)
    list_models = make_blocking(runtime.Agent.list_models)
    require_model = make_blocking(runtime.Agent.require_model)

    def remember_model(self, model: str) -> None:
        self._wrapped.remember_model(model)

    @wraps(runtime.Agent.race)
    def race(self, *args: Any, **keywords: Any) -> "RaceResult":
        async def run() -> "RaceResult":
            return await self._wrapped.race(*args, **keywords)

        return self._loop.run(run())

    @property
    def worlds(self) -> "SyncWorlds":
        from treadle.library.worlds.worlds import SyncWorlds

        return SyncWorlds(self._loop, self._wrapped.worlds)

    def own_commands(self, project: Project, *, include_own: bool = True) -> "dict[str, OwnCommand]":
        return self._wrapped.own_commands(project, include_own=include_own)

    def custom_agents(self, project: Project, *, include_own: bool = True) -> "dict[str, CustomAgent]":
        return self._wrapped.custom_agents(project, include_own=include_own)

    def __iter__(self) -> Iterator[Listed]:
        return iter(self.chats())


async def _await(command: command_stream.CommandStream) -> ChatState:
    return await command
