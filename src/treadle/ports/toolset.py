"""Tools that the loop can run. The loop knows their specs and calls `prepare`, `run` and `settle`; what a tool
does inside is an adapter's business."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal, Protocol

import msgspec

from treadle.ports.model import ModelRequest
from treadle.protocol.content import Image, Seen, Shell, ToolRequest, Value
from treadle.protocol.events import (
    JobEnded,
    JobSettled,
    JobStarted,
    ModelNotice,
    PlanUpdated,
    SandboxNotice,
    SubagentCompleted,
    TaskComplete,
)
from treadle.protocol.files import DiffStat, FileChange, FileConflict, Source, Uncaptured
from treadle.protocol.options import ChatOptions, NetworkChoice, Project
from treadle.protocol.tools import ToolSpec
from treadle.types import CallKey, ChatId

Fact = PlanUpdated | TaskComplete | SandboxNotice | ModelNotice | JobStarted | JobEnded | JobSettled | SubagentCompleted
"""What a tool may put into the log beside its result."""


AskModel = Callable[[ModelRequest], Awaitable[str]]
"""Asks the chat's model in the middle of a call, on the chat's budget; what it cost is recorded. ToolError: there is no
answer, and why."""


class Trial(Value, frozen=True):
    """How a command is tried on a view. Recorded before it begins, since a command that can use the network is not to
    be repeated (D-02)."""

    plan: dict[str, Any]
    begins: bool = True
    """Whether a command is started for it; else there is one already that is taken up."""
    network: bool = False
    open: bool = True
    """Whether nobody has decided about it yet."""


class Rehearsal(msgspec.Struct, frozen=True):
    """What a call would do to the project: of a command found out by doing it on a view (W-09), of a change of files
    by planning it."""

    shown: str
    """The effect of a command as a diff, for the person who allows it. Changes of files are shown by `preview`."""
    files: tuple[FileChange, ...] = ()
    uncaptured: tuple[Uncaptured, ...] = ()
    """What would be left out of a commit, and why."""
    unrecoverable: tuple[str, ...] = ()
    """Paths whose bytes it would remove, and which exist nowhere else: not in git, nor made by a change of Treadle."""
    wants_network: str = ""
    """The hosts that it failed to reach, as patterns with spaces between; `all`: nobody can tell which; empty: it did
    not fail for want of the network."""
    command: str = ""
    """The command line whose effect it is, if another call than this one started it: a background command (W-10)."""
    history: tuple[str, ...] = ()
    """See `treadle.ports.snapshots.Effect`."""
    shell: Shell | None = None
    """The shell in which that command was started; None: not known, as of jobs of earlier versions."""

    @property
    def empty(self) -> bool:
        """Whether it would change nothing, and nothing would be left out."""
        return not self.files and not self.uncaptured


class Invocation(msgspec.Struct, frozen=True):
    """One call to run, with validated arguments. `plan` is what `prepare` returned and the intent recorded."""

    chat: ChatId
    call: CallKey
    name: str
    arguments: dict[str, Any]
    plan: dict[str, Any] | None = None
    options: ChatOptions = ChatOptions()
    shell: Shell = Shell()
    """The chat's shell as the last command left it (T-14)."""
    seen: Mapping[str, str] = {}
    """By path: the SHA-256 of the file as the model knows it (T-13)."""
    outputs: Mapping[str, str] = {}
    """By call: the blob with the whole output of a result that was cut (T-11)."""
    by_person: bool = False
    """Whether a person makes the call and not the model: then what the model has seen is no matter (L-18)."""
    approved: bool = False
    """True if a person allowed this very call."""
    edited: bool = False
    """True if that person changed its arguments: they know the words of the call and not its effect."""
    emit: Callable[[str], None] = lambda _text: None
    """Shows live output; may be called any number of times, never blocks."""
    network: NetworkChoice = False
    """What this call may reach beside what the chat's options say: a person or a standing rule allowed it."""
    reaches: bool = False
    """True if a person let this very call reach hosts."""
    barred: tuple[str, ...] = ()
    """What it may not reach, whatever lets it: a rule denies it."""
    changed: frozenset[str] = frozenset()
    """Paths that this run has changed and that are still there: what lies there is the chat's own."""
    trial: Trial | None = None
    """How it was last tried, as far as that is recorded."""
    judge: Callable[[Rehearsal], Awaitable[str]] | None = None
    """Says why what a command has changed on its view is not committed; empty: it is. For those that nobody judged
    before they ran: checks."""
    discard: str = ""
    """Why nothing of what a command changes is committed; empty: it is committed (S-07)."""
    answers: tuple[str, ...] = ()
    """What people answered to questions in the middle of this call, the latest last."""
    ask_model: AskModel | None = None
    """Asks the chat's model, on the chat's budget; it is recorded."""

    @property
    def root(self) -> str:
        return self.options.root

    @property
    def project(self) -> Project:
        return self.options.project


class Question(Value, frozen=True):
    """What a person must say before a call can go on."""

    text: str
    options: tuple[str, ...] = ()
    plan: dict[str, Any] | None = None
    """What the tool needs to go on, in any process; it is recorded, and is the plan of the call from then on."""


class Outcome(Value, frozen=True):
    """What became of a call. `text` is what the model sees; raise ToolError instead for a failure."""

    text: str
    summary: str = ""
    """One line for people; empty takes the first line of the text."""
    success: bool = True
    diff_stat: DiffStat | None = None
    files: tuple[FileChange, ...] = ()
    source: Source = "tool"
    """How the changes of files were made, or found."""
    uncaptured: tuple[Uncaptured, ...] = ()
    git: str = ""
    conflicts: tuple[FileConflict, ...] = ()
    """Files that others changed meanwhile, for which nothing was done."""
    effect: Literal["", "view", "direct"] = ""
    """How a command reached the project (W-08, W-10)."""
    facts: tuple[Fact, ...] = ()
    output: str = ""
    """The hash of the full output in the blob store."""
    sandbox: str = ""
    seen: tuple[Seen, ...] = ()
    shell: Shell | None = None
    images: tuple[Image, ...] = ()
    """Pictures that the model is shown beside the text."""
    hosts: tuple[str, ...] = ()
    """The hosts that a command reached; see `ExecutionComplete`."""
    question: Question | None = None
    """The call is not over: this has to be answered first. Then it is run again, with the answer."""


Settlement = Outcome | Literal["run_again", "unknown"]
"""What recovery learned of an intent without outcome: it happened (with this outcome), it did not, or who knows."""


class Tool(Protocol):
    """A tool of kind `function`. Cancelling `run` leaves: what lives in this process must end with it, what can outlive
    the worker (a supervised command) goes on until `stop`, or until the next worker takes it up."""

    @property
    def spec(self) -> ToolSpec: ...

    async def prepare(self, invocation: Invocation) -> dict[str, Any] | None:
        """Read-only look before the intent is recorded: what recovery will need (pre- and post-hash), or None.
        A ToolError here is the call's result, and nothing is run."""

    async def run(self, invocation: Invocation) -> Outcome: ...

    async def preview(self, invocation: Invocation) -> str:
        """What a person should see before they allow the call, beyond its arguments: a diff. Empty: nothing."""

    async def trial(self, invocation: Invocation) -> Trial | None:
        """Read-only look before a rehearsal that runs something: how it will be tried, to be recorded. None: nothing
        runs for it. TrialLost: it was tried elsewhere, and must not be repeated."""

    async def rehearse(self, invocation: Invocation) -> Rehearsal | None:
        """Find out what the call would change, and leave the project as it is. A command is carried out on a
        copy-on-write view, by the invocation's `trial`; `run` then makes this very effect the project's own. None:
        that cannot be had here."""

    async def stop(self, invocation: Invocation) -> Outcome | None:
        """End everything that this call started, wherever it runs: the run was interrupted, or the call took too
        long. Silent when there is nothing. What it had changed by then and cannot be called off any more is the
        outcome's `files`; None if nothing is known to have changed."""

    async def settle(self, invocation: Invocation) -> Settlement:
        """A worker died after the intent. Find out what happened; change nothing (D-02)."""


class PlainTool:
    """A tool that lives in its call alone: nothing to show beforehand, and nothing that outlives it."""

    async def preview(self, invocation: Invocation) -> str:
        return ""

    async def trial(self, invocation: Invocation) -> Trial | None:
        return None

    async def rehearse(self, invocation: Invocation) -> Rehearsal | None:
        return None

    async def stop(self, invocation: Invocation) -> Outcome | None:
        return None


class ReadOnlyTool(PlainTool):
    """A tool that changes nothing: there is nothing to prepare, and after a crash it simply runs again (D-02)."""

    async def prepare(self, invocation: Invocation) -> dict[str, Any] | None:
        return None

    async def settle(self, invocation: Invocation) -> Settlement:
        return "run_again"


class ToolSource(Protocol):
    """Tools that come and go while an agent lives: those of MCP servers (E-01)."""

    async def ready(self, chat: ChatId, options: ChatOptions) -> Sequence[str]:
        """Called before a chat is worked on; waits no longer than it must. What people should know about it."""

    def listed(self, options: ChatOptions) -> Sequence[Tool]:
        """The tools that the model is told of. They keep their places from turn to turn (L-21); those of a server that
        started late are appended."""

    def find(self, name: str, options: ChatOptions) -> Tool | None:
        """A tool that there is now, listed or not."""

    async def await_tool(self, request: ToolRequest, options: ChatOptions) -> str:
        """Wait for the tool of a call that is not known yet, if its server is starting or may have new tools. The
        reason if that server cannot be used."""

    def meant(self, request: ToolRequest, options: ChatOptions) -> ToolRequest:
        """The call that is meant by one that names another."""


class Toolset(Protocol):
    """The tools of a chat, by its options: built-ins, functions, and clients' own."""

    async def ready(self, chat: ChatId, options: ChatOptions) -> Sequence[str]:
        """Called before a chat is worked on: what comes and goes is there now, or is said to be missing."""

    async def await_tool(self, request: ToolRequest, options: ChatOptions) -> str:
        """Wait for the tool of a call that is not known yet, if it may come; the reason if it cannot."""

    def meant(self, request: ToolRequest, options: ChatOptions) -> ToolRequest:
        """The call that is meant by one that is made through another tool; else the same."""

    def specs(self, options: ChatOptions) -> Sequence[ToolSpec]:
        """In an order that does not change from turn to turn (L-21)."""

    def find(self, name: str, options: ChatOptions) -> Tool | ToolSpec | None:
        """The tool to run, the bare spec of one that Treadle does not run itself, or None."""

    def arguments(self, spec: ToolSpec, text: str) -> dict[str, Any] | str:
        """The arguments in the model's text, parsed, coerced where that is unambiguous, and checked against the
        schema; or what is wrong with them, in words that the model can act on (T-12)."""
