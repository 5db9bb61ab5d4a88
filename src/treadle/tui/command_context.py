"""What commands and lists work with: the app, the connection, the chat. And what the composer may be used for."""

import time
from collections.abc import Mapping
from typing import Any, Literal, Protocol

import msgspec

from treadle.inert import inert_line
from treadle.lines.changes import count
from treadle.tui.app import TreadleApp
from treadle.tui.connection import Asked, ChatLink, Connection, Outcome
from treadle.tui.drawing import Look


class Purpose(msgspec.Struct, frozen=True):
    """What the composer is used for, if not for a message."""

    kind: Literal["feedback", "edit", "queued", "rename"]
    words: str
    asked: Asked | None = None
    arguments: Mapping[str, Any] = {}
    target: str = ""


class CommandContext(Protocol):
    chosen: dict[str, Any]
    """Options for the next chat."""

    @property
    def app(self) -> TreadleApp: ...

    @property
    def connection(self) -> Connection: ...

    def link(self) -> ChatLink:
        """The chat; InvalidInput if there is none yet."""
        ...

    @property
    def root(self) -> str:
        """The project of the chat, or of the next one."""
        ...

    async def open(self, link: ChatLink) -> None: ...

    def ask_for(self, purpose: Purpose, text: str = "") -> None: ...

    async def say(self, text: str, images: Any) -> None: ...

    async def may_see(self, model: str) -> bool:
        """Whether the user knows who gets to see the project, and agrees."""
        ...


def outcome_words(word: str, done: Outcome) -> str:
    """What became of files, in words."""
    if done.error:
        return f"not {word}: {inert_line(done.error, 300)}"
    left = "".join(f"\nleft as it is: {inert_line(each, 200)}" for each in done.conflicts[:5])
    return f"{word}: {count(done.files, 'change')}{left}" if done.files or left else f"there is nothing to be {word}"


def look_of(context: CommandContext, width: int) -> Look:
    """How things are drawn for this width."""
    app = context.app
    return Look(width, time.time_ns() // 1_000_000, dark=app.current_theme.dark, marks=app.marks)
