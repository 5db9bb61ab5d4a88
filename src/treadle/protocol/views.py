"""Short views of a log: the summary of a chat, live text coalesced for a screen (U-02), finished calls as one line, the
result of a race. Projections only: everything here can be derived again from events. The view for simple readers is in
`simple`."""

import re
from collections import Counter
from collections.abc import Iterable
from typing import Literal, get_args

import msgspec

from treadle.base.types import CallKey, ChatId
from treadle.errors import RunFailed
from treadle.protocol import events as e
from treadle.protocol.content import Failure, Image, Usage, Value
from treadle.protocol.events import Delivery, EndReason
from treadle.protocol.files import FileChange, FileConflict
from treadle.protocol.tool_events import CommandEnding

Status = Literal["idle", "pending", "running", "interrupting", "requires_action", "error"]
STATUSES: tuple[Status, ...] = get_args(Status)


def get_shown_status(recorded_status: Status, leased: bool) -> Status:
    """A chat whose worker died is pending, not running (A-08)."""
    return "pending" if recorded_status == "running" and not leased else recorded_status


class QueueItem(Value, frozen=True):
    id: str
    content: str
    delivery: Delivery = "queued"
    images: tuple[Image, ...] = ()
    after_stop: bool = False  # True if it came after the stop of a run and before its end: it replaces the stopped task
    traceparent: str = ""


class JobView(Value, frozen=True):
    """A background command of a chat."""

    chat: ChatId
    job: str  # its handle, by which the chat's model and people name it
    command: str  # in one line
    status: CommandEnding | Literal["running", "elsewhere"]
    """elsewhere: it runs, or ran, on another machine or in another home, where alone it can be reached."""
    code: int = 0  # the exit code; -N if signal N ended it
    began_ms: int = 0
    ended_ms: int = 0
    size: int = 0  # how many bytes it has written
    host: str = ""  # the name of the machine that it is on
    pending: int = 0  # how many files it changed that are not committed to the project, once it has ended


class JobChanges(Value, frozen=True):
    """The changes of an ended background command on its view that are not committed to the project (W-10)."""

    job: JobView
    files: tuple[FileChange, ...] = ()
    conflicts: tuple[FileConflict, ...] = ()
    diff: str = ""  # the changes for people, bounded


class JobOutput(Value, frozen=True):
    """A piece of what a job has written, without escape sequences and secrets."""

    text: str
    offset: int
    next: int  # the byte behind it, from which to go on
    size: int  # how many bytes there are by now


class ChatSummary(Value, frozen=True):
    """One line about a chat; kept beside the log in the same transaction, and always derivable from it."""

    chat: ChatId
    status: Status = "idle"
    head: int = 0
    runnable: bool = False  # True if a worker has something to do
    wake_ms: int = 0  # when a worker has something to do even though nothing happens; 0 for never
    title: str = ""
    model: str = ""
    root: str = ""
    owner: str = ""
    archived: bool = False
    labels: tuple[str, ...] = ()
    created_ms: int = 0
    updated_ms: int = 0
    turns: int = 0
    usage: Usage = Usage()
    parent: str = ""  # `chat/call` of the call that began it, if one did
    last_error: Failure | None = None  # why the chat is in `error`; its sentence may be cut
    deleted: bool = False  # The chat was deleted. This line is all that is left of it.


class ChildView(Value, frozen=True):
    """A chat that a call of another one began: a sub-agent, an attempt of a race."""

    chat: ChatId
    parent: ChatId
    call: CallKey
    number: int  # which of the call's chats it is, from 1
    depth: int = 1
    title: str = ""
    model: str = ""
    world: str = ""  # the world in which it works; empty: it only reads
    status: Status | Literal["not begun"] = "not begun"
    ended: EndReason | Literal[""] = ""  # how its last run ended
    turns: int = 0
    usage: Usage = Usage()
    doing: str = ""  # the tools that it uses just now
    waits: tuple[str, ...] = ()  # the open actions that a person must answer, in that chat
    labels: tuple[str, ...] = ()


_TELLING = ("command", "path", "file_path")
_SUMMARY = 120


def summarize_arguments(arguments: str) -> str:
    """One line for a call, as the model wrote it: one that is refused or stopped has no intent in the log."""
    text = arguments
    try:
        decoded = msgspec.json.decode(arguments)
    except msgspec.MsgspecError:
        decoded = None
    if isinstance(decoded, dict):
        candidates = [decoded[name] for name in _TELLING if name in decoded] or list(decoded.values()) or [""]
        text = candidates[0] if isinstance(candidates[0], str) else msgspec.json.encode(candidates[0]).decode()
    line = text.strip().partition("\n")[0]
    return line if len(line) <= _SUMMARY else line[: _SUMMARY - 1] + "…"


_WORD = re.compile(r"\w")


class Coalescer:
    """Holds live text back so that a screen is updated at most once in 32 ms. The first update waits for 8 word
    characters, later ones for 1; deltas come out, never the whole text again (U-02)."""

    INTERVAL_S = 0.032
    FIRST = 8

    def __init__(self) -> None:
        self._held: list[str] = []
        self._words = 0
        self._need = self.FIRST
        self._last = float("-inf")

    def feed(self, text: str, now_s: float) -> str:
        """Take a delta; give back what is to be shown now, or nothing."""
        self._held.append(text)
        if self._words < self._need:
            self._words += sum(1 for _ in _WORD.finditer(text))
        return self.take_due(now_s)

    def take_due(self, now_s: float) -> str:
        """Return the text to show now; call it again after the interval when text is held."""
        if self._words < self._need or now_s - self._last < self.INTERVAL_S:
            return ""
        self._last = now_s
        self._need = 1
        return self.flush()

    def flush(self) -> str:
        """Everything that is held: at the end of a message."""
        text = "".join(self._held)
        self._held.clear()
        self._words = 0
        return text

    def reset(self) -> None:
        """Forget what is held, as at a retry or the beginning of a message."""
        self.flush()
        self._need = self.FIRST
        self._last = float("-inf")


_DEEDS: dict[str, tuple[str, str, str]] = {
    "read_file": ("read", "file", "files"),
    "read_output": ("read", "output", "outputs"),
    "list_directory": ("listed", "folder", "folders"),
    "find_files": ("searched", "time", "times"),
    "grep_search": ("searched", "time", "times"),
    "get_diagnostics": ("looked for errors", "time", "times"),
    "write_file": ("wrote", "file", "files"),
    "edit_file": ("edited", "time", "times"),
    "apply_patch": ("edited", "time", "times"),
    "run_command": ("ran", "command", "commands"),
}
QUIET = frozenset({"task_complete", "update_plan", "ask_user"})  # tools that front ends show in another way


class Progress:
    """Finished calls in short: those that follow each other without a word in between, as one line, such as `read 6
    files, searched 3 times, ran 2 commands`. Takes the events of a chat in order, and gives the line about a group of
    calls when the group has ended."""

    def __init__(self) -> None:
        self._names: dict[CallKey, str] = {}
        self._done: Counter[tuple[str, str, str]] = Counter()
        self._failed = 0

    def take(self, event: e.Event) -> str:
        """The line about the group that this event ends; empty if it ends none."""
        match event:
            case e.AssistantMessage(content=content, tool_requests=requests):
                line = self.flush() if content.strip() else ""
                self._names = {request.call: request.name for request in requests}
                return line
            case e.ExecutionComplete(call=call, success=success):
                name = self._names.get(call, "")
                if name not in QUIET:
                    self._done[_DEEDS.get(name, (f"called {name or 'a tool'}", "time", "times"))] += 1
                    self._failed += not success
                return ""
            case e.UserMessage() | e.TaskComplete() | e.RunEnd():
                return self.flush()
            case _:
                return ""

    def flush(self) -> str:
        """The line about what has not been told yet."""
        parts = [f"{verb} {n:,} {one if n == 1 else many}" for (verb, one, many), n in self._done.items()]
        if self._failed:
            parts.append(f"{self._failed:,} failed")
        self._done.clear()
        self._failed = 0
        return ", ".join(parts)


class RaceResult(Value, frozen=True):
    """The result of a race. `chat.files.undo()` of its chat undoes it."""

    chat: str
    winner: int  # the number of the attempt that won; 0: none did
    text: str  # the same in words, with a line for each attempt
    attempts: tuple[e.SubagentCompleted, ...]
    files: tuple[FileChange, ...] = ()
    committed: bool = False


def build_race_result(chat: str, events: Iterable[e.Envelope]) -> RaceResult:
    """From the log of a race. RunFailed if it came to nothing."""
    race_result = RaceResult(chat, 0, "", ())
    for envelope in events:
        match envelope.data:
            case e.ExecutionComplete(result=result, error=error, success=success):
                race_result = msgspec.structs.replace(race_result, text=result or error, committed=success)
            case e.SubagentCompleted(committed=committed, number=number) as one:
                winner, attempts = number if committed else race_result.winner, (*race_result.attempts, one)
                race_result = msgspec.structs.replace(race_result, attempts=attempts, winner=winner)
            case e.FilesChanged(files=files):
                race_result = msgspec.structs.replace(race_result, files=files)
            case e.SessionError(error_class=kind, message=message):
                raise RunFailed(kind, message)
    return race_result
