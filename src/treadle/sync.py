"""The library without `async`: the same names, driven by one event loop in a thread of its own (docs/guide/library.md).

Every method is that of the class of the same name in `treadle.library.agent`, `chat`, `files` and `jobs`, waited
for. May be used from any number of threads, not from inside a running event loop."""

from collections.abc import Callable, Iterator
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, Unpack

from treadle.base.loop_thread import Facade, LoopOwner, LoopThread, same_parameters, waited
from treadle.base.types import ChatId
from treadle.chat.state import ChatState
from treadle.library import agent as runtime
from treadle.library import chat as handle
from treadle.library import command_stream, files, jobs
from treadle.ports.store import Listed
from treadle.protocol.events import Envelope
from treadle.protocol.options import ChatOptions, OptionKeywords, Preset, Project
from treadle.protocol.views import JobView

if TYPE_CHECKING:
    from treadle.library.skills.reading import CustomAgent, OwnCommand
    from treadle.library.worlds.worlds import SyncWorlds
    from treadle.protocol.race_results import RaceResult

__all__ = ["Agent", "Chat", "ChatFiles", "CommandStream", "Job"]

P = ParamSpec("P")


class CommandStream(Facade[command_stream.CommandStream]):
    """A command to a chat. Iterate over it to carry it out and see everything until the chat is idle or waits for
    someone; call it to carry it out and leave. Leaving the iteration stops nothing (law 11)."""

    def __iter__(self) -> Iterator[Envelope]:
        return self._loop.each(aiter(self._wrapped))

    def __call__(self) -> ChatState:
        return self._loop.run(_await(self._wrapped))


def _followed(
    method: Callable[Concatenate[Any, P], command_stream.CommandStream],
) -> Callable[Concatenate[Any, P], CommandStream]:
    """A method of a chat that makes a command: to be carried out, and followed."""

    @wraps(method)
    def call(facade: Facade[Any], /, *args: P.args, **keywords: P.kwargs) -> CommandStream:
        return CommandStream(facade._loop, method(facade._wrapped, *args, **keywords))

    return call


class ChatFiles(Facade[files.ChatFiles]):
    """The files of one chat's project; see `treadle.library.files.ChatFiles`."""

    runs = waited(files.ChatFiles.runs)
    last_run = waited(files.ChatFiles.last_run)
    changes = waited(files.ChatFiles.changes)
    diff = waited(files.ChatFiles.diff)
    net = waited(files.ChatFiles.net)
    texts = waited(files.ChatFiles.texts)
    preview = waited(files.ChatFiles.preview)
    undo = waited(files.ChatFiles.undo)
    redo = waited(files.ChatFiles.redo)
    keep = waited(files.ChatFiles.keep)
    back_to = waited(files.ChatFiles.back_to)
    find_unfinished_restore = waited(files.ChatFiles.find_unfinished_restore)
    interrupted_call = waited(files.ChatFiles.interrupted_call)
    complete = waited(files.ChatFiles.complete)


class Job(Facade[jobs.Job]):
    """A background command of a chat; see `treadle.library.jobs.Job`."""

    @property
    def view(self) -> JobView:
        return self._wrapped.view

    tail = waited(jobs.Job.tail)
    send = waited(jobs.Job.send)
    stop = waited(jobs.Job.stop)
    look = waited(jobs.Job.look)
    changes = waited(jobs.Job.changes)
    discard = waited(jobs.Job.discard)


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

    send = _followed(handle.Chat.send)
    submit = _followed(handle.Chat.submit)
    approve = _followed(handle.Chat.approve)
    deny = _followed(handle.Chat.deny)
    answer = _followed(handle.Chat.answer)
    edit = _followed(handle.Chat.edit)
    apply = _followed(handle.Chat.apply)
    commit_world = _followed(handle.Chat.commit_world)
    run_command = _followed(handle.Chat.run_command)
    commit_job = _followed(handle.Chat.commit_job)
    race = _followed(handle.Chat.race)
    compact = _followed(handle.Chat.compact)
    promote = _followed(handle.Chat.promote)
    edit_queued = _followed(handle.Chat.edit_queued)
    delete_queued = _followed(handle.Chat.delete_queued)
    resume = _followed(handle.Chat.resume)
    arguments = waited(handle.Chat.arguments)
    ask = waited(handle.Chat.ask)
    interrupt = waited(handle.Chat.interrupt)
    command = waited(handle.Chat.command)
    change = waited(handle.Chat.change)
    delete = waited(handle.Chat.delete)
    children = waited(handle.Chat.children)
    export = waited(handle.Chat.export)
    models = waited(handle.Chat.models)
    state = waited(handle.Chat.state)
    status = waited(handle.Chat.status)
    actions = waited(handle.Chat.actions)
    events = waited(handle.Chat.events)
    events_of = waited(handle.Chat.events_of)
    wait = waited(handle.Chat.wait)
    load_full_event = waited(handle.Chat.load_full_event)


class Agent(LoopOwner[runtime.Agent]):
    """The same as `treadle.Agent`, with the same arguments. Close it, or use it in a `with` block."""

    @same_parameters(runtime.Agent)
    def __init__(self, *args: Any, **keywords: Any) -> None:
        agent = runtime.Agent(*args, **keywords)
        super().__init__(agent)
        self.warnings = agent.warnings

    def chat(
        self,
        id: str = "",
        *,
        options: ChatOptions | None = None,
        preset: Preset | None = None,
        **changes: Unpack[OptionKeywords],
    ) -> Chat:
        return Chat(self._loop, self._wrapped.chat(id, options=options, preset=preset, **changes))

    def jobs(self) -> list[Job]:
        return [Job(self._loop, job) for job in self._loop.run(self._wrapped.jobs())]

    chats = waited(runtime.Agent.chats)
    delete_chat = waited(runtime.Agent.delete_chat)
    choose_model = waited(runtime.Agent.choose_model)
    list_models = waited(runtime.Agent.list_models)
    require_model = waited(runtime.Agent.require_model)

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
