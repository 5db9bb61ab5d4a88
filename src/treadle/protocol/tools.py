"""The description of a tool: its name, its schema and its behaviour. Running it is a port's business."""

import hashlib
import re
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from treadle.errors import InvalidInput
from treadle.protocol.content import Value

ToolKind = Literal["function", "client", "question"]
"""function: Treadle runs it · client: someone outside does (A-02) · question: a person answers (T-07)."""

Effect = Literal["none", "read", "edit", "execute"]
"""The effect of a tool. none: it touches nothing, and runs alone · read: it changes nothing, and may run beside others
and again · edit: it changes the files that its arguments name, and records each change · execute: it may do anything:
it runs a command or code of the user's."""

COMMAND_TOOL = "run_command"
INPUT_TOOL = "send_input"
JOB_TOOL = "check_command"
STOP_TOOL = "stop_command"
DIAGNOSTICS_TOOL = "get_diagnostics"
WRITE_TOOL = "write_file"
PATCH_TOOL = "apply_patch"
WORLD_TOOL = "commit_world"
DELEGATE_TOOL = "delegate"
RACE_TOOL = "race"
EDIT_TOOL = "edit_file"
READ_TOOL = "read_file"
EDIT_TOOLS = frozenset({WRITE_TOOL, EDIT_TOOL, PATCH_TOOL})
"""Built-in tools that are known by their names: rules and logs name them, and the loop calls some by itself."""

WORDS = ""  # stands among names of tools for an answer that calls none
MCP_PREFIX = "mcp:"  # begins the pattern of a rule about tools of MCP servers, as in `mcp:git__*`
ANY_OBJECT: dict[str, Any] = {"type": "object"}
_NAME = re.compile(r"[a-zA-Z0-9_.-]{1,64}")


class ShortForm(Value, frozen=True):
    """A tool in one sentence, with the arguments that matter: for models with a small window."""

    description: str
    required: tuple[str, ...]
    optional: tuple[str, ...] = ()
    untold: tuple[str, ...] = ()
    """Arguments that may be given and are not told of: a small model gives every one that it knows, whether or not it
    is needed. Results name them where they are."""


class ToolSpec(Value, frozen=True):
    """A tool as the model and the rules see it (T-10)."""

    name: str
    description: str = ""
    parameters: dict[str, Any] = msgspec.field(default_factory=lambda: dict(ANY_OBJECT))
    kind: ToolKind = "function"
    read_only: bool = False
    """The same as `effect="read"`: whichever is said, both are so."""
    idempotent: bool = False
    needs_approval: bool = False
    timeout_s: float = 120.0
    summary_argument: str = ""
    """The argument that stands for the whole call in one line: usually the path or the command."""
    effect: Effect = "execute"
    command_argument: str = ""
    """The argument that holds a command line, which is judged by its words."""
    input_argument: str = ""
    """The argument that is typed into a running program."""
    job_argument: str = ""
    """The argument that names a background command, whose effect the call may commit (W-10)."""
    parallel: bool = False
    """True if adjacent calls of the tool run at the same time; calls of tools that only read always do (L-06)."""
    server: str = ""
    """The MCP server that runs it. The server's own description of the effect is not trusted: the real effect is
    unknown."""
    short: ShortForm | None = None
    """How a model with a small window is told of it; None: as every other model."""
    dispensable: bool = False
    """True if models with a small window are not offered the tool unless it was chosen explicitly. It can be called all
    the same."""
    needs: Literal["", "reading", "output", "change"] = ""
    """The condition under which a call makes sense: a file was read, an output was cut, or files were changed if the
    task asks for that."""

    def __post_init__(self) -> None:
        if self.read_only or self.effect == "read":
            for name, value in (("effect", "read"), ("read_only", True), ("parallel", True)):
                msgspec.structs.force_setattr(self, name, value)

    @property
    def rule_name(self) -> str:
        """The name that is matched against the tool patterns of rules."""
        return f"{MCP_PREFIX}{self.name}" if self.server else self.name

    def find_command(self, arguments: Mapping[str, Any]) -> str | None:
        """The command line that a call would run, if its tool runs command lines."""
        command = arguments.get(self.command_argument) if self.command_argument else None
        return command if isinstance(command, str) else None


class DynamicTool(Value, frozen=True):
    """A tool declared by a client for one chat, which the client runs itself (A-01)."""

    name: str
    description: str = ""
    input_schema: Any = msgspec.field(default_factory=lambda: dict(ANY_OBJECT))
    """A JSON Schema. An invalid one gives a warning, and the arguments are not checked."""


_LOOKING = (
    r"^\s*(?:cd|ls|pwd|cat|head|tail|wc|grep|rg|file|stat|tree|which|echo|printf|date|whoami|uname|du|df|diff|cmp"
    r"|sort|uniq|cut|true|false|test|nl|basename|dirname|realpath|git (?:status|log|diff|show|blame|ls-files"
    r"|grep|rev-parse|describe))(?:\s|$)"
)
_OUTPUT = r">|`|\$\(|<\(|--output|\s-o\b|\btee\b"
_SEPARATORS = r"\|\||&&|[|;&\n]"


def parse_job_handle(arguments: Mapping[str, Any]) -> str:
    """The handle of a job in the arguments of a call; models put quotes around it."""
    return str(arguments.get("handle", "")).strip().strip("\"'")


def is_read_only_command(command: str) -> bool:
    """True if a command line certainly changes nothing; a command that is not known to only read counts as writing."""
    if re.search(_OUTPUT, command):
        return False
    return all(re.match(_LOOKING, part) for part in re.split(_SEPARATORS, command) if part.strip())


def predict_effect(spec: ToolSpec, arguments: dict[str, Any]) -> Effect:
    """Return the effect of one call: the effect of its tool, or `read` for a command that only reads."""
    command = spec.find_command(arguments)
    return "read" if command is not None and is_read_only_command(command) else spec.effect


def compute_digest(value: object) -> str:
    """A short stable hash of any JSON value, for signatures and for what an approval was shown."""
    return hashlib.sha256(msgspec.json.encode(value, order="sorted")).hexdigest()[:32]


def require_name(name: str) -> None:
    """Names that every provider takes."""
    if not name:
        raise InvalidInput("A tool has no name; give it one.")
    if not _NAME.fullmatch(name):
        text = "is no name for a tool: use 1 to 64 letters, digits, underscores, dots or hyphens."
        raise InvalidInput(f"{name[:80]!r} {text}")
