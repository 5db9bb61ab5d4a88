"""The commands that callers may send to a chat, as imperatives. `treadle.chat.transitions` turns each into events or
refuses it; nothing else changes a chat from outside."""

from typing import Any, Literal

import msgspec

from treadle.protocol.content import Image, Usage, Value
from treadle.protocol.events import Delivery, FilesChanged, RestoreKind
from treadle.protocol.permissions import Rule
from treadle.protocol.tool_events import CommandEnding


class Send(Value, tag="send", frozen=True):
    """Say something. On an idle chat it starts a run; on a busy one it queues, or steers (L-08)."""

    content: str
    delivery: Delivery = "queued"  # if the chat is busy: queue the message, or steer the run with it
    images: tuple[Image, ...] = ()
    queue_id: str = ""  # the id under which it queues; chosen by the caller
    traceparent: str = ""  # The span from which it is sent, in the W3C format. An invalid value is ignored.


class Result(Value, frozen=True):
    """A client's answer to one call of its tools (A-03)."""

    tool_call_id: str
    output: Any = None
    is_error: bool = False
    failure: Literal["", "rejected", "denied", "timeout"] = ""  # of an error: a person, a rule or the time ended it


class SubmitResults(Value, tag="submit_results", frozen=True):
    results: tuple[Result, ...]
    by: str = "client"


class Decide(Value, tag="decide", frozen=True):
    """Answer an approval. `hash` must be the one that was shown (S-08)."""

    action: str
    decision: Literal["allow", "deny"]
    hash: str
    feedback: str = ""
    arguments: dict[str, Any] | None = None
    by: str = "person"
    rule: Rule | None = None  # the standing answer that this one becomes: one that was offered, or narrower (S-07)


class Answer(Value, tag="answer", frozen=True):
    """Answer a question."""

    action: str
    answer: str
    by: str = "person"


class Interrupt(Value, tag="interrupt", frozen=True):
    by: str = "person"


class Edit(Value, tag="edit", frozen=True):
    """Replace an earlier user message and run again from there (L-09)."""

    message: int  # the seq of the message
    content: str
    files: bool = False  # True if the files are restored to that point first
    restore: str = ""  # a name for that, chosen by the caller


class Rewind(Value, tag="rewind", frozen=True):
    """Go back to before an earlier message, without another one in its place: the conversation, the files, or both
    (W-03)."""

    message: int
    conversation: bool = True
    files: bool = True
    restore: str = ""
    merge: bool = False
    by: str = "person"


class Restore(Value, tag="restore", frozen=True):
    """Undo, redo or keep changes of files; see `treadle.protocol.workspace_events.RestoreRequested`."""

    restore: str  # its name, chosen by the caller
    kind: RestoreKind = "undo"
    since: int = 0
    upto: int = 0
    paths: tuple[str, ...] = ()
    hunks: dict[str, tuple[int, ...]] = msgspec.field(default_factory=dict)
    merge: bool = False
    even_kept: bool = False
    of: str = ""  # for a redo: the undo that it takes back
    by: str = "person"


class EditQueued(Value, tag="edit_queued", frozen=True):
    id: str
    content: str


class DeleteQueued(Value, tag="delete_queued", frozen=True):
    id: str


class Promote(Value, tag="promote", frozen=True):
    """Make a queued message the next one; on a busy chat it steers, on an idle one it starts a run."""

    id: str


class ExtendTurns(Value, tag="extend_turns", frozen=True):
    turns: int = 20
    by: str = "person"


class ChangeOptions(Value, tag="change_options", frozen=True):
    changes: dict[str, Any]
    by: str = "person"


class Rename(Value, tag="rename", frozen=True):
    title: str
    by: str = "person"


class RecordTitle(Value, tag="record_title", frozen=True):
    """Record the title that a model made, and what the call cost. The chat is renamed only if it is still called
    `before`."""

    title: str
    before: str
    usage: Usage = Usage()
    error: str = ""


class Compact(Value, tag="compact", frozen=True):
    """Ask for a compaction now."""


class Race(Value, frozen=True):
    """Several attempts at one task, of which the best is kept (L-22)."""

    task: str
    models: tuple[str, ...]  # one for each attempt
    check: str = ""  # a command that must succeed in the world of an attempt
    judge: str = ""  # the model that chooses; empty: the first that passes the check, or the smallest change
    all: bool = False  # True if every attempt runs to its end even after one has passed the check


class Apply(Value, tag="apply", frozen=True):
    """Write a text, or a fenced block of the last answer, to a file, apply a patch, commit a world, run a command or
    a race, without asking the model (L-18)."""

    path: str = ""  # the file; a patch names its files itself
    content: str | None = None  # the text; None: a block of the last answer
    block: int = 0  # which block, from 1; 0: the only one
    patch: str | None = None  # a patch, unified or in the envelope, in place of a text and a path: all of it or nothing
    world: str = ""  # or a world of the folder in which the chat works: its changes are committed (W-12)
    command: str | None = None  # or a command line
    race: Race | None = None  # or attempts at a task, each in a world of its own (L-22)
    job: str = ""  # or the handle of a background command of this chat: its changes that are not committed yet (W-10)


class CloseJob(Value, tag="close_job", frozen=True):
    """Record that a background command has ended, and the changes that it made. Sent by a process that can observe the
    command. If the end is already recorded, this changes nothing. With `settlement`: record the outcome of the changes
    that were still pending at the end."""

    job: str
    ending: CommandEnding
    code: int = 0
    by: str = ""
    concerns: tuple[str, ...] = ()
    files_changed: FilesChanged | None = None
    pending: int = 0  # how many files it changed that are not committed yet
    settlement: Literal["", "committed", "refused", "discarded"] = ""


class Expire(Value, tag="expire", frozen=True):
    """Close the actions whose deadline has passed. Time comes in as data (A-05)."""

    now_ms: int


Command = (
    Send | SubmitResults | Decide | Answer | Interrupt | Edit | Rewind | Restore | EditQueued | DeleteQueued | Promote
    | ExtendTurns | ChangeOptions | Rename | RecordTitle | Compact | Apply | CloseJob | Expire
)  # fmt: skip
msgspec.json.Decoder(Command)  # threads must not learn a type at once: see `protocol.wire`
