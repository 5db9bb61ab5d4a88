"""What the server answers, as Structs. Projections of states and summaries; nothing here decides."""

from typing import Any, Literal

import msgspec

from treadle.chat.state import ChatState, QueueItem, failure_of, open_actions, status
from treadle.ports.store import Listed
from treadle.protocol.content import AssistantEntry, Entry, Failure, PlanStep, ResultsEntry, UserEntry
from treadle.protocol.content import Usage as UsageCount
from treadle.protocol.events import OpenAction
from treadle.protocol.options import ChatOptions
from treadle.protocol.views import Status
from treadle.protocol.wire import iso_time


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """The base of answers."""


class ChatLine(Shape, frozen=True, kw_only=True):
    """One line about a chat."""

    id: str
    status: Status
    title: str
    model: str
    root: str
    archived: bool
    labels: tuple[str, ...]
    head: int
    """The seq of the last event."""
    created: str
    updated: str
    turns: int
    usage: UsageCount
    last_error: Failure | None
    """Why it is in `error`; null if it is not. In lists the sentence may be cut."""


class ChatView(ChatLine, frozen=True, kw_only=True):
    """A chat as it is now."""

    options: ChatOptions
    queue: tuple[QueueItem, ...]
    actions: tuple[OpenAction, ...]
    """What it waits for."""
    plan: tuple[PlanStep, ...]
    last_end: str
    """Why the last run ended."""
    last_why: str
    """The same in words, where it does not say all: at a budget, which one, and how much of it is used."""
    warnings: tuple[str, ...] = ()
    """What is odd about the options of a new chat (A-01)."""


class ChatList(Shape, frozen=True, kw_only=True):
    chats: tuple[ChatLine, ...]
    next: str
    """The `cursor` of the next page; empty when there is none."""


class Accepted(Shape, frozen=True, kw_only=True):
    """What a command made of the chat."""

    chat: str
    status: Status
    head: int
    queued: str = ""
    """The id of the message in the queue, if it was queued."""
    restore: str = ""
    """The name of the restoring of files that was asked for; its outcome is an event with the same name."""


class CallView(Shape, frozen=True, kw_only=True):
    call: str
    name: str
    arguments: str


class ResultView(Shape, frozen=True, kw_only=True):
    call: str
    success: bool
    text: str


class MessageView(Shape, frozen=True, kw_only=True):
    """One entry of the conversation."""

    place: int
    """Its place in the conversation, from 1; a cursor."""
    role: Literal["user", "assistant", "tool"]
    seq: int = 0
    """Of a user's message: its seq, by which it can be edited."""
    turn: int = 0
    source: str = ""
    content: str = ""
    reasoning: str = ""
    calls: tuple[CallView, ...] = ()
    results: tuple[ResultView, ...] = ()


class MessageList(Shape, frozen=True, kw_only=True):
    messages: tuple[MessageView, ...]
    total: int


class EventPage(Shape, frozen=True, kw_only=True):
    """Recorded events, each an envelope as in the streams."""

    events: tuple[dict[str, Any], ...]
    head: int


class QueueView(Shape, frozen=True, kw_only=True):
    queue: tuple[QueueItem, ...]


class ActionView(Shape, frozen=True, kw_only=True):
    chat: str
    title: str
    action: OpenAction


class ActionList(Shape, frozen=True, kw_only=True):
    actions: tuple[ActionView, ...]


class UsageView(Shape, frozen=True, kw_only=True):
    """What was spent. Of a chat, or of all chats of the user."""

    usage: UsageCount
    turns: int
    tool_calls: int = 0
    wall_ms: int = 0
    """How long the chat's runs worked, those that have ended; waiting for a person is not counted."""
    context_tokens: int = 0
    """How much of the model's window the conversation took at last."""
    chats: int = 1


class ModelView(Shape, frozen=True, kw_only=True):
    model: str
    window: int
    max_output: int
    native_tools: bool
    thinking: bool
    vision: bool
    price_input: float
    price_output: float
    price_cached: float
    usable: bool
    why: str
    """What is missing, when it cannot be used."""


class ModelList(Shape, frozen=True, kw_only=True):
    models: tuple[ModelView, ...]
    default: str


class FileEntry(Shape, frozen=True, kw_only=True):
    name: str
    kind: Literal["file", "directory", "link", "other"]
    target: str


class FileList(Shape, frozen=True, kw_only=True):
    path: str
    entries: tuple[FileEntry, ...]


class Me(Shape, frozen=True, kw_only=True):
    user: str


class Ticket(Shape, frozen=True, kw_only=True):
    ticket: str
    expires_s: int


class Health(Shape, frozen=True, kw_only=True):
    status: Literal["ok", "draining", "unavailable"]


def shown_status(said: Status, leased: bool) -> Status:
    """A chat whose worker died is pending, not running (A-08)."""
    return "pending" if said == "running" and not leased else said


def chat_line(listed: Listed) -> ChatLine:
    line = listed.summary
    return ChatLine(
        id=line.chat,
        status=shown_status(line.status, listed.leased),
        title=line.title,
        model=line.model,
        root=line.root,
        archived=line.archived,
        labels=line.labels,
        head=line.head,
        created=iso_time(line.created_ms),
        updated=iso_time(line.updated_ms),
        turns=line.turns,
        usage=line.usage,
        last_error=line.last_error,
    )


def chat_view(state: ChatState, shown: Status, warnings: tuple[str, ...] = ()) -> ChatView:
    options = state.options
    return ChatView(
        id=state.chat,
        status=shown,
        title=state.title,
        model=options.model,
        root=options.root,
        archived=options.archived,
        labels=options.labels,
        head=state.head,
        created=iso_time(state.created_ms),
        updated=iso_time(state.updated_ms),
        turns=state.totals.turns,
        usage=state.totals.usage,
        last_error=failure_of(state),
        options=options,
        queue=state.queue,
        actions=open_actions(state),
        plan=state.plan,
        last_end=state.last_end,
        last_why=state.last_why,
        warnings=warnings,
    )


def accepted(state: ChatState, queue_id: str = "", restore: str = "") -> Accepted:
    queued = queue_id if any(item.id == queue_id for item in state.queue) else ""
    return Accepted(chat=state.chat, status=status(state), head=state.head, queued=queued, restore=restore)


def message_view(place: int, entry: Entry) -> MessageView:
    match entry:
        case UserEntry(text=text, seq=seq, source=source):
            return MessageView(place=place, role="user", seq=seq, source=source, content=text)
        case AssistantEntry(turn=turn, text=text, thinking=thinking, calls=calls):
            return MessageView(
                place=place,
                role="assistant",
                turn=turn,
                content=text,
                reasoning="".join(block.text for block in thinking),
                calls=tuple(CallView(call=call.call, name=call.name, arguments=call.arguments) for call in calls),
            )
        case ResultsEntry(turn=turn, results=results):
            shown = tuple(ResultView(call=each.call, success=each.success, text=each.text) for each in results)
            return MessageView(place=place, role="tool", turn=turn, results=shown)
