"""What the world knows of a tool: its name, its schema and how it behaves. Running it is a port's business."""

import hashlib
import re
from typing import Any, Literal

import msgspec

from treadle.errors import InvalidInput
from treadle.protocol.content import Value

ToolKind = Literal["function", "client", "question"]
"""function: Treadle runs it · client: someone outside does (A-02) · question: a person answers (T-07)."""

ANY_OBJECT: dict[str, Any] = {"type": "object"}
_NAME = re.compile(r"[a-zA-Z0-9_.-]{1,64}")


class ToolSpec(Value, frozen=True):
    """A tool as the model and the rules see it (T-10)."""

    name: str
    description: str = ""
    parameters: dict[str, Any] = msgspec.field(default_factory=lambda: dict(ANY_OBJECT))
    kind: ToolKind = "function"
    read_only: bool = False
    idempotent: bool = False
    needs_approval: bool = False
    timeout_s: float = 120.0
    summary_argument: str = ""
    """The argument that stands for the whole call in one line: usually the path or the command."""


class DynamicTool(Value, frozen=True):
    """A tool declared by a client for one chat, which the client runs itself (A-01)."""

    name: str
    description: str = ""
    input_schema: Any = msgspec.field(default_factory=lambda: dict(ANY_OBJECT))
    """A JSON Schema. What is none is a warning, and the arguments are not checked."""


def digest(value: object) -> str:
    """A short stable hash of any JSON value, for signatures and for what an approval was shown."""
    return hashlib.sha256(msgspec.json.encode(value, order="sorted")).hexdigest()[:32]


def require_name(name: str) -> None:
    """Names that every provider takes."""
    if not name:
        raise InvalidInput("A tool has no name; give it one.")
    if not _NAME.fullmatch(name):
        raise InvalidInput(
            f"{name[:80]!r} is no name for a tool: use 1 to 64 letters, digits, underscores, dots or hyphens."
        )
