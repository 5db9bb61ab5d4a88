"""The parts of a conversation on a screen: blocks, frozen, each drawn by itself. Text in them is as it came; the
drawing code makes it inert."""

import re
from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec

from treadle.base.types import CallKey
from treadle.frontends.presentation.styled import Colour
from treadle.protocol.content import PlanStep
from treadle.protocol.events import ExecutionComplete
from treadle.protocol.tools import Effect

OUTPUT_KEPT = 4_000
"""Characters of a running command's output that are kept for the screen."""


class Block(msgspec.Struct, frozen=True, kw_only=True):
    """`seq`: the event that began it; 0 for what is only live. `live`: it changes by itself, if only its timer."""

    seq: int = 0
    live: bool = False


class UserBlock(Block, frozen=True, kw_only=True):
    """A message to the model: by a person, or in their place."""

    text: str
    source: str = "person"
    images: int = 0


class AnswerBlock(Block, frozen=True, kw_only=True):
    """The model's words, Markdown."""

    text: str = ""
    partial: bool = False


class ThoughtBlock(Block, frozen=True, kw_only=True):
    """The model's thinking, and how long it took; 0: not known."""

    text: str = ""
    began_ms: int = 0
    ended_ms: int = 0


class ShownCall(msgspec.Struct, frozen=True, kw_only=True):
    """One call, from the request to its result."""

    key: CallKey
    name: str
    summary: str = ""
    effect: Effect = "execute"
    began_ms: int = 0
    output: str = ""
    """The end of what it has written, while it runs."""
    completion: ExecutionComplete | None = None
    waits: bool = False
    """True if a person is asked about the call."""


class Calls(Block, frozen=True, kw_only=True):
    """Calls with nothing said between them."""

    calls: tuple[ShownCall, ...] = ()


class Checklist(Block, frozen=True, kw_only=True):
    steps: tuple[PlanStep, ...]


class Note(Block, frozen=True, kw_only=True):
    """A line about the run."""

    text: str
    colour: Colour = "dim"
    mark: Literal["", "error", "done"] = ""


class RunEndBlock(Block, frozen=True, kw_only=True):
    """The end of a run: why, what it cost, what it changed."""

    text: str
    files: tuple[str, ...] = ()


class EmptyBlock(Block, frozen=True, kw_only=True):
    """Stands where something was that is shown elsewhere now, or was taken back."""


AnyBlock = UserBlock | AnswerBlock | ThoughtBlock | Calls | Checklist | Note | RunEndBlock | EmptyBlock

_CODE = re.compile(r"^(```|~~~)[^\n]*\n(.*?)^\1[ \t]*$", re.MULTILINE | re.DOTALL)


def copies(blocks: Sequence[AnyBlock]) -> Iterator[tuple[str, str]]:
    """The kind and the text of each; the newest first."""
    for block in reversed(blocks):
        match block:
            case AnswerBlock(text=text) if text.strip():
                yield "answer", text.strip("\n")
                for match in reversed(list(_CODE.finditer(text))):
                    yield "code", match[2].rstrip("\n")
            case Calls(calls=calls):
                for call in reversed(calls):
                    if call.name == "run_command" and call.summary:
                        yield "command", call.summary
                    result = call.completion.result if call.completion is not None else ""
                    if (diff := re.search(r"^@@", result, re.MULTILINE)) is not None:
                        yield "diff", result[diff.start() :].rstrip("\n")
            case _:
                pass
