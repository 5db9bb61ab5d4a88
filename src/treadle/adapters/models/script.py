"""The script of a scripted model: turns made of parts, written in Python or read from a TOML file (M-14). Data only;
`treadle.adapters.models.scripted` plays it."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from treadle.errors import ConfigError, ModelErrorKind
from treadle.ports.model import ModelInfo
from treadle.protocol.content import Usage
from treadle.protocol.deltas import Delta
from treadle.protocol.events import Purpose

Follow = Literal["entries", "turns", "calls"]
"""How the next turn of a script is found: see `ScriptedModel`."""


class Say(msgspec.Struct, frozen=True):
    text: str


class Think(msgspec.Struct, frozen=True):
    text: str


class RawCall(msgspec.Struct, frozen=True):
    """A call with its arguments as text, which may be broken, and with an id that may repeat."""

    name: str
    arguments: str = "{}"
    id: str = ""
    """Empty: one is made that is unique in the script."""


class Call:
    """A call with its arguments as keywords: `Call("read_file", path="a.py")`."""

    def __init__(self, name: str, /, **arguments: Any) -> None:
        self.raw = RawCall(name, msgspec.json.encode(arguments).decode())


class Delay(msgspec.Struct, frozen=True):
    """Wait before the next part."""

    seconds: float


class Fail(msgspec.Struct, frozen=True):
    """Raise a ModelError where it stands, the first `times` times that it is reached; 0 means every time. The
    turn is played again from its beginning when the engine asks again."""

    kind: ModelErrorKind
    message: str = "scripted failure"
    times: int = 1
    status: int = 0
    retry_after: float | None = None


class Hang(msgspec.Struct, frozen=True):
    """Say nothing more until the stream is closed."""


class ReportUsage(msgspec.Struct, frozen=True):
    """Report this usage."""

    usage: Usage


class Finish(msgspec.Struct, frozen=True):
    """End with this reason instead of `stop` or `tool_calls`."""

    reason: str


Part = Say | Think | Call | RawCall | Delay | Fail | Hang | ReportUsage | Finish | Delta
"""A bare Delta is passed on as it is, for servers with odd habits."""


class Turn(msgspec.Struct, frozen=True):
    """One answer. `chunk` characters of text or arguments come at a time (0: all at once), `delay_s` apart."""

    parts: tuple[Part, ...]
    chunk: int = 0
    delay_s: float = 0.0


Step = Turn | Part | Sequence[Part] | str
"""A bare part or a sequence of parts is a turn of its own; a bare text is one that says it."""


def turns_of(steps: Iterable[Step]) -> tuple[Turn, ...]:
    """The turns that a list of steps means. A bare Delay or Fail is no answer: it opens the turn that follows."""
    turns: list[Turn] = []
    opening: list[Part] = []
    for raw_step in steps:
        step = Say(raw_step) if isinstance(raw_step, str) else raw_step
        if isinstance(step, Delay | Fail):
            opening.append(step)
            continue
        turn = step if isinstance(step, Turn) else Turn(tuple(step) if isinstance(step, Sequence) else (step,))
        turns.append(Turn((*opening, *turn.parts), turn.chunk, turn.delay_s) if opening else turn)
        opening = []
    if opening:
        turns.append(Turn(tuple(opening)))
    return tuple(turns)


class Script(msgspec.Struct, frozen=True):
    """A whole script: its turns, its answers to calls that are no turn, and the model it pretends to be."""

    turns: tuple[Turn, ...]
    side_answers: dict[Purpose, Turn] = msgspec.field(default_factory=dict)
    follow: Follow = "entries"
    info: ModelInfo = ModelInfo("scripted", "script", window=200_000, free=True)


class _CallTable(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    args: dict[str, Any] = {}
    raw: str | None = None
    id: str = ""


class _Fail(Fail, frozen=True, forbid_unknown_fields=True):
    after: bool = False
    """Fail after the answer was said instead of before."""


class _Turn(msgspec.Struct, forbid_unknown_fields=True):
    think: str = ""
    text: str = ""
    call: list[_CallTable] = []
    fail: _Fail | None = None
    hang: bool = False
    finish: str = ""
    usage: Usage | None = None
    chunk: int | None = None
    delay_s: float | None = None
    wait_s: float = 0.0


class _SideAnswer(_Turn, kw_only=True, forbid_unknown_fields=True):
    purpose: Purpose


class _Model(msgspec.Struct, forbid_unknown_fields=True):
    window: int = 200_000
    max_output: int = 4_096
    usd_per_million_input: float = 0.0
    usd_per_million_cached: float = 0.0
    usd_per_million_output: float = 0.0
    chunk: int = 0
    delay_s: float = 0.0
    follow: Follow = "entries"


class _File(msgspec.Struct, forbid_unknown_fields=True):
    turn: list[_Turn]
    other: list[_SideAnswer] = []
    model: _Model = msgspec.field(default_factory=_Model)


def read_script(path: str | Path) -> Script:
    """Read a script from a TOML file. ConfigError says what is wrong and where."""
    try:
        file = msgspec.toml.decode(Path(path).read_bytes(), type=_File)
    except OSError as error:
        raise ConfigError(f"the script {path} cannot be read: {error.strerror or error}") from error
    except (msgspec.MsgspecError, ValueError) as error:
        raise ConfigError(f"the script {path} is not valid: {error}") from error
    model = file.model
    fields = msgspec.structs.asdict(model)
    model_fields = {name: fields[name] for name in fields.keys() & set(ModelInfo.__struct_fields__)}
    info = ModelInfo("scripted", str(path), free=True, **model_fields)
    turns = tuple(_turn(turn, model) for turn in file.turn)
    return Script(turns, {side_turn.purpose: _turn(side_turn, model) for side_turn in file.other}, model.follow, info)


def _turn(turn: _Turn, model: _Model) -> Turn:
    parts: list[Part] = []
    if turn.wait_s:
        parts.append(Delay(turn.wait_s))
    if turn.think:
        parts.append(Think(turn.think))
    if turn.text:
        parts.append(Say(turn.text))
    for call in turn.call:
        arguments = msgspec.json.encode(call.args).decode() if call.raw is None else call.raw
        parts.append(RawCall(call.name, arguments, call.id))
    if turn.usage is not None:
        parts.append(ReportUsage(turn.usage))
    if turn.fail is not None:
        parts.insert(len(parts) if turn.fail.after else 0, turn.fail)
    if turn.hang:
        parts.append(Hang())
    if turn.finish:
        parts.append(Finish(turn.finish))
    return Turn(
        tuple(parts),
        model.chunk if turn.chunk is None else turn.chunk,
        model.delay_s if turn.delay_s is None else turn.delay_s,
    )
