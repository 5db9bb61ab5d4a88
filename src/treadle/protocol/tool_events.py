"""Events about tool calls: intents and results, approvals, tools that clients run, questions, and the background
commands that outlive their call (V-02)."""

from typing import Any, Literal

import msgspec

from treadle.base.types import CallKey
from treadle.protocol.content import BlobHash, Fingerprint, Image, KnownFile, Plan, Shell
from treadle.protocol.envelope import Event
from treadle.protocol.files import DiffStat
from treadle.protocol.permissions import Offer, Rule
from treadle.protocol.tools import Effect


class ExecutionStart(Event, frozen=True):
    """The intent: recorded before the effect. `plan` is what recovery needs to tell whether it happened."""

    TYPE = "tool.execution_start"
    VERSION = 3
    call: CallKey
    name: str
    arguments: dict[str, Any] = msgspec.field(default_factory=dict)
    args_summary: str = ""
    plan: Plan = None
    read_only: bool = False
    """True if the tool declares that it changes nothing."""
    effect: Effect = "execute"
    """The effect of the call, by its tool and its arguments: a command that only reads is a `read`."""


class TrialStart(Event, frozen=True):
    """A command is tried on a copy-on-write view, so that its changes are known before anybody decides about them. Its
    output streams from here on. Recorded before it begins: a trial that could use the network is never repeated."""

    TYPE = "tool.trial_start"
    call: CallKey
    name: str
    arguments: dict[str, Any] = msgspec.field(default_factory=dict)
    args_summary: str = ""
    plan: Plan = None
    """Where it is tried, under which name, and what it can reach."""


class ExecutionComplete(Event, frozen=True):
    """The one result of a call. `synthetic` says why, when no tool produced it."""

    TYPE = "tool.execution_complete"
    VERSION = 2
    call: CallKey
    success: bool
    result: str = ""
    error: str = ""
    result_summary: str = ""
    diff_stat: DiffStat | None = None
    sandbox: str = ""
    synthetic: str = ""
    output: BlobHash = ""
    """The hash of the whole output, where the result shows only a part."""
    duration_ms: int = 0
    """How long it took; with the time in which it was tried, and without the time in which it waited for a person."""
    seen: tuple[KnownFile, ...] = ()
    """Files as the model knows them from now on (T-13)."""
    shell: Shell | None = None
    """Where the chat's shell is from now on (T-14)."""
    effect: Literal["", "view", "direct"] = ""
    """How a command reached the project: on a copy-on-write view that was committed, or directly (W-08, W-10)."""
    images: tuple[Image, ...] = ()
    """Pictures that the tool returned; the model is shown them behind the results of the turn."""
    hosts: tuple[str, ...] = ()
    """The hosts that a command reached through its proxy, with the port where it is not the usual one (S-17). `all`: it
    could reach every host, and which ones it did is not known."""


CommandEnding = Literal["exited", "timed_out", "idle", "exceeded", "stopped", "failed", "lost"]
"""How a command ended. idle: for too long it wrote nothing and no one asked about it · exceeded: it used more than its
limits · failed: it could not be started · lost: its supervisor died with it, and its effect up to then is unknown."""


class JobStarted(Event, frozen=True):
    """A command runs in the background from here on; the run may end before it does (S-14)."""

    TYPE = "job.started"
    job: str
    """Its handle."""
    command: str = ""
    """The command in one line."""
    place: str = ""
    """The machine since it was switched on, and the home, where it runs: only there can it be reached."""
    host: str = ""
    """The name of that machine, for people."""


class JobEnded(Event, frozen=True):
    """A background command has ended, by itself or because it was stopped. Its changes to the project are recorded
    beside this event."""

    TYPE = "job.ended"
    VERSION = 2
    job: str
    ending: CommandEnding
    code: int = 0
    """The exit code; -N if signal N ended it."""
    by: str = ""
    """The one who stopped it: `model`, `person`, `archive`; `fork`, `import`: this chat is a copy, and the command
    belongs to the original. Empty if it was not stopped or this is unknown."""
    concerns: tuple[str, ...] = ()
    """Why what it changed would have been asked for, had that been known before (W-10)."""
    pending: int = 0
    """How many files it changed on its view that are not committed to the project yet; `job.settled` follows."""


class JobSettled(Event, frozen=True):
    """The changes that an ended background command had left on its view were committed to the project, or never will be
    (W-10). The changes are recorded beside this event."""

    TYPE = "job.settled"
    job: str
    outcome: Literal["committed", "refused", "discarded"] = "committed"
    """refused: the same files were changed by others meanwhile · discarded: by a person or by the mode."""
    by: str = ""
    """`person`; `run`: it passed without a question when the next run began; `fork`, `import`: this chat is a copy, and
    it is none of its own. Empty: a call of the model."""


class PermissionRequested(Event, frozen=True):
    """A person must allow a call before it runs."""

    TYPE = "permission.requested"
    action: str
    call: CallKey
    severity: str = "none"
    reason: str = ""
    shown: str = ""
    """Exactly what the person is asked to allow; `hash` binds the answer to it (S-08)."""
    hash: Fingerprint = ""
    offers: tuple[Offer, ...] = ()
    """Rules that would answer this and its like (S-07)."""
    network: tuple[str, ...] = ()
    """The hosts that an approval lets the call reach, as patterns; `all`: every host."""


HEADLESS = "headless"  # why a call was refused or its effect discarded: a person would be asked, and the chat has none


class PermissionCompleted(Event, frozen=True):
    """A call was allowed or refused: by a person, by the policy, or because no answer is expected any more."""

    TYPE = "permission.completed"
    action: str
    decision: Literal["allow", "deny"]
    by: str = "person"
    auto_approved: bool = False
    feedback: str = ""
    arguments: dict[str, Any] | None = None
    """Arguments edited by the person, which replace the model's."""
    synthetic: str = ""
    rule: Rule | None = None
    """The rule that the answer made; one of scope `chat` holds from here on."""


class ExternalToolRequested(Event, frozen=True):
    """A client must run this call and send its result; the loop has left (A-02)."""

    TYPE = "external_tool.requested"
    call: CallKey
    name: str
    arguments: dict[str, Any] = msgspec.field(default_factory=dict)
    tool_call_id: str = ""
    """The id that a client sends back with its result; unique in the chat."""
    deadline_s: float = 0.0


class ExternalToolCompleted(Event, frozen=True):
    """A client sent its result, or none is expected any more; the result itself is the `tool.execution_complete` after
    it."""

    TYPE = "external_tool.completed"
    call: CallKey
    is_error: bool = False
    by: str = "client"
    synthetic: str = ""


class UserInputRequested(Event, frozen=True):
    """A question to a person: the model's (`ask_user`), the loop's own at a limit or a guard, or that of a tool in the
    middle of its call (`elicitation`), which then goes on."""

    TYPE = "user_input.requested"
    VERSION = 2
    action: str
    question: str
    options: tuple[str, ...] = ()
    purpose: Literal["ask_user", "limit", "guard", "elicitation"] = "ask_user"
    call: CallKey = CallKey("")
    plan: Plan = None
    """The data that the tool needs to go on after the answer."""


class UserInputCompleted(Event, frozen=True):
    """A question was answered, or no answer is expected any more."""

    TYPE = "user_input.completed"
    action: str
    answer: str = ""
    by: str = "person"
    synthetic: str = ""
