"""The library without `async`: the same names, driven by one event loop in a thread of its own.

    from treadle.sync import Agent

    with Agent("chats.db") as agent:
        chat = agent.chat(model="openai:gpt-4.1", root=".")
        for event in chat.send("Why does the test fail?"):
            print(event.type, event.data)

Owns the bridge between threads and nothing else: every call is one of `treadle.runtime`. May be used from any number
of threads, not from inside a running event loop.
"""

from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self, Unpack

from treadle import files, handle, runtime
from treadle.chat.state import ChatState
from treadle.errors import InvalidInput
from treadle.files import Choice, Completed, Span
from treadle.handle import Answer
from treadle.lines.hunks import Shown
from treadle.loop_thread import LoopThread
from treadle.ports.hooks import Hooks
from treadle.ports.model import Model, Models
from treadle.ports.policy import Policy
from treadle.ports.snapshots import Plan
from treadle.ports.store import RENEW_S, Listed, Store
from treadle.ports.toolset import Tool
from treadle.protocol.commands import Command, Result
from treadle.protocol.content import Image
from treadle.protocol.events import Delivery, Envelope, Kept, OpenAction, Redone, RestoreRequested, Undone
from treadle.protocol.files import FileChange
from treadle.protocol.options import ChatOptions, OptionKeywords, Preset
from treadle.protocol.permissions import Rule
from treadle.protocol.views import Status
from treadle.types import Clock

__all__ = ["Agent", "Chat", "ChatFiles", "Following"]


class Following:
    """A command to a chat. Iterate over it to carry it out and see everything until the chat is idle or waits for
    someone; call it to carry it out and leave. Leaving the iteration stops nothing (law 11)."""

    def __init__(self, loop: LoopThread, following: handle.Following) -> None:
        self._loop = loop
        self._following = following

    def __iter__(self) -> Iterator[Envelope]:
        events = aiter(self._following)
        try:
            while (envelope := self._loop.run(_next(events))) is not None:
                yield envelope
        finally:
            with suppress(InvalidInput):  # the agent was closed first, and its readers with it
                self._loop.run(_close(events))

    def __call__(self) -> ChatState:
        return self._loop.run(_await(self._following))


class ChatFiles:
    """The files of one chat's project; see `treadle.files.ChatFiles`."""

    def __init__(self, loop: LoopThread, found: files.ChatFiles) -> None:
        self._loop = loop
        self._files = found

    def runs(self) -> list[Span]:
        return self._loop.run(self._files.runs())

    def last_run(self, *, even_kept: bool = False) -> Span:
        return self._loop.run(self._files.last_run(even_kept=even_kept))

    def changes(
        self, span: Span | None = None, paths: Sequence[str] = (), *, even_kept: bool = False
    ) -> tuple[FileChange, ...]:
        return self._loop.run(self._files.changes(span, paths, even_kept=even_kept))

    def diff(self, span: Span | None = None, paths: Sequence[str] = (), *, even_kept: bool = False) -> list[Shown]:
        return self._loop.run(self._files.diff(span, paths, even_kept=even_kept))

    def net(self, steps: Iterable[FileChange]) -> tuple[FileChange, ...]:
        return self._loop.run(self._files.net(steps))

    def preview(self, span: Span | None = None, paths: Sequence[str] = (), **choice: Unpack[Choice]) -> Plan:
        return self._loop.run(self._files.preview(span, paths, **choice))

    def undo(self, span: Span | None = None, paths: Sequence[str] = (), **choice: Unpack[Choice]) -> Undone:
        return self._loop.run(self._files.undo(span, paths, **choice))

    def redo(self, undo: str = "", *, merge: bool = False) -> Redone:
        return self._loop.run(self._files.redo(undo, merge=merge))

    def keep(
        self, span: Span | None = None, paths: Sequence[str] = (), hunks: Mapping[str, Sequence[int]] | None = None
    ) -> Kept:
        return self._loop.run(self._files.keep(span, paths, hunks))

    def back_to(
        self, message: int, *, conversation: bool = True, files: bool = True, merge: bool = False
    ) -> Undone | None:
        return self._loop.run(self._files.back_to(message, conversation=conversation, files=files, merge=merge))

    def begun(self) -> RestoreRequested | None:
        return self._loop.run(self._files.begun())

    def complete(self) -> Completed | None:
        return self._loop.run(self._files.complete())


class Chat:
    """A handle to one chat; see `treadle.handle.Chat`."""

    def __init__(self, loop: LoopThread, chat: handle.Chat) -> None:
        self._loop = loop
        self._chat = chat
        self.id = chat.id

    def open(self) -> Self:
        self._loop.run(self._chat.open())
        return self

    def send(self, content: str, *, delivery: Delivery = "queued", images: Sequence[Image] = ()) -> Following:
        return self._follow(self._chat.send(content, delivery=delivery, images=images))

    def submit(self, results: Mapping[str, Any] | Sequence[Result]) -> Following:
        return self._follow(self._chat.submit(results))

    def approve(
        self, action: OpenAction, *, arguments: dict[str, Any] | None = None, rule: Rule | None = None
    ) -> Following:
        return self._follow(self._chat.approve(action, arguments=arguments, rule=rule))

    def deny(self, action: OpenAction, feedback: str = "", *, rule: Rule | None = None) -> Following:
        return self._follow(self._chat.deny(action, feedback, rule=rule))

    def arguments(self, action: OpenAction) -> dict[str, Any]:
        return self._loop.run(self._chat.arguments(action))

    def answer(self, action: OpenAction | str, text: str) -> Following:
        return self._follow(self._chat.answer(action, text))

    def edit(self, message: int, content: str, *, files: bool = False) -> Following:
        return self._follow(self._chat.edit(message, content, files=files))

    def apply(self, path: str, *, content: str | None = None, block: int = 0) -> Following:
        return self._follow(self._chat.apply(path, content=content, block=block))

    def compact(self) -> Following:
        return self._follow(self._chat.compact())

    def promote(self, queued: str) -> Following:
        return self._follow(self._chat.promote(queued))

    def resume(self, *, after: int | None = None) -> Following:
        return self._follow(self._chat.resume(after=after))

    def ask(self, content: str) -> Answer:
        return self._loop.run(self._chat.ask(content))

    def interrupt(self, by: str = "person") -> None:
        self._loop.run(self._chat.interrupt(by))

    def command(self, command: Command) -> ChatState:
        return self._loop.run(self._chat.command(command))

    @property
    def files(self) -> ChatFiles:
        return ChatFiles(self._loop, self._chat.files)

    def state(self) -> ChatState:
        return self._loop.run(self._chat.state())

    def status(self) -> Status:
        return self._loop.run(self._chat.status())

    def actions(self) -> tuple[OpenAction, ...]:
        return self._loop.run(self._chat.actions())

    def events(self, after: int = 0) -> list[Envelope]:
        return self._loop.run(self._chat.events(after))

    def wait(self, after: int, timeout_s: float) -> int:
        return self._loop.run(self._chat.wait(after, timeout_s))

    def whole(self, envelope: Envelope) -> Envelope:
        return self._loop.run(self._chat.whole(envelope))

    def _follow(self, following: handle.Following) -> Following:
        return Following(self._loop, following)


class Agent:
    """The same as `treadle.Agent`, with the same arguments. Close it, or use it in a `with` block."""

    def __init__(
        self,
        store: Store | Path | str | None = None,
        *,
        model: Model | None = None,
        models: Models | None = None,
        tools: Sequence[Tool] = (),
        builtin: bool = True,
        plugins: bool = False,
        policy: Policy | None = None,
        hooks: Hooks | Sequence[Hooks] = (),
        instructions: bool = True,
        redact: Callable[[str], str] | None = None,
        home: Path | str | None = None,
        accepted: Collection[str] = (),
        options: ChatOptions | None = None,
        clock: Clock | None = None,
        env: Mapping[str, str] | None = None,
        retry_base_s: float = 2.0,
        silence_s: float = 300.0,
        answer_s: float = 3_600.0,
        renew_s: float = RENEW_S,
        concurrency: int = 0,
        relays: bool = False,
    ) -> None:
        self._agent = runtime.Agent(
            store,
            model=model,
            models=models,
            tools=tools,
            builtin=builtin,
            plugins=plugins,
            policy=policy,
            hooks=hooks,
            instructions=instructions,
            redact=redact,
            home=home,
            accepted=accepted,
            options=options,
            clock=clock,
            env=env,
            retry_base_s=retry_base_s,
            silence_s=silence_s,
            answer_s=answer_s,
            renew_s=renew_s,
            concurrency=concurrency,
            relays=relays,
        )
        self._loop = LoopThread()
        self.warnings = self._agent.warnings

    def chat(
        self,
        id: str = "",
        *,
        options: ChatOptions | None = None,
        preset: Preset | None = None,
        **changes: Unpack[OptionKeywords],
    ) -> Chat:
        return Chat(self._loop, self._agent.chat(id, options=options, preset=preset, **changes))

    def chats(self, *, archived: bool | None = None, limit: int = 0) -> list[Listed]:
        return self._loop.run(self._agent.chats(archived=archived, limit=limit))

    def __iter__(self) -> Iterator[Listed]:
        return iter(self.chats())

    def close(self) -> None:
        """Stop driving, give leases back, and end the thread. May be called twice."""
        with suppress(InvalidInput):
            self._loop.run(self._agent.close())
        self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


async def _next(events: AsyncIterator[Envelope]) -> Envelope | None:
    return await anext(events, None)


async def _close(events: AsyncIterator[Envelope]) -> None:
    close = getattr(events, "aclose", None)
    if close is not None:
        await close()


async def _await(following: handle.Following) -> ChatState:
    return await following
