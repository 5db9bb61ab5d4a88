"""Tools that the loop can run. The loop knows their specs and calls `prepare`, `run` and `settle`; what a tool
does inside is an adapter's business."""

from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol

import msgspec

from treadle.protocol.content import Value
from treadle.protocol.events import DiffStat, FileChange, PlanUpdated, TaskComplete
from treadle.protocol.options import ChatOptions
from treadle.protocol.tools import ToolSpec
from treadle.types import CallKey, ChatId

Fact = PlanUpdated | TaskComplete
"""What a tool may put into the log beside its result."""


class Invocation(msgspec.Struct, frozen=True):
    """One call to run, with validated arguments. `plan` is what `prepare` returned and the intent recorded."""

    chat: ChatId
    call: CallKey
    name: str
    arguments: dict[str, Any]
    root: str
    plan: dict[str, Any] | None = None
    emit: Callable[[str], None] = lambda _text: None
    """Shows live output; may be called any number of times, never blocks."""


class Outcome(Value, frozen=True):
    """What became of a call. `text` is what the model sees; raise ToolError instead for a failure."""

    text: str
    summary: str = ""
    """One line for people; empty takes the first line of the text."""
    success: bool = True
    diff_stat: DiffStat | None = None
    files: tuple[FileChange, ...] = ()
    facts: tuple[Fact, ...] = ()
    output: str = ""
    """The hash of the full output in the blob store."""
    sandbox: str = ""


Settlement = Outcome | Literal["run_again", "unknown"]
"""What recovery learned of an intent without outcome: it happened (with this outcome), it did not, or who knows."""


class Tool(Protocol):
    """A tool of kind `function`. Cancelling `run` must stop everything it started."""

    @property
    def spec(self) -> ToolSpec: ...

    async def prepare(self, invocation: Invocation) -> dict[str, Any] | None:
        """Read-only look before the intent is recorded: what recovery will need (pre- and post-hash), or None.
        A ToolError here is the call's result, and nothing is run."""
        ...

    async def run(self, invocation: Invocation) -> Outcome: ...

    async def settle(self, invocation: Invocation) -> Settlement:
        """A worker died after the intent. Find out what happened; change nothing (D-02)."""
        ...


class Toolset(Protocol):
    """The tools of a chat, by its options: built-ins, functions, and clients' own."""

    def specs(self, options: ChatOptions) -> Sequence[ToolSpec]:
        """In an order that does not change from turn to turn (L-21)."""
        ...

    def find(self, name: str, options: ChatOptions) -> Tool | ToolSpec | None:
        """The tool to run, the bare spec of one that Treadle does not run itself, or None."""
        ...

    def arguments(self, spec: ToolSpec, text: str) -> dict[str, Any] | str:
        """The arguments in the model's text, parsed, coerced where that is unambiguous, and checked against the
        schema; or what is wrong with them, in words that the model can act on (T-12)."""
        ...
