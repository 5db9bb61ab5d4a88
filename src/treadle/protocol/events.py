"""The facts of a chat, as they are recorded and as they go over the wire (spec V-01 to V-05).

The list is closed: an event that is not here does not exist. Names follow the Copilot SDK where it has one. A
change of shape is a new VERSION of the type with an upcaster in `wire`; golden files guard that (V-06).
Knows nothing of state: `treadle.chat.fold` defines the meaning of each event."""

from typing import Any, Literal

import msgspec

from treadle.base.types import CallKey
from treadle.protocol.content import BlobHash, Image, Plan, PlanStep, Thinking, ToolRequest, Usage
from treadle.protocol.envelope import EndReason as EndReason
from treadle.protocol.envelope import Envelope as Envelope
from treadle.protocol.envelope import Event as Event
from treadle.protocol.envelope import Live as Live
from treadle.protocol.files import DiffStat as DiffStat
from treadle.protocol.files import FileChange as FileChange
from treadle.protocol.live_events import ActionRequired as ActionRequired
from treadle.protocol.live_events import AssistantReset as AssistantReset
from treadle.protocol.live_events import ExecutionOutput as ExecutionOutput
from treadle.protocol.live_events import MessageDelta as MessageDelta
from treadle.protocol.live_events import OpenAction as OpenAction
from treadle.protocol.live_events import ReasoningDelta as ReasoningDelta
from treadle.protocol.live_events import SessionIdle as SessionIdle
from treadle.protocol.live_events import ToolCallDelta as ToolCallDelta
from treadle.protocol.live_events import UsageInfo as UsageInfo
from treadle.protocol.options import ChatOptions
from treadle.protocol.subagent_events import SubagentCompleted as SubagentCompleted
from treadle.protocol.tool_events import HEADLESS as HEADLESS
from treadle.protocol.tool_events import ExecutionComplete as ExecutionComplete
from treadle.protocol.tool_events import ExecutionStart as ExecutionStart
from treadle.protocol.tool_events import ExternalToolCompleted as ExternalToolCompleted
from treadle.protocol.tool_events import ExternalToolRequested as ExternalToolRequested
from treadle.protocol.tool_events import JobEnded as JobEnded
from treadle.protocol.tool_events import JobSettled as JobSettled
from treadle.protocol.tool_events import JobStarted as JobStarted
from treadle.protocol.tool_events import PermissionCompleted as PermissionCompleted
from treadle.protocol.tool_events import PermissionRequested as PermissionRequested
from treadle.protocol.tool_events import TrialStart as TrialStart
from treadle.protocol.tool_events import UserInputCompleted as UserInputCompleted
from treadle.protocol.tool_events import UserInputRequested as UserInputRequested
from treadle.protocol.workspace_events import ChangesKept as ChangesKept
from treadle.protocol.workspace_events import CheckpointCreated as CheckpointCreated
from treadle.protocol.workspace_events import FilesChanged as FilesChanged
from treadle.protocol.workspace_events import GitBranchCreated as GitBranchCreated
from treadle.protocol.workspace_events import Redone as Redone
from treadle.protocol.workspace_events import Restored as Restored
from treadle.protocol.workspace_events import RestoreKind as RestoreKind
from treadle.protocol.workspace_events import RestoreRequested as RestoreRequested
from treadle.protocol.workspace_events import Undone as Undone
from treadle.protocol.workspace_events import WorkspaceConflict as WorkspaceConflict

Delivery = Literal["idle", "queued", "steering"]
Source = Literal["person", "autopilot", "check", "guard", "apply"]
LimitKind = Literal["turns", "tokens", "usd", "wall_s", "tool_calls"]
Scope = Literal["run", "chat"]
Trigger = Literal["threshold", "context_limit", "manual"]
Purpose = Literal["compaction", "title", "summary", "sampling"]


# -- the conversation (V-01) ------------------------------------------------------------------------------------


class SessionCreated(Event, frozen=True):
    """A chat begins. Always the first event."""

    TYPE = "session.created"
    VERSION = 5
    options: ChatOptions
    owner: str = ""
    forked_from: str = ""
    """`chat@seq` when this chat began as a copy of another."""
    parent: str = ""
    """`chat/call` when a call of another chat began this one: a sub-agent, or an attempt of a race."""


class SessionImported(Event, frozen=True):
    """The chat was imported from an export. The events before this one happened elsewhere, to files that are not here:
    none of them can be undone here, and the state of the shell there (variables, folder) no longer holds."""

    TYPE = "session.imported"
    origin: str = ""
    """The id that the chat had there."""
    by: str = "person"


class UserMessage(Event, frozen=True):
    """Said to the model: by a person, or by Treadle in the user's place. On an idle chat it begins a run. With the
    source `apply` a person wrote a text to a file: the run is that one call, and no model is asked (L-18)."""

    TYPE = "user.message"
    VERSION = 3
    content: str
    delivery: Delivery = "idle"
    source: Source = "person"
    images: tuple[Image, ...] = ()
    queue_id: str = ""
    """The queued message that this was, if it was one."""
    edits: int = 0
    """The seq of the message that this one replaces; the conversation is cut there (L-09)."""
    traceparent: str = ""
    """The span from which it was sent, as the W3C writes it: the trace of the run that it begins goes on from there."""


class TurnStart(Event, frozen=True):
    """A model call begins; or, without a model, the call that a person makes by applying something."""

    TYPE = "assistant.turn_start"
    turn: int
    model: str = ""
    """Empty in a turn for which no model is asked (L-18)."""
    reserved: Usage = Usage()
    """The expected cost of the model call, counted as spent until the real cost is known (L-11)."""
    final: bool = False
    """A last call without tools, for an answer at the turn cap (L-03)."""


class AssistantMessage(Event, frozen=True):
    """The whole answer of a model, and what it cost; its calls are recorded here before any of them runs (L-04)."""

    TYPE = "assistant.message"
    VERSION = 2
    turn: int
    content: str = ""
    reasoning: tuple[Thinking, ...] = ()
    tool_requests: tuple[ToolRequest, ...] = ()
    partial: bool = False
    """Cut short by an interrupt; the text is kept as far as it came (L-07)."""
    usage: Usage | None = None
    """The cost of the model call, spent from here on (L-11). null in version 1: there the end of the turn has it."""
    finish_reason: str = "stop"
    """Why the model stopped, in the provider's word. Empty in version 1."""


class TurnEnd(Event, frozen=True):
    """A turn is over: its model call and every tool call in it. The cost is repeated here; it was spent with the turn's
    message, and counts here only if there was no message, or one of version 1."""

    TYPE = "assistant.turn_end"
    VERSION = 2
    turn: int
    usage: Usage = Usage()
    finish_reason: str = "stop"


class TurnRetry(Event, frozen=True):
    """An attempt at a turn failed and is repeated; readers drop the text of the failed attempt."""

    TYPE = "assistant.turn_retry"
    turn: int
    attempt: int
    error_class: str = msgspec.field(name="class")
    message: str = ""
    delay_s: float = 0.0
    usage: Usage = Usage()
    """The cost of the failed attempt; it counts."""


class TaskComplete(Event, frozen=True):
    """The model said that the whole task is done (L-13)."""

    TYPE = "session.task_complete"
    summary: str = ""


class SessionError(Event, frozen=True):
    """The run cannot go on. A `session.run_end` follows, and the chat stays usable."""

    TYPE = "session.error"
    error_class: str = msgspec.field(name="class")
    message: str = ""


class Interrupted(Event, frozen=True):
    """Someone asked for a stop. Recorded before anything is torn down (L-07)."""

    TYPE = "session.interrupted"
    by: str = "person"


class RunEnd(Event, frozen=True):
    """The run is over, for any reason; the chat is idle from here on. `session.idle` is its live echo."""

    TYPE = "session.run_end"
    VERSION = 3
    reason: EndReason
    why: str = ""
    """The same in words, where the reason does not say all: which budget it was, and how much of it is used."""


class SessionRewound(Event, frozen=True):
    """The conversation goes back to before a message, and the chat waits for another one (W-03)."""

    TYPE = "session.rewound"
    message: int
    by: str = "person"


class CompactionStart(Event, frozen=True):
    """Older history is about to be replaced by a summary in requests; the log stays as it is (L-19)."""

    TYPE = "session.compaction_start"
    trigger: Trigger
    tokens_before: int = 0


class CompactionComplete(Event, frozen=True):
    """The outcome of a compaction."""

    TYPE = "session.compaction_complete"
    trigger: Trigger
    success: bool = True
    tokens_before: int = 0
    tokens_after: int = 0
    usage: Usage = Usage()
    summary: str = ""
    upto: int = 0
    """How many entries of the conversation the summary stands for."""
    kept: tuple[int, ...] = ()
    """The seqs of user messages among those that stay verbatim."""
    masked: int = 0
    """Large results before this entry are left out of requests."""
    error: str = ""
    threshold: int = 0
    """The tokens at which compaction begins for the model: the limit by which the conversation was shortened."""


class ModelCall(Event, frozen=True):
    """A model call that is no turn, never hidden and counted apart (L-02)."""

    TYPE = "session.model_call"
    VERSION = 2
    purpose: Purpose
    usage: Usage = Usage()
    text: str = ""
    error: str = ""
    call: CallKey = CallKey("")
    """The call in whose middle the model was asked (`sampling`)."""


# -- the rest (V-04) --------------------------------------------------------------------------------------------


class QueueChanged(Event, frozen=True):
    """The queue of messages changed (L-08)."""

    TYPE = "queue.changed"
    VERSION = 2
    op: Literal["added", "edited", "deleted", "promoted"]
    id: str
    content: str = ""
    delivery: Delivery = "queued"
    images: tuple[Image, ...] = ()
    traceparent: str = ""
    """As of `user.message`."""


class OptionsChanged(Event, frozen=True):
    """Options of the chat were changed."""

    TYPE = "session.options_changed"
    VERSION = 2
    changes: dict[str, Any]
    by: str = "person"


class TitleChanged(Event, frozen=True):
    """The chat got a title."""

    TYPE = "session.title_changed"
    title: str
    by: str = "person"


class LimitWarning(Event, frozen=True):
    """A limit is near: 80 % of a budget, or three turns before the cap."""

    TYPE = "session.limit_warning"
    kind: LimitKind
    used: float
    limit: float
    scope: Scope = "run"


class LimitReached(Event, frozen=True):
    """A limit is reached; the run ends, at the turn cap perhaps after one last answer."""

    TYPE = "session.limit_reached"
    kind: LimitKind
    used: float
    limit: float
    scope: Scope = "run"


class LimitExtended(Event, frozen=True):
    """A run got more turns: a person allowed them, or autopilot took them within its budget."""

    TYPE = "session.limit_extended"
    turns: int
    by: str = "person"


class PlanUpdated(Event, frozen=True):
    """The model's plan, whole."""

    TYPE = "plan.updated"
    steps: tuple[PlanStep, ...]


class ModelNotice(Event, frozen=True):
    """Something about the model that the user should know."""

    TYPE = "model.notice"
    kind: str
    text: str


class SandboxNotice(Event, frozen=True):
    """How commands are confined, where that is less than it could be: recorded behind the first command of a chat, and
    again when it has changed (S-03, W-08)."""

    TYPE = "sandbox.notice"
    level: str
    view: bool = False
    """True if commands run on a copy-on-write view of the project; else they write to it directly."""
    lowered: bool = False
    """True if the confinement is weaker than it could be; False if it was weaker before and is no longer."""
    text: str = ""


class GuardNotice(Event, frozen=True):
    """The loop guard saw the same calls with the same results over and over (L-10)."""

    TYPE = "guard.notice"
    action: Literal["nudge", "stop", "ask"]
    length: int
    """How many calls the repeated cycle has; 1 is the same call over and over."""
    repeats: int
    text: str = ""


DIAGNOSTICS = "diagnostics"  # the check that is no command: errors in the files that the run changed


class CheckStarted(Event, frozen=True):
    """Treadle itself checks the work before it accepts that the model is done (L-16). The intent, as for a call."""

    TYPE = "check.started"
    check: CallKey
    """Its key among calls: `check.` and a number that no other check of the chat has."""
    command: str
    """The command that must succeed, or `diagnostics`: a look for errors in the files that the run changed."""
    attempt: int = 1
    paths: tuple[str, ...] = ()
    """The files that are looked at."""
    plan: Plan = None


class CheckCompleted(Event, frozen=True):
    """The outcome of a check. A failure goes back to the model at most three times; then the run ends with the error
    `checks_failed`."""

    TYPE = "check.completed"
    check: CallKey
    success: bool
    result: str = ""
    result_summary: str = ""
    sandbox: str = ""
    synthetic: Literal["", "skipped", "lost", "stopped"] = ""
    """Why there is no result: it could not be run, its worker was lost and it is begun again, the run was stopped."""
    output: BlobHash = ""
    """The hash of the whole output, where the result shows only a part."""
    duration_ms: int = 0


class RecordLost(Event, frozen=True):
    """Stands where a damaged record was; its bytes are in quarantine (D-06)."""

    TYPE = "session.record_lost"
    lost_type: str
    reason: str


def _collect_types(base: type[Event]) -> dict[str, type[Event]]:
    """Return all event types below a base, by TYPE. Live events do not count as recorded ones."""
    event_types: dict[str, type[Event]] = {}
    for kind in base.__subclasses__():
        if kind is not Live:
            event_types |= {kind.TYPE: kind} if kind.TYPE else {}
            event_types |= _collect_types(kind)
    return event_types


RECORDED: dict[str, type[Event]] = _collect_types(Event)
LIVE: dict[str, type[Event]] = _collect_types(Live)
