"""A view of the log in six words, for simple readers (A-11): token, tool_start, tool_done, file_modified, done, error.
A projection that remembers one turn: the text that the reader has already, so that a late reader, one that fell behind,
and a repeated turn all end with the same text, once; and the calls of the turn, each of which gets a tool_start, also
if it was refused or stopped before it could begin."""

from typing import Literal

import msgspec

from treadle.base.types import CallKey
from treadle.protocol import events as e
from treadle.protocol.content import ToolRequest
from treadle.protocol.views import summarize_arguments


class Word(msgspec.Struct, frozen=True, tag_field="type"):
    """One piece of news for simple readers; `type` says which."""


class Token(Word, frozen=True, tag="token"):
    """Text of the model."""

    turn: int
    at: int
    """Where in the text of the turn it goes, in characters. It is what you have already, unless an attempt failed and
    the next one says something else: then cut the text there first."""
    text: str


class ToolStart(Word, frozen=True, tag="tool_start"):
    """A call begins, or would have: one that is refused or stopped before has this and its `tool_done`."""

    call: CallKey
    name: str
    args_summary: str  # one line: its path or command, or its arguments


class FileModified(Word, frozen=True, tag="file_modified"):
    """A file was changed: by a call, which is told done behind this, or by an undo or redo."""

    path: str
    action: Literal["created", "modified", "deleted"]


class ToolDone(Word, frozen=True, tag="tool_done"):
    """A call has ended."""

    call: CallKey
    success: bool
    result_summary: str


class RunDone(Word, frozen=True, tag="done"):
    """A run has ended."""

    reason: e.EndReason
    why: str = ""  # the same in words, where the reason does not say all


class Failed(Word, frozen=True, tag="error"):
    """The run cannot go on; `done` follows."""

    error_class: str = msgspec.field(name="class")
    message: str


WORDS = (Token, ToolStart, FileModified, ToolDone, RunDone, Failed)
Said = tuple[int, Word]
"""A word, and the seq up to which the reader has everything with it; 0 if more of the same event is to come, or if the
word is live."""


class SimpleView:
    """One reader's view. Give it every envelope of the chat, in order."""

    def __init__(self) -> None:
        self._text = _Text()
        self._held: tuple[int, ToolDone] | None = None  # in the log the files of a call follow its result
        self._requests: dict[CallKey, ToolRequest] = {}  # the calls of the turn that have not begun
        self._tried: set[CallKey] = set()  # calls of the turn that were tried: to simple readers their beginning

    def show(self, envelope: e.Envelope) -> list[Said]:
        seq, words = envelope.seq, self._make_words(envelope.data)
        pending, self._held = self._held, None
        if pending is not None and isinstance(envelope.data, e.FilesChanged) and envelope.data.call == pending[1].call:
            return [*((0, word) for word in words), (seq, pending[1])]
        said_words: list[Said] = [*(() if pending is None else (pending,)), *((0, word) for word in words[:-1])]
        if words and isinstance(words[-1], ToolDone):
            self._held = (seq, words[-1])
            return said_words
        return [*said_words, *((seq, word) for word in words[-1:])]

    def flush(self) -> list[Said]:
        """Return the word that is held back; called when no other event is expected soon."""
        pending, self._held = self._held, None
        return [] if pending is None else [pending]

    @property
    def holds(self) -> bool:
        return self._held is not None

    def _make_words(self, data: e.Event) -> list[Word]:
        match data:
            case e.TurnStart(turn=turn):
                self._text.begin(turn)
                return []
            case e.AssistantReset() | e.TurnRetry():
                self._text.restart()
                return []
            case e.MessageDelta(turn=turn, text=text):
                return self._text.add(turn, text)
            case e.AssistantMessage(turn=turn, content=content, tool_requests=requests):
                self._requests = {request.call: request for request in requests}
                self._tried.clear()
                return self._text.end(turn, content)
            case e.ModelCall(purpose="summary", text=text) if text:
                return [Token(0, 0, text)]
            case e.TrialStart(call=call, name=name, args_summary=summary):
                start_words = self._show_start(call, name, summary)
                self._tried.add(call)
                return start_words
            case e.ExecutionStart(call=call, name=name, args_summary=summary):
                return self._show_start(call, name, summary)
            case e.ExecutionComplete(call=call, success=success, result_summary=summary):
                return [*self._start_call(call), ToolDone(call, success, summary)]
            case e.FilesChanged(files=files) | e.Undone(files=files) | e.Redone(files=files):
                return [FileModified(file.path, file.action) for file in files]
            case e.SessionIdle(reason=reason, why=explanation):
                return [RunDone(reason, explanation)]
            case e.SessionError(error_class=error_class, message=message):
                return [*self._text.drop(), Failed(error_class, message)]
            case _:
                return []

    def _show_start(self, call: CallKey, name: str, summary: str) -> list[Word]:
        start_words = self._start_call(call, name, summary)
        return start_words if start_words or call in self._tried else [ToolStart(call, name, summary)]

    def _start_call(self, call: CallKey, name: str = "", summary: str = "") -> list[Word]:
        """The beginning of a call whose request was seen; nothing if it has been told."""
        if (request := self._requests.pop(call, None)) is None:
            return []
        return [ToolStart(call, name or request.name, summary or summarize_arguments(request.arguments))]


class _Text:
    """The part of a turn's text that the reader has. After a failed attempt it is compared with the text of the next
    attempt, and only the difference is sent."""

    def __init__(self) -> None:
        self._turn = 0
        self._pieces: list[str] = []
        self._length = 0
        self._old: str | None = None  # the reader's text of an earlier attempt, while the new one has the same
        self._place = 0  # how much of it was said again

    def begin(self, turn: int) -> None:
        if turn != self._turn:
            self._turn = turn
            self._set("")
        self.restart()

    def restart(self) -> None:
        self._old, self._place = self._get_shown_text() or None, 0

    def add(self, turn: int, text: str) -> list[Word]:
        if turn != self._turn:
            self.begin(turn)
        if self._old is None:
            return self._say(self._length, text)
        common_length = _measure_common_prefix(self._old[self._place : self._place + len(text)], text)
        self._place += common_length
        if common_length == len(text):
            return []
        return self._replace(self._old[: self._place], text[common_length:])

    def end(self, turn: int, content: str) -> list[Word]:
        """The whole text, as it is recorded."""
        if turn != self._turn:
            self.begin(turn)
        had = self._get_shown_text()
        common_length = _measure_common_prefix(had, content)
        words = [] if had == content else self._replace(content[:common_length], content[common_length:])
        self._turn = 0
        self._set("")
        return words

    def drop(self) -> list[Word]:
        """The turn came to nothing."""
        turn, had = self._turn, self._get_shown_text()
        self._turn = 0
        self._set("")
        return [Token(turn, 0, "")] if had else []

    def _replace(self, prefix: str, text: str) -> list[Word]:
        self._set(prefix)
        return self._say(len(prefix), text)

    def _say(self, at: int, text: str) -> list[Word]:
        self._pieces.append(text)
        self._length += len(text)
        return [Token(self._turn, at, text)]

    def _get_shown_text(self) -> str:
        return "".join(self._pieces) if self._old is None else self._old

    def _set(self, text: str) -> None:
        self._pieces, self._length = [text], len(text)
        self._old = None


def _measure_common_prefix(one: str, second: str) -> int:
    if second.startswith(one):
        return len(one)
    pairs = enumerate(zip(one, second, strict=False))
    return next((place for place, (left, right) in pairs if left != right), min(len(one), len(second)))
