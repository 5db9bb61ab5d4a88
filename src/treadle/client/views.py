"""What a server says of chats, as far as a client needs it. Fields that a newer server adds are passed over."""

from typing import Literal

import msgspec

from treadle.protocol.content import Failure, Usage
from treadle.protocol.events import OpenAction
from treadle.protocol.files import FileChange, FileConflict
from treadle.protocol.options import ChatOptions
from treadle.protocol.views import Status


class ChatLine(msgspec.Struct, frozen=True, kw_only=True):
    """One line about a chat."""

    id: str
    status: Status
    title: str = ""
    model: str = ""
    root: str = ""
    archived: bool = False
    labels: tuple[str, ...] = ()
    head: int = 0
    """The seq of the last event."""
    created: str = ""
    updated: str = ""
    turns: int = 0
    usage: Usage = Usage()
    last_error: Failure | None = None
    """Why it is in `error`; None if it is not."""


class Queued(msgspec.Struct, frozen=True):
    """A message that waits for its turn."""

    id: str
    content: str = ""


class ChatInfo(ChatLine, frozen=True, kw_only=True):
    """A chat as it is now."""

    options: ChatOptions = ChatOptions()
    queue: tuple[Queued, ...] = ()
    actions: tuple[OpenAction, ...] = ()
    """What it waits for."""
    last_end: str = ""
    """Why the last run ended."""
    last_why: str = ""
    """The same in words, where it does not say all: at a budget, which one, and how much of it is used."""
    warnings: tuple[str, ...] = ()
    """What is odd about the options of a new chat (A-01)."""


class Accepted(msgspec.Struct, frozen=True, kw_only=True):
    """What a command made of the chat."""

    chat: str
    status: Status
    head: int = 0
    queued: str = ""
    """The id of the message in the queue, if it was queued."""
    restore: str = ""
    """The name of the restoring of files that was asked for."""


class ChatPage(msgspec.Struct, frozen=True):
    chats: tuple[ChatLine, ...]
    next: str = ""


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of the conversation."""

    place: int
    role: Literal["user", "assistant", "tool"]
    seq: int = 0
    turn: int = 0
    content: str = ""


class MessagePage(msgspec.Struct, frozen=True):
    messages: tuple[Message, ...]
    total: int = 0


class FileRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run that changed files, or might have."""

    run: int
    message: int
    content: str = ""


class RunPage(msgspec.Struct, frozen=True):
    runs: tuple[FileRun, ...]
    total: int = 0


class FileHunk(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a change, by the number that `undo` and `keep` take."""

    number: int
    header: str = ""
    lines: tuple[str, ...] = ()


class ChangedFile(msgspec.Struct, frozen=True, kw_only=True):
    """What is left of a chat's changes of one file."""

    path: str
    action: Literal["created", "modified", "deleted"]
    added: int = 0
    removed: int = 0
    notes: tuple[str, ...] = ()
    hunks: tuple[FileHunk, ...] = ()
    cut: bool = False
    """Whether hunks were left out because there are too many."""


class ChangesPage(msgspec.Struct, frozen=True):
    files: tuple[ChangedFile, ...]
    total: int = 0


class Restoration(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the files, or would. With a `status` it is not known yet: nobody has carried it out so far."""

    restore: str = ""
    """Its name; of an undo, what a redo refers to."""
    status: str = ""
    files: tuple[FileChange, ...] = ()
    total: int = 0
    conflicts: tuple[FileConflict, ...] = ()
    """What was left alone, and why."""
    error: str = ""
    """Why nothing was done at all."""
