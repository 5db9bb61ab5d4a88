"""Tools that the loop can run: it knows their specs and calls `prepare`, `run` and `settle`."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal, Protocol

import msgspec

from treadle.base.types import CallKey, ChatId
from treadle.ports.model import ModelRequest
from treadle.protocol import events as e
from treadle.protocol.content import Image, KnownFile, Shell, ToolRequest, Value
from treadle.protocol.files import DiffStat, FileChange, FileConflict, Source, Uncaptured
from treadle.protocol.options import ChatOptions, NetworkChoice, Project
from treadle.protocol.tools import ToolSpec

_JobFact = e.JobStarted | e.JobEnded | e.JobSettled
Fact = e.PlanUpdated | e.TaskComplete | e.SandboxNotice | e.ModelNotice | e.SubagentCompleted | _JobFact
"""The events that a tool may record beside its result."""

AskModel = Callable[[ModelRequest], Awaitable[str]]
"""Calls the chat's model during a tool call, on the chat's budget, and records it. ToolError without an answer."""


class Trial(Value, frozen=True):
    """The plan for running a command on a view. Recorded before the command starts, since a command that can use the
    network must not be repeated (D-02)."""

    plan: dict[str, Any]
    begins: bool = True
    """True if the trial starts a command; False if it adopts a running one."""
    network: bool = False
    open: bool = True
    """True if it is not decided yet."""


class Rehearsal(msgspec.Struct, frozen=True):
    """The changes that a call would make to the project: of a command, on a view (W-09); of a file change, planned."""

    diff_text: str
    """The effect of a command as a diff, for the person who allows it. Changes of files are shown by `preview`."""
    files: tuple[FileChange, ...] = ()
    uncaptured: tuple[Uncaptured, ...] = ()
    """The paths that a commit would leave out, with the reasons."""
    unrecoverable: tuple[str, ...] = ()
    """Paths whose bytes it would remove, and which exist nowhere else: not in git, nor made by a change of Treadle."""
    wants_network: str = ""
    """The hosts that it failed to reach, as patterns separated by spaces; `all`: unknown hosts; empty: none."""
    command: str = ""
    """The command line whose effect it is, if another call than this one started it: a background command (W-10)."""
    history: tuple[str, ...] = ()
    """See `treadle.ports.snapshots.Effect`."""
    shell: Shell | None = None
    """The shell in which that command was started; None: not known, as of jobs of earlier versions."""

    @property
    def empty(self) -> bool:
        """True if there are no changes, and nothing would be left out."""
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
    known_files: Mapping[str, str] = {}
    """By path: the SHA-256 of the file as the model knows it (T-13)."""
    outputs: Mapping[str, str] = {}
    """By call: the blob with the whole output of a result that was cut (T-11)."""
    by_person: bool = False
    """True if a person makes the call, not the model: then the files that the model has seen do not matter (L-18)."""
    approved: bool = False
    """True if a person allowed this very call."""
    edited: bool = False
    """True if that person changed the arguments: they know the text of the call but not its effect."""
    emit: Callable[[str], None] = lambda _text: None
    """Shows live output; may be called any number of times, never blocks."""
    network: NetworkChoice = False
    """The hosts that a person or a standing rule allowed for this call, in addition to the chat's options."""
    reaches: bool = False
    """True if a person let this very call reach hosts."""
    barred: tuple[str, ...] = ()
    """The hosts that a rule denies, which no other setting can allow."""
    changed_paths: frozenset[str] = frozenset()
    """Paths that this run has changed and that still exist: their content is the chat's own."""
    trial: Trial | None = None
    """The last recorded trial of the call."""
    judge: Callable[[Rehearsal], Awaitable[str]] | None = None
    """Returns the reason why the changes of a command on its view are not committed; empty: they are committed. For
    commands that were not judged before they ran: checks."""
    discard: str = ""
    """The reason why no change of a command is committed; empty: changes are committed (S-07)."""
    answers: tuple[str, ...] = ()
    """People's answers to questions during this call, the latest last."""
    ask_model: AskModel | None = None
    """Asks the chat's model, on the chat's budget; it is recorded."""

    @property
    def root(self) -> str:
        return self.options.root

    @property
    def project(self) -> Project:
        return self.options.project


class Question(Value, frozen=True):
    text: str
    options: tuple[str, ...] = ()
    plan: dict[str, Any] | None = None
    """The data that the tool needs to continue, in any process. It is recorded, and becomes the plan of the call."""


class Outcome(Value, frozen=True):
    """The result of a call. The model receives `text`; for a failure raise ToolError instead."""

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
    known_files: tuple[KnownFile, ...] = ()
    shell: Shell | None = None
    images: tuple[Image, ...] = ()
    """Pictures that the model is shown beside the text."""
    hosts: tuple[str, ...] = ()
    """The hosts that a command reached; see `ExecutionComplete`."""
    question: Question | None = None
    """The call is not over: this has to be answered first. Then it is run again, with the answer."""


Settlement = Outcome | Literal["run_again", "unknown"]
"""The finding of recovery about an intent without outcome: its outcome, not run (`run_again`), or unknown."""


class Tool(Protocol):
    """A tool of kind `function`. Cancelling `run` detaches from the call: work inside this process ends with it; a
    supervised command, which outlives the worker, continues until `stop` or until the next worker adopts it."""

    @property
    def spec(self) -> ToolSpec: ...

    async def prepare(self, invocation: Invocation) -> dict[str, Any] | None:
        """Inspect without changes before the intent is recorded. Return the data that recovery will need (pre- and
        post-hash), or None. A ToolError becomes the call's result, and nothing is run."""

    async def run(self, invocation: Invocation) -> Outcome: ...

    async def preview(self, invocation: Invocation) -> str:
        """Return the text, such as a diff, that a person should see before they approve the call. May be empty."""

    async def plan_trial(self, invocation: Invocation) -> Trial | None:
        """Read-only look before a rehearsal that runs something: how it will be tried, to be recorded. None: nothing
        runs for it. TrialLost: it was tried elsewhere, and must not be repeated."""

    async def rehearse(self, invocation: Invocation) -> Rehearsal | None:
        """Find out what the call would change, and leave the project as it is. A command is carried out on a
        copy-on-write view, by the invocation's `trial`; `run` then makes this very effect the project's own. None:
        that cannot be had here."""

    async def stop(self, invocation: Invocation) -> Outcome | None:
        """End everything that this call started, in any process: the run was interrupted, or the call took too long. No
        error if nothing runs. Changes that were already made and cannot be cancelled are in `files` of the outcome;
        None if no change is known."""

    async def settle(self, invocation: Invocation) -> Settlement:
        """A worker died after the intent. Find out what happened; change nothing (D-02)."""


class PlainTool:
    """A tool that lives in its call alone: nothing to show beforehand, and nothing that outlives it."""

    async def preview(self, invocation: Invocation) -> str:
        return ""

    async def plan_trial(self, invocation: Invocation) -> Trial | None:
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

    async def prepare_tools(self, chat: ChatId, options: ChatOptions) -> Sequence[str]:
        """Prepare before a chat is worked on; wait no longer than necessary. Return messages for people."""

    def list_tools(self, options: ChatOptions) -> Sequence[Tool]:
        """The tools that the model is told of, in lasting places (L-21); those of a late server are appended."""

    def find(self, name: str, options: ChatOptions) -> Tool | None:
        """A tool that there is now, listed or not."""

    async def await_tool(self, request: ToolRequest, options: ChatOptions) -> str:
        """Wait for an unknown tool, if its server starts or may have new ones; the reason if it cannot be used."""

    def resolve_call(self, request: ToolRequest, options: ChatOptions) -> ToolRequest:
        """The call that is meant by one that names another."""


class Toolset(Protocol):
    """The tools of a chat, by its options: built-ins, functions, and clients' own."""

    async def prepare_tools(self, chat: ChatId, options: ChatOptions) -> Sequence[str]:
        """Prepare before a chat is worked on: tools of dynamic sources are then present, or reported as missing."""

    async def await_tool(self, request: ToolRequest, options: ChatOptions) -> str:
        """Wait for the tool of a call that is not known yet, if it may come; the reason if it cannot."""

    def resolve_call(self, request: ToolRequest, options: ChatOptions) -> ToolRequest:
        """The call that is meant by one that is made through another tool; else the same."""

    def list_specs(self, options: ChatOptions) -> Sequence[ToolSpec]:
        """In an order that does not change from turn to turn (L-21)."""

    def find(self, name: str, options: ChatOptions) -> Tool | ToolSpec | None:
        """The tool to run, the bare spec of one that Treadle does not run itself, or None."""

    def parse_arguments(self, spec: ToolSpec, text: str) -> dict[str, Any] | str:
        """The arguments in the model's text, parsed, coerced where that is unambiguous, and checked against the
        schema; or what is wrong with them, in words that the model can act on (T-12)."""


class Subagents(Protocol):
    """`delegate` and `race` can be called again with the same call: they find the chats that were begun, and what was
    committed."""

    async def plan(self, invocation: Invocation) -> dict[str, Any]:
        """Which chats the call begins. ToolError if it may not."""

    async def delegate(self, invocation: Invocation) -> Outcome: ...

    async def race(self, invocation: Invocation) -> Outcome: ...

    async def stop(self, invocation: Invocation) -> Outcome | None:
        """End the chats of the call. Return their usage and the changes committed by then."""
