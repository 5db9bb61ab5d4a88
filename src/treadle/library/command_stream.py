"""A command to a chat, to be awaited or followed, and what the run came to. Knows of a chat only what it needs."""

import warnings
from collections.abc import AsyncIterator, Coroutine, Generator
from typing import Any, Literal, Protocol

import msgspec

from treadle.base.types import ChatId
from treadle.chat.state import ChatState
from treadle.errors import RunFailed
from treadle.protocol import commands as c
from treadle.protocol import events as e
from treadle.protocol.content import Usage
from treadle.protocol.events import Envelope
from treadle.protocol.files import FileChange
from treadle.protocol.simple import SimpleView, Word


class Followed(Protocol):
    """A chat, as far as commands to it and its files must know."""

    id: ChatId

    def carry_out(self, command: c.Command | None) -> Coroutine[Any, Any, ChatState]: ...

    def follow(self, command: c.Command | None, after_seq: int | None = None) -> AsyncIterator[Envelope]: ...

    async def load_full_event(self, envelope: Envelope) -> Envelope: ...

    async def state(self) -> ChatState: ...


class Answer(msgspec.Struct, frozen=True):
    """The result of a run, for callers who do not read events."""

    text: str
    reason: e.EndReason | Literal["action_required"]
    usage: Usage
    error: str = ""
    """The error message, or the name of the limit that ended the run. Empty if neither."""


class CommandStream:
    """A command to a chat. Await it to carry it out and leave; iterate over it to carry it out and see everything
    until the chat is idle or waits for someone. Leaving the iteration stops nothing (law 11)."""

    _begun = True  # until `__init__` has all it needs

    def __init__(self, chat: Followed, command: c.Command | None, after_seq: int | None = None) -> None:
        self.chat, self.command, self._after = chat, command, after_seq
        self._begun = False

    def __del__(self) -> None:
        """Warn if the command was never carried out, as Python does for a coroutine never awaited."""
        if not self._begun:
            command_name = type(self.command).__name__ if self.command is not None else "Resume"
            to_do = "await it (in treadle.sync: call it), or iterate over it"
            text = f"{command_name} to chat {self.chat.id} was never carried out: {to_do}"
            warnings.warn(text, RuntimeWarning, stacklevel=2, source=self)

    def resume_after(self, seq: int) -> "CommandStream":
        """The same from `seq`, the last event that you have: after a reconnection none is missed or doubled (D-04)."""
        self._begun = True
        return CommandStream(self.chat, self.command, seq)

    def __await__(self) -> Generator[Any, None, ChatState]:
        self._begun = True
        return self.chat.carry_out(self.command).__await__()

    async def words(self) -> AsyncIterator[Word]:
        """The same as iterating, in six words: text, calls, changed files, the end, errors (A-11)."""
        view = SimpleView()
        async for envelope in self:
            for _, word in view.show(await self.chat.load_full_event(envelope)):
                yield word
        for _, word in view.flush():
            yield word

    def __aiter__(self) -> AsyncIterator[Envelope]:
        self._begun = True
        return self.chat.follow(self.command, self._after)


class Applied(msgspec.Struct, frozen=True):
    """The result of a call that a person made, such as `Chat.apply`: its completion, or None while it waits for an
    answer, and the files that it changed."""

    completion: e.ExecutionComplete | None
    files: tuple[FileChange, ...]


async def collect_changes(following: CommandStream) -> Applied:
    completion: e.ExecutionComplete | None = None
    files: list[FileChange] = []
    async for envelope in following:
        match (await following.chat.load_full_event(envelope)).data:
            case e.ExecutionComplete() as completion:
                pass
            case e.FilesChanged(files=changed_files):
                files += changed_files
    return Applied(completion, tuple(files))


async def collect(following: CommandStream) -> Answer:
    """Return the result of a run: last message, end reason, usage. RunFailed if it ended in an error."""
    text = explanation = ""
    failed: e.SessionError | None = None
    reason: e.EndReason | Literal["action_required"] = "done"
    async for envelope in following:
        match envelope.data:
            case e.UserMessage(source="person", delivery="idle" | "queued"):  # before it, another run was heard out
                text, failed, explanation = "", None, ""
            case e.AssistantMessage(content=content) if content:
                text = content
            case e.ModelCall(purpose="summary", text=summary):
                text = summary
            case e.SessionError() as error:
                failed = error
            case e.SessionIdle(reason=reason, why=explanation):
                pass
            case e.ActionRequired():
                reason = "action_required"
    if failed is not None and reason == "error":
        raise RunFailed(failed.error_class, failed.message)
    state = await following.chat.state()
    return Answer(text, reason, state.totals.usage, failed.message if failed is not None else explanation)
