"""The options of a chat: one object for creating it, resuming it and changing it. Numbers are the defaults of
the specification."""

from collections.abc import Collection, Mapping, Sequence
from os import PathLike
from typing import Any, Literal, NamedTuple, TypedDict

import msgspec

from treadle.errors import InvalidInput
from treadle.protocol.choices import EFFORTS as EFFORTS
from treadle.protocol.choices import MODES as MODES
from treadle.protocol.choices import OWN_WORLD as OWN_WORLD
from treadle.protocol.choices import CompletionStyle as CompletionStyle
from treadle.protocol.choices import Mode as Mode
from treadle.protocol.choices import OnDeadline as OnDeadline
from treadle.protocol.choices import OnGuard as OnGuard
from treadle.protocol.choices import OnLimit as OnLimit
from treadle.protocol.choices import Preset as Preset
from treadle.protocol.choices import ReasoningEffort as ReasoningEffort
from treadle.protocol.choices import Rung as Rung
from treadle.protocol.choices import SandboxChoice as SandboxChoice
from treadle.protocol.choices import TitleChoice as TitleChoice
from treadle.protocol.content import Fingerprint, JsonSchema, Value
from treadle.protocol.permissions import Rule
from treadle.protocol.tools import DynamicTool

NetworkChoice = bool | tuple[str, ...]  # all hosts, none, or those of these patterns (`treadle.base.host_patterns`)


class Project(NamedTuple):
    """Where a chat works."""

    root: str
    root_id: str = ""
    """Which folder it is; empty where that is not known."""
    world: str = ""
    """The copy-on-write world of that folder in which it works (W-11); empty: in the folder itself."""


class Budget(Value, frozen=True):
    """Limits on spending; 0 means no limit (L-11)."""

    turns: int = 0
    tokens: int = 0
    usd: float = 0.0
    wall_s: float = 0.0
    """Seconds of work. Waiting for a person (an approval, an answer) is no work; waiting for a client's tool is."""
    tool_calls: int = 0


class Skill(Value, frozen=True):
    """A skill that the chat may use: the description that the model gets at first, and the path of the rest (E-03)."""

    name: str
    description: str
    path: str
    """From the project's root; absolute: one of the user's own."""
    sha256: Fingerprint = ""
    """Of its file when the chat began: nothing else is read later."""


class ChatOptions(Value, frozen=True):
    """Everything about a chat that a caller may choose. Recorded in the log, so that any worker knows it."""

    model: str = ""
    root: str = ""
    root_id: str = ""
    """The identity of the root folder (volume and inode), even if its path leads elsewhere later; determined when the
    chat was bound to it (S-01). Set by Treadle; naming the root again binds the chat anew."""
    world: str = ""
    """The world of the root in which the chat works: nothing of the project changes until that is committed (W-11).
    Empty: in the project itself. `chat`: one that is opened for the chat when it begins."""
    mode: Mode = "auto-edit"
    system_prompt: str = ""
    interactive: bool = False
    """True if a person is there to answer. If not, every question is declined at once, with a text for the model."""
    max_turns: int = 100
    on_limit: OnLimit | Literal[""] = ""
    """The action at the turn cap; empty: `ask` when interactive, else `answer` (L-03)."""
    on_guard: OnGuard | Literal[""] = ""
    run_budget: Budget = Budget()
    chat_budget: Budget = Budget()
    tools: tuple[str, ...] | None = None
    """The names of the enabled tools; None enables all."""
    dynamic_tools: tuple[DynamicTool, ...] = ()
    action_deadline_s: float = 300.0
    """How long a client tool may take; 0 turns the deadline off (A-05)."""
    on_deadline: OnDeadline = "continue"
    completion: CompletionStyle | Literal[""] = ""
    """How the model says that it is done; empty: by the tool, or by the marker if it calls tools in its text (L-15)."""
    rung: Rung | Literal[""] = ""
    """Forces how the model calls tools; empty finds out (M-07)."""
    max_continuations: int = 5
    continue_text: str = ""
    """The text of autopilot's nudge; empty takes the built-in one (L-14)."""
    summarize: bool = True
    temperature: float | None = None
    max_tokens: int = 0
    """The output limit of one model call; 0 leaves it to the catalogue."""
    context_window: int = 0
    """Overrides the model's window; 0 leaves it to the catalogue."""
    reasoning_effort: ReasoningEffort | Literal[""] = ""
    """How much the model thinks; empty leaves it to its server (M-16)."""
    compaction_effort: ReasoningEffort | Literal[""] = ""
    """The same for the calls that shorten the conversation; empty: as in the rest of the chat."""
    auto_approve_commands: bool = False
    """Commands pass without asking, except critical ones (S-05)."""
    auto_approve_sensitive_edits: bool = False
    sensitive: dict[str, bool] = msgspec.field(default_factory=dict)
    """Own patterns after the built-in ones; the last match wins: true = safe to auto-approve, false = ask (S-06)."""
    rules: tuple[Rule, ...] = ()
    """Standing answers of this chat (S-07)."""
    sandbox: SandboxChoice = "auto"
    network: NetworkChoice = False
    """Which hosts commands may reach: all, none, or patterns such as `registries` and `github.com`, through a proxy."""
    strict_paths: bool = False
    """Refuse commands that name paths outside the root even where a sandbox works; without one that is always so."""
    command_view: bool = True
    """True if foreground commands run on a copy-on-write view where one works, and are committed like a transaction
    (W-08); else they write to the project directly, and the tree is compared before and after."""
    git_branch: bool = False
    """True if each run that changes something works on a git branch of its own (W-06)."""
    checks: tuple[str, ...] = ()
    """Commands that must succeed before a completion is accepted (L-16)."""
    verify: bool = True
    """True if the model gets one reminder when a task asked for changes and nothing was written (L-16)."""
    diagnose: bool = True
    """True if files that a run changed are checked for errors before a completion is accepted (L-16)."""
    instructions: str = ""
    """The project's instructions to agents (AGENTS.md), as they were when the chat began (E-03)."""
    skills: tuple[Skill, ...] = ()
    """The skills of the user and of the project (only if it is trusted), as they were when the chat began (E-03)."""
    agent: str = ""
    """The name of the custom agent that the chat works as; empty: none."""
    agent_prompt: str = ""
    """The prompt of that agent, as it was when the agent was chosen."""
    own_servers: str = ""
    """The name under which a program brings MCP servers for this chat (`Agent.mcp.bring`); empty: it has those of its
    project, as every chat there. The declarations are in no log, for they may hold keys."""
    output_schema: JsonSchema | None = None
    """The JSON Schema that the last words of a run must fit; None: they may be any text."""
    subagents: int = 8
    """How many sub-agents of this chat may be at work at once; 0: none, and there is no such tool (L-23)."""
    subagent_depth: int = 2
    """How deep they may go: a sub-agent has one less, and with 0 none of its own."""
    archived: bool = False
    labels: tuple[str, ...] = ()

    @property
    def project(self) -> Project:
        return Project(self.root, self.root_id, self.world)

    @property
    def extends_itself(self) -> bool:
        """True if the chat takes more turns at the turn cap without asking: autopilot works until its budget ends."""
        budgets = self.run_budget, self.chat_budget
        return self.mode == "autopilot" and not self.on_limit and any(each != Budget() for each in budgets)

    @property
    def limit_rule(self) -> OnLimit:
        return self.on_limit or ("ask" if self.interactive else "answer")

    @property
    def guard_rule(self) -> OnGuard:
        return self.on_guard or ("ask" if self.interactive else "stop")


class Bounds(NamedTuple):
    """The smallest and the largest value of a number. No comparison with NaN is true, so NaN is outside."""

    least: float
    most: float

    def accepts(self, value: float) -> bool:
        return self.least <= value <= self.most

    def as_meta(self) -> msgspec.Meta:
        return msgspec.Meta(ge=self.least, le=self.most)


MAX_COUNT = (1 << 53) - 1  # the largest integer that every reader of JSON keeps exactly
MAX_SECONDS = 1e9  # About 30 years. A moment so far away still fits into every clock and column.
MAX_USD = 1e9
BUDGET_BOUNDS: Mapping[str, Bounds] = {
    **dict.fromkeys(("turns", "tokens"), Bounds(0, MAX_COUNT)),
    "usd": Bounds(0, MAX_USD),
    "wall_s": Bounds(0, MAX_SECONDS),
    "tool_calls": Bounds(0, MAX_COUNT),
}
NUMBER_BOUNDS: Mapping[str, Bounds] = {
    "max_turns": Bounds(1, 1_000_000),
    "action_deadline_s": Bounds(0, MAX_SECONDS),
    "max_continuations": Bounds(0, 1_000_000_000),
    "temperature": Bounds(0, 2),
    "max_tokens": Bounds(0, 1_000_000_000),
    "context_window": Bounds(0, 1_000_000_000),
    "subagents": Bounds(0, 1_000),
    "subagent_depth": Bounds(0, 100),
}
"""The numbers that callers may choose. A log may hold other values, written before there were bounds: those stay
readable."""


def check_numbers(options: ChatOptions, names: Collection[str] | None = None) -> None:
    """InvalidInput if a number is not finite or outside its bounds; with `names` only those options are checked."""
    for name, bounds in NUMBER_BOUNDS.items():
        value = getattr(options, name)
        if value is not None and (names is None or name in names):
            _check_number(name, value, bounds)
    for name, budget in (("run_budget", options.run_budget), ("chat_budget", options.chat_budget)):
        if names is None or name in names:
            for kind, bounds in BUDGET_BOUNDS.items():
                _check_number(f"{name}.{kind}", getattr(budget, kind), bounds)


def check_root_name(root: str) -> None:
    """InvalidInput if the path of a root is not valid UTF-8: the log could not record it."""
    try:
        root.encode()
    except UnicodeEncodeError:
        readable_root = root.encode(errors="surrogateescape").decode(errors="backslashreplace")
        raise InvalidInput(
            f"The path of the root, {readable_root!r}, is not valid UTF-8 and cannot be recorded; rename the folder."
        ) from None


def _check_number(name: str, value: object, bounds: Bounds) -> None:
    if not (isinstance(value, int | float) and bounds.accepts(value)):
        raise InvalidInput(f"{name} must be a number from {bounds.least:,.15g} to {bounds.most:,.15g}, not {value}.")


PRESETS: Mapping[Preset, Mapping[str, Any]] = {"strict": {"mode": "confirm", "max_turns": 20, "strict_paths": True}}
"""Sets of options by name. An option given beside a preset wins over it. `strict`: a person is asked before anything is
changed or run, commands may not name paths outside the project (S-15), and a run has 20 turns."""


class OptionKeywords(TypedDict, total=False):
    """ChatOptions as keyword arguments, as `Agent.chat` takes them; a test holds it against them."""

    model: str
    root: str | PathLike[str]
    world: str
    mode: Mode
    system_prompt: str
    interactive: bool
    max_turns: int
    on_limit: OnLimit | Literal[""]
    on_guard: OnGuard | Literal[""]
    run_budget: Budget
    chat_budget: Budget
    tools: Sequence[str] | None
    dynamic_tools: Sequence[DynamicTool]
    action_deadline_s: float
    on_deadline: OnDeadline
    completion: CompletionStyle | Literal[""]
    rung: Rung | Literal[""]
    max_continuations: int
    continue_text: str
    summarize: bool
    temperature: float | None
    max_tokens: int
    context_window: int
    reasoning_effort: ReasoningEffort | Literal[""]
    compaction_effort: ReasoningEffort | Literal[""]
    auto_approve_commands: bool
    auto_approve_sensitive_edits: bool
    sensitive: Mapping[str, bool]
    rules: Sequence[Rule]
    sandbox: SandboxChoice
    network: bool | Sequence[str]
    strict_paths: bool
    command_view: bool
    git_branch: bool
    checks: Sequence[str]
    verify: bool
    diagnose: bool
    instructions: str
    skills: Sequence[Skill]
    agent: str
    agent_prompt: str
    own_servers: str
    output_schema: Mapping[str, Any] | None
    subagents: int
    subagent_depth: int
    archived: bool
    labels: Sequence[str]


class RaceKeywords(OptionKeywords, total=False):
    """The arguments of a race besides its task (L-22), with the options of its chats; see `http_requests.StartRace`."""

    attempts: int
    models: Sequence[str]
    check: str
    judge: str
    all: bool
