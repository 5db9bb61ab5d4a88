"""The state of a chat at one point of its log: the value that `fold` builds and all rules read. Frozen, small, and
derived: it contains nothing that the events do not say. Knows no time, no I/O and no adapter."""

from itertools import takewhile
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from treadle.base.types import CallKey, ChatId
from treadle.chat.history import History
from treadle.protocol import events as e
from treadle.protocol.content import Entry, Failure, Image, PlanStep, Shell, ToolRequest, ToolResult, Usage, Value
from treadle.protocol.options import ChatOptions, NetworkChoice
from treadle.protocol.views import ChatSummary, QueueItem, Status

ELICITATION = "elicitation"
CallPhase = Literal["requested", "asking", "approved", "started", "waiting", "answered", "done"]
"""requested by the model · asking a person · approved · started: the intent is recorded · waiting for someone outside ·
answered: its question has an answer, and it can go on · done: it has its one result."""

MAX_CHANGED = 200  # so many of the files that a run changed are remembered
_SENTENCE = 500  # so much of an error's sentence stands in the line about a chat


class Call(Value, frozen=True):
    """One call of the current turn, from request to result."""

    request: ToolRequest
    phase: CallPhase = "requested"
    arguments: dict[str, Any] | None = None  # the arguments of the intent, or those a person edited
    plan: dict[str, Any] | None = None
    action: e.OpenAction | None = None
    result: ToolResult | None = None
    writes: bool = False  # True if the call may change something without reporting it (L-16)
    seal: str = ""  # the hash of the text shown to the person who allowed it; empty if they changed it (S-08)
    network: NetworkChoice = False  # hosts that the person allowed for this call, in addition to the chat's options
    trial: dict[str, Any] | None = None  # how it was last tried on a view; None: it was not
    trial_began_ms: int = 0  # when that began, as long as nothing was decided about it; else 0
    tried_ms: int = 0  # how long trials took that were decided about
    answers: tuple[str, ...] = ()  # answers of people to questions that the call asked while it ran
    images: tuple[Image, ...] = ()  # pictures that its tool returned

    def compute_trial_ms(self, now_ms: int) -> int:
        return self.tried_ms + (max(0, now_ms - self.trial_began_ms) if self.trial_began_ms else 0)

    @property
    def key(self) -> CallKey:
        return self.request.call


class OpenTurn(Value, frozen=True):
    turn: int
    reserved: Usage = Usage()
    final: bool = False
    failures: int = 0  # failed attempts; a worker's death is none of them
    attempts: int = 0  # the number of failed attempts, for any reason
    down_s: float = 0.0  # seconds of the waits for a provider that is down
    forced_compaction: bool = False
    epoch: int = 0  # the lease under which it began: a later one finds it left behind


class AnsweredTurn(Value, frozen=True):
    """A turn whose model has answered, and whose calls do not all have their results yet."""

    turn: int
    usage: Usage | None = None  # the usage of the model call; None if it is not recorded yet, as in logs of version 1
    finish_reason: str = ""


class OpenCheck(Value, frozen=True):
    """A check of a completion, begun or about to be (L-16)."""

    check: CallKey
    command: str
    attempt: int = 1
    paths: tuple[str, ...] = ()
    plan: dict[str, Any] | None = None


class Checked(Value, frozen=True):
    command: str
    success: bool
    text: str = ""
    synthetic: str = ""

    @property
    def failed(self) -> bool:
        return not self.success and not self.synthetic


class RunState(Value, frozen=True):
    """From a user message until the chat is idle again."""

    started_ms: int
    turn_limit: int
    active: bool = False  # a worker has taken it up since it last became runnable
    interrupting: bool = False
    stop: e.EndReason | Literal[""] = ""  # why the run must end, once that is known
    turns: int = 0
    tool_calls: int = 0
    usage: Usage = Usage()
    final_turn: bool = False
    completed: bool = False
    spoke: bool = False
    summarized: bool = False
    continuations: int = 0
    stalled: int = 0  # continuations in a row that brought no tool call
    calls_at_continuation: int = 0
    warned: tuple[tuple[e.Scope, e.LimitKind], ...] = ()
    signatures: tuple[str, ...] = ()
    signature_count: int = 0
    nudged_at: int = -1  # how many signatures there were at the last nudge of the loop guard
    first: int = 0  # the seq of the message that began it
    last_message_seq: int = 0  # the seq of the last message of a person in it
    traceparent: str = ""  # where that message came from, among traces
    checkpoint: bool = False  # True if a checkpoint was made before the first change (W-01)
    wrote: bool = False  # True if something was changed, or may have been
    changed_files: tuple[str, ...] = ()  # the files that were changed and are still there, the latest last
    reminded: bool = False  # True if the model was told that nothing was written
    check: OpenCheck | None = None  # the check that has begun and not ended
    checked: tuple[Checked, ...] = ()  # results of checks since the model last answered
    checks_lost: int = 0
    check_rounds: int = 0  # how often failed checks went back to the model
    incomplete: str = ""  # the part that the last answer lacks, if it was cut off, filtered or empty
    paused: bool = False  # the provider paused the last answer: the model is to be called again
    has_lost_record: bool = False  # True if a record was lost since the last turn began: an effect may be unknown
    applies: bool = False  # True if the run only applies a change of a person: no model is called (L-18)
    diagnosed: str = ""  # the errors in changed files that the model was told about last
    limit: e.LimitReached | None = None  # the limit that ends it
    waits_since_ms: int = 0  # since when it waits for a person; 0 when it does not
    waited_ms: int = 0  # how long it has waited for a person before that, all in all

    def compute_worked_ms(self, now_ms: int) -> int:
        """How long it has worked, as budgets and people count it: without the time in which it waited for a person."""
        return max(0, (self.waits_since_ms or now_ms) - self.started_ms - self.waited_ms)


class OpenJob(Value, frozen=True):
    job: str
    command: str = ""
    place: str = ""
    host: str = ""
    began_ms: int = 0
    pending: int = 0  # how many files it changed that are not committed, once it has ended
    refused: str = ""  # the latest call for this job that a person refused


class SeenFile(Value, frozen=True):
    """A file as the model was shown it, or left it: the hash, and the event that says so."""

    digest: str
    seq: int = 0


class Compaction(Value, frozen=True):
    """The summary in place of the first `upto` entries. `masked`: large results before this entry are left out."""

    upto: int = 0
    summary: str = ""
    kept_seqs: tuple[int, ...] = ()
    masked: int = 0


class Totals(Value, frozen=True):
    usage: Usage = Usage()
    turns: int = 0
    tool_calls: int = 0
    wall_ms: int = 0  # how long its runs worked, those that have ended


class ChatState(Value, frozen=True):
    """The fold of a chat's log up to `head`."""

    chat: ChatId = ChatId("")
    head: int = 0
    options: ChatOptions = ChatOptions()
    owner: str = ""
    parent: str = ""  # `chat/call` of the call that began it, if one did
    creation_lost: bool = False  # True if the first record cannot be read: then the chat takes no command (D-06)
    title: str = ""
    titled: bool = False  # True if the title was given or a model was asked for one; else it begins the first message
    created_ms: int = 0
    updated_ms: int = 0
    history: History[Entry] = History()  # the whole conversation, as far as it was not cut by an edit
    transcript: History[Entry] = History()  # the conversation as requests carry it: shorter after a compaction
    run: RunState | None = None
    last_end: e.EndReason | Literal[""] = ""
    last_why: str = ""  # the same in words, where the reason does not say all
    sandbox_notice: str = ""  # the last notice about the confinement of commands
    last_error: Failure | None = None  # the error of the run, or of the last run if it ended with one
    turn: int = 0
    open_turn: OpenTurn | None = None
    answered_turn: AnsweredTurn | None = None
    calls: tuple[Call, ...] = ()
    question: e.OpenAction | None = None  # a question of the loop itself: at the turn cap, or at the guard
    queue: tuple[QueueItem, ...] = ()
    plan: tuple[PlanStep, ...] = ()
    totals: Totals = Totals()
    compaction: Compaction = Compaction()
    compacting: e.Trigger | Literal[""] = ""
    compaction_stopped: bool = False  # True if a person stopped the compaction of an idle chat, which has not ended yet
    compaction_failures: int = 0
    restoring: e.RestoreRequested | None = None  # the undo, redo or keep that was requested and is not carried out yet
    jobs: tuple[OpenJob, ...] = ()  # background commands, oldest first
    pending_jobs: tuple[OpenJob, ...] = ()  # ended jobs whose changes are neither committed nor discarded
    checks: int = 0  # how many checks have begun in this chat; the next one's key is made of it
    shell: Shell = Shell()  # the chat's shell as the last command left it (T-14)
    seen_files: dict[str, tuple[SeenFile, ...]] = msgspec.field(default_factory=dict)
    """By path, the latest last: how the model saw the file, and how before each of the messages to which it can be
    taken back (T-13, L-09)."""
    outputs: dict[str, str] = msgspec.field(default_factory=dict)  # by call: the blob with the whole cut output (T-11)
    context_tokens: int = 0  # the provider's count of the last request and answer; 0: none for the present transcript
    context_chars: int = 0  # characters added to the transcript since that count


MAX_QUEUE = 20


def list_known_files(state: ChatState) -> dict[str, str]:
    return {path: sights[-1].digest for path, sights in state.seen_files.items()}


def is_asking_midway(call: Call, action: str = "") -> bool:
    """True if the call waits for the answer to a question (to `action`, if given) and continues after it."""
    open_action = call.action
    if open_action is None or (action and open_action.action != action):
        return False
    return open_action.kind == "user_input" and open_action.name == ELICITATION


def list_runnable_calls(state: ChatState) -> tuple[Call, ...]:
    """Return the calls that a worker may process now. A call that asks a person blocks the calls after it (order of
    writes); a call that runs outside blocks none (A-02)."""
    unblocked = takewhile(lambda call: call.phase != "asking", state.calls)
    return tuple(call for call in unblocked if call.phase in ("requested", "approved", "answered"))


def needs_action(state: ChatState) -> bool:
    if state.question is not None:
        return True
    is_running = any(call.phase == "started" for call in state.calls)
    return bool(state.calls) and not is_running and not list_runnable_calls(state)


def list_open_actions(state: ChatState) -> tuple[e.OpenAction, ...]:
    return tuple(action for action in (*(call.action for call in state.calls), state.question) if action is not None)


def choose_next_queued(state: ChatState) -> QueueItem | None:
    """The message that starts the next run: one sent after a stop, then unused steering (L-08), then the first."""
    after_stop = [item for item in state.queue if item.after_stop]
    steering = [item for item in state.queue if item.delivery == "steering"]
    return next(iter((*after_stop, *steering, *state.queue)), None)


def to_user_message(item: QueueItem, delivery: e.Delivery) -> e.UserMessage:
    return e.UserMessage(item.content, delivery, images=item.images, queue_id=item.id, traceparent=item.traceparent)


def can_start_queue(state: ChatState) -> bool:
    """True if an idle chat starts its queue by itself. After a stop or an error, older messages wait for a person."""
    if not state.queue or state.run is not None or state.options.archived:
        return False
    return state.last_end not in ("interrupted", "error", "budget") or any(item.after_stop for item in state.queue)


def compute_status(state: ChatState) -> Status:
    """The status as the log says it; `pending` and `running` both need a worker (A-08)."""
    run = state.run
    if state.creation_lost:
        return "error"
    if run is None:
        if state.compacting and state.compaction_stopped:
            return "interrupting"
        if state.compacting or state.restoring is not None or can_start_queue(state):
            return "pending"
        return "error" if state.last_end == "error" else "idle"
    if run.interrupting:
        return "interrupting"
    if not run.stop and needs_action(state):
        return "requires_action"
    return "running" if run.active else "pending"


def needs_person(state: ChatState) -> bool:
    """True if the chat continues only after a person answers. A client's tool that it waits for is at work."""
    return compute_status(state) == "requires_action" and all(action.of_person for action in list_open_actions(state))


def get_failure(state: ChatState) -> Failure | None:
    return state.last_error if compute_status(state) == "error" else None


def is_runnable(state: ChatState) -> bool:
    return compute_status(state) in ("pending", "running", "interrupting")


def find_wake_time(state: ChatState) -> int:
    """When the first deadline of what the chat waits for passes; 0 without one."""
    if compute_status(state) != "requires_action":
        return 0
    return min((action.deadline_ms for action in list_open_actions(state) if action.deadline_ms), default=0)


def is_untitled(state: ChatState) -> bool:
    """True if a model may make the title: a run has ended well, and only the first message gave the chat its title."""
    at_rest = state.run is None and not state.options.archived and not state.parent
    return at_rest and bool(state.title) and not state.titled and state.last_end not in ("", "interrupted", "error")


def build_summary(state: ChatState) -> ChatSummary:
    """The line about a chat that is kept beside its log."""
    chat_status, failure, options = compute_status(state), get_failure(state), state.options
    return ChatSummary(
        chat=state.chat, status=chat_status, head=state.head, wake_ms=find_wake_time(state),
        runnable=chat_status in ("pending", "running", "interrupting"),
        title=state.title, model=options.model, root=options.root, owner=state.owner, parent=state.parent,
        archived=options.archived, labels=options.labels, created_ms=state.created_ms, updated_ms=state.updated_ms,
        turns=state.totals.turns, usage=state.totals.usage,
        last_error=None if failure is None else replace(failure, message=failure.message[:_SENTENCE]),
    )  # fmt: skip
