"""The answers of the server over HTTP, as Structs: the server fills them in, the client reads them and ignores fields
that it does not know. Nothing here decides. The bodies of requests are in `http_requests`."""

from typing import Any, Literal

import msgspec

from treadle.protocol.content import Failure, PlanStep
from treadle.protocol.content import Usage as UsageCount
from treadle.protocol.events import OpenAction
from treadle.protocol.files import FileChange, FileConflict, FileState, Hunk
from treadle.protocol.options import ChatOptions, Mode, ReasoningEffort
from treadle.protocol.permissions import Rule
from treadle.protocol.views import ChildView, JobView, QueueItem, Status


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
    head: int  # the seq of the last event
    created: str
    updated: str
    turns: int
    usage: UsageCount
    last_error: Failure | None  # Why it is in `error`; null if it is not. In lists the sentence may be cut.
    parent: str = ""  # the chat whose call began it (a sub-agent, an attempt of a race); empty: no chat did
    deleted: bool = False  # only in the stream of changes: the chat was deleted, and all fields except `id` are empty


class ChatView(ChatLine, frozen=True, kw_only=True):
    """A chat as it is now."""

    options: ChatOptions
    queue: tuple[QueueItem, ...]
    actions: tuple[OpenAction, ...]  # the actions that the chat waits for
    plan: tuple[PlanStep, ...]
    last_end: str  # why the last run ended
    last_why: str  # the same in words, where it does not say all: at a budget, which one, and how much of it is used
    warnings: tuple[str, ...] = ()  # warnings about the options of a new chat


class FoundChat(ChatLine, frozen=True, kw_only=True):
    found: str  # the place where the words stand in what was said; empty: they are in this line


class FoundList(Shape, frozen=True, kw_only=True):
    chats: tuple[FoundChat, ...]


class ChatList(Shape, frozen=True, kw_only=True):
    chats: tuple[ChatLine, ...]
    next: str  # the `cursor` of the next page; empty when there is none


class Accepted(Shape, frozen=True, kw_only=True):
    """The state of the chat after a command."""

    chat: str
    status: Status
    head: int
    queued: str = ""  # the id of the message in the queue, if it was queued
    restore: str = ""  # the name of the requested restoring of files; its outcome is an event with that name


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

    place: int  # its place in the conversation, from 1; a cursor
    role: Literal["user", "assistant", "tool"]
    seq: int = 0  # of a user's message: its seq, by which it can be edited
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


class WorldView(Shape, frozen=True, kw_only=True):
    """A world: a copy-on-write view of a project in which chats work (W-11)."""

    id: str
    root: str
    parent: str = ""  # the world of which it is one
    how: Literal["overlay", "copy"]
    why: str = ""  # why it is a copy
    label: str = ""
    made_ms: int


class WorldList(Shape, frozen=True, kw_only=True):
    worlds: tuple[WorldView, ...]


class WorldChanges(Shape, frozen=True, kw_only=True):
    """The changes that a commit of a world would make now, and its conflicts."""

    world: WorldView
    files: tuple[FileChange, ...]
    conflicts: tuple[FileConflict, ...]
    diff: str


class Rebased(Shape, frozen=True, kw_only=True):
    merged: tuple[str, ...]  # paths of texts that both had changed


class JobList(Shape, frozen=True, kw_only=True):
    """The background commands of a chat, oldest first: those that run, and those that have ended lately."""

    jobs: tuple[JobView, ...]


class ChildList(Shape, frozen=True, kw_only=True):
    """The chats that the calls of a chat began, and theirs, each behind the one that began it."""

    children: tuple[ChildView, ...]


class UsageView(Shape, frozen=True, kw_only=True):
    """The usage of a chat, or of all chats of the user."""

    usage: UsageCount
    turns: int
    tool_calls: int = 0
    wall_ms: int = 0  # how long the chat's runs worked, those that have ended; waiting for a person is not counted
    context_tokens: int = 0  # how much of the model's window the conversation took at last
    context_window: int = 0  # how much that window holds, in tokens; 0 if it is not known here
    chats: int = 1
    priced: bool = True  # of a chat: true if the price of its model is known; else `usd` lacks its calls


class UsageRow(Shape, frozen=True, kw_only=True):
    """The usage of one model on one day."""

    day: str  # as in 2026-01-31, in UTC
    model: str
    usage: UsageCount
    calls: int  # model calls that answered
    model_ms: int  # how long those took


class UsageDays(Shape, frozen=True, kw_only=True):
    """By day and model, oldest first. Days without a call are not there."""

    rows: tuple[UsageRow, ...]


class ModelView(Shape, frozen=True, kw_only=True):
    model: str
    window: int
    max_output: int
    native_tools: bool
    thinking: bool
    efforts: tuple[ReasoningEffort, ...] = ()  # the levels of reasoning effort to choose from; empty: it has none
    vision: bool
    price_input: float
    price_output: float
    price_cached: float
    usable: bool
    why: str  # the reason why the model cannot be used
    place: str = ""  # the model server on the server's own machine that has it; empty: a provider has it


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


class CommandView(Shape, frozen=True, kw_only=True):
    """A command that can be typed as `/name words`: a custom command, or a prompt `server:prompt` of an MCP server."""

    name: str
    description: str
    hint: str  # the words behind it; those that may be left out in brackets


class FoundFiles(Shape, frozen=True, kw_only=True):
    paths: tuple[str, ...]  # the closest first


class ProjectView(Shape, frozen=True, kw_only=True):
    """The project of a chat to come."""

    root: str = ""
    branch: str = ""  # the git branch, or the beginning of the commit that is checked out


class RuleView(Shape, frozen=True, kw_only=True):
    """A standing answer."""

    rule: Rule
    chat: str = ""  # the chat, for a rule that holds in one
    used_ms: int = 0  # when it answered last; 0: never


class RuleList(Shape, frozen=True, kw_only=True):
    rules: tuple[RuleView, ...]
    damage: str = ""  # why the file of rules cannot be read: as long as this is so, no rule allows anything


class CommandList(Shape, frozen=True, kw_only=True):
    commands: tuple[CommandView, ...]


class ResourceView(Shape, frozen=True, kw_only=True):
    """An MCP resource that can be typed as `@server:uri`."""

    mention: str  # all of that; of a template the part before its first variable
    name: str
    description: str
    media_type: str
    template: bool  # True if the mention must be completed with text after it


class ResourceList(Shape, frozen=True, kw_only=True):
    resources: tuple[ResourceView, ...]


class Me(Shape, frozen=True, kw_only=True):
    """The user of the request, and the defaults of the user's chats."""

    user: str
    root: str = ""
    mode: Mode = "auto-edit"


class Ticket(Shape, frozen=True, kw_only=True):
    ticket: str
    expires_s: int


class SignedIn(Shape, frozen=True, kw_only=True):
    """A token of its own for the device that sent the code."""

    token: str
    user: str


class Rendered(Shape, frozen=True, kw_only=True):
    """HTML of passages, in their order: without styles, scripts, images and anything that is loaded."""

    html: tuple[str, ...]


class Health(Shape, frozen=True, kw_only=True):
    status: Literal["ok", "draining", "unavailable"]


class ErrorBody(msgspec.Struct, frozen=True):
    code: str
    message: str


class ErrorReply(msgspec.Struct, frozen=True):
    """Every refusal and every failure."""

    error: ErrorBody


# -- files -------------------------------------------------------------------------------------------------------------


class RunView(Shape, frozen=True, kw_only=True):
    """A run that changed files, or might have."""

    run: int  # its number, from 1
    message: int  # the seq of the message that began it; going back to before it takes the run back
    upto: int  # the last seq that is counted to it; 0: it is the last run
    content: str  # the beginning of the message that began the run


class RunList(Shape, frozen=True, kw_only=True):
    runs: tuple[RunView, ...]
    total: int


class ChangedFile(Shape, frozen=True, kw_only=True):
    """The remaining changes that a chat made to one file: from its original state to the state in which the chat left
    it."""

    path: str  # relative to the root; a path that is not UTF-8 is written in hexadecimal after `//bytes/`
    action: Literal["created", "modified", "deleted"]
    added: int
    removed: int
    before: FileState | None
    after: FileState | None
    notes: tuple[str, ...]  # differences that no line shows: kinds, modes, targets of links, bytes
    hunks: tuple[Hunk, ...]  # numbered, as `undo` and `keep` take them
    cut: bool  # True if hunks were left out because there are too many; name the file as `path` to see more of them


class Changes(Shape, frozen=True, kw_only=True):
    since: int
    upto: int  # the stretch of the log that it is about; 0: until now
    files: tuple[ChangedFile, ...]
    total: int  # How many there are in all; `after` leads to the others. A folder is listed where nothing in it is.


class Restoration(Shape, frozen=True, kw_only=True):
    """The outcome of restoring files, or with `preview` the expected outcome."""

    restore: str  # its name; of an undo, what a redo refers to
    preview: bool
    files: tuple[FileChange, ...]  # those that changed, with their states; with `preview` only the first of very many
    total: int  # how many files that are; folders are not counted
    conflicts: tuple[FileConflict, ...]  # the files that were left alone, with the reasons
    error: str  # why nothing was done at all
