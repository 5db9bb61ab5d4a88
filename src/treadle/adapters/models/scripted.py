"""A model that says what it was told to: for tests, demos and faults (M-14). Its script has turns made of parts,
written in Python or read from a TOML file. Needs no network; after the death of its process it goes on where the
conversation stands."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from treadle.adapters.models.base import ModelBase
from treadle.adapters.models.provider_context import ProviderContext
from treadle.errors import ConfigError, ModelError, ModelErrorKind, ScriptError
from treadle.ports.model import ModelInfo, ModelRequest
from treadle.protocol.content import AssistantEntry, Usage
from treadle.protocol.deltas import CallDelta, Delta, FinishDelta, TextDelta, ThinkingDelta, UsageDelta
from treadle.protocol.events import Purpose

Follow = Literal["entries", "turns", "calls"]  # how the next turn of a script is found: see `ScriptedModel`


class Say(msgspec.Struct, frozen=True):
    text: str


class Think(msgspec.Struct, frozen=True):
    text: str


class RawCall(msgspec.Struct, frozen=True):
    """A call with its arguments as text, which may be broken, and with an id that may repeat."""

    name: str
    arguments: str = "{}"
    id: str = ""  # empty: one is made that is unique in the script


class Call:
    """A call with its arguments as keywords: `Call("read_file", path="a.py")`."""

    def __init__(self, name: str, /, **arguments: Any) -> None:
        self.raw = RawCall(name, msgspec.json.encode(arguments).decode())


class Delay(msgspec.Struct, frozen=True):  # before the next part
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
    usage: Usage


class Finish(msgspec.Struct, frozen=True):
    """End with this reason instead of `stop` or `tool_calls`."""

    reason: str


Part = Say | Think | Call | RawCall | Delay | Fail | Hang | ReportUsage | Finish | Delta  # a Delta: passed on as it is


class Turn(msgspec.Struct, frozen=True):
    """One answer. `chunk` characters of text or arguments come at a time (0: all at once), `delay_s` apart."""

    parts: tuple[Part, ...]
    chunk: int = 0
    delay_s: float = 0.0


Step = Turn | Part | Sequence[Part] | str  # bare parts are a turn of their own; a bare text is one that says it


def build_turns(steps: Iterable[Step]) -> tuple[Turn, ...]:
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
    after: bool = False  # fail after the answer was said instead of before


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
    model, fields = file.model, msgspec.structs.asdict(file.model)
    model_fields = {name: fields[name] for name in fields.keys() & set(ModelInfo.__struct_fields__)}
    info = ModelInfo("scripted", str(path), free=True, **model_fields)
    turns = tuple(_build_turn(turn, model) for turn in file.turn)
    return Script(
        turns, {side_turn.purpose: _build_turn(side_turn, model) for side_turn in file.other}, model.follow, info
    )


def _build_turn(turn: _Turn, model: _Model) -> Turn:
    parts: list[Part] = [Delay(turn.wait_s)] if turn.wait_s else []
    parts += [Think(turn.think)] if turn.think else []
    parts += [Say(turn.text)] if turn.text else []
    for call in turn.call:
        arguments = msgspec.json.encode(call.args).decode() if call.raw is None else call.raw
        parts.append(RawCall(call.name, arguments, call.id))
    parts += [ReportUsage(turn.usage)] if turn.usage is not None else []
    if turn.fail is not None:
        parts.insert(len(parts) if turn.fail.after else 0, turn.fail)
    parts += [Hang()] if turn.hang else []
    parts += [Finish(turn.finish)] if turn.finish else []
    chunk = model.chunk if turn.chunk is None else turn.chunk
    return Turn(tuple(parts), chunk, model.delay_s if turn.delay_s is None else turn.delay_s)


class ScriptedModel(ModelBase):
    """Answers each call with the next turn of a script.

    Which turn is next is read from the request, so that a new process goes on at the right one (`follow`):
    `entries`  the number of assistant entries in the request; the default
    `turns`    the turn number of the last of them; for chats that are compacted, if no turn failed for good
    `calls`    the order of the calls made of this object; for chats whose history is edited, not for resuming
    Calls that are no turn (`request.purpose`) are answered from `others`, by purpose and as often as they come; one
    that is not in there gets a stock sentence."""

    def __init__(
        self,
        steps: Iterable[Step] | Script,
        *,
        side_answers: Mapping[Purpose, str | Turn] | None = None,
        follow: Follow = "entries",
        info: ModelInfo | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        if isinstance(steps, Script):
            self.script = steps
        else:
            sides = {key: build_turns([turn])[0] for key, turn in (side_answers or {}).items()}
            self.script = Script(build_turns(steps), sides, follow, info or Script(()).info)
        super().__init__(self.script.info)
        self._sleep = sleep
        self._next = 0  # one more than the highest turn that was asked for
        self._calls = 0
        self._others: set[Purpose] = set()
        self._failed: dict[tuple[int | str, int], int] = {}

    @classmethod
    def from_file(cls, path: str | Path) -> "ScriptedModel":
        return cls(read_script(path))

    def assert_done(self) -> None:
        """Raise ScriptError if the script has turns that were never requested (M-14)."""
        remaining_turns = len(self.script.turns) - self._next
        unused = sorted(set(self.script.side_answers) - self._others)
        if remaining_turns > 0:
            raise ScriptError(f"{remaining_turns} of {len(self.script.turns)} scripted turns were never asked for")
        if unused:
            raise ScriptError(f"the scripted answers for {', '.join(unused)} were never asked for")

    async def stream(self, request: ModelRequest) -> AsyncIterator[Sequence[Delta]]:
        turn_key, turn = self._choose(request)
        finish: str | None = None
        calls = 0
        for number, part in enumerate(turn.parts):
            match part:
                case Delay(seconds=seconds):
                    await self._sleep(seconds)
                case Fail(kind=kind, message=message, times=times):
                    failures = self._failed[turn_key, number] = self._failed.get((turn_key, number), 0) + 1
                    if times == 0 or failures <= times:
                        if isinstance(turn_key, int):
                            self._calls -= 1  # under `calls`, a retry asks for this turn again
                        raise ModelError(kind, message, status=part.status, retry_after=part.retry_after)
                case Hang():
                    await asyncio.Event().wait()
                case Finish(reason=reason):
                    finish = reason
                case FinishDelta():
                    finish = ""
                    yield [part]
                case _:
                    for delta in _make_deltas(part, turn.chunk, turn_key, calls):
                        yield [delta]
                        if turn.delay_s:
                            await self._sleep(turn.delay_s)
                    calls += isinstance(part, Call | RawCall)
        if finish != "":
            yield [FinishDelta(finish or ("tool_calls" if calls else "stop"))]

    def _choose(self, request: ModelRequest) -> tuple[int | str, Turn]:
        if request.purpose != "turn":
            self._others.add(request.purpose)
            stock = Turn((Say(f"(scripted {request.purpose})"),))
            return request.purpose, self.script.side_answers.get(request.purpose, stock)
        answers = [entry for entry in request.entries if isinstance(entry, AssistantEntry)]
        position = len(answers)
        if self.script.follow == "calls":
            position = self._calls
        elif self.script.follow == "turns":
            position = answers[-1].turn if answers else 0
        self._calls += 1
        if position >= len(self.script.turns):
            raise ScriptError(
                f"the script has {len(self.script.turns)} turns and was asked for turn {position + 1}; "
                "add it, or let the last turn end without calls"
            )
        self._next = max(self._next, position + 1)
        return position, self.script.turns[position]


def _make_deltas(part: Part, chunk: int, turn_key: int | str, number: int) -> Iterable[Delta]:
    """Return the deltas of a part; `number` is its index among the calls of the turn."""
    match part:
        case Say(text=text):
            return map(TextDelta, _split_text(text, chunk))
        case Think(text=text):
            return map(ThinkingDelta, _split_text(text, chunk))
        case ReportUsage(usage=usage):
            return (UsageDelta(usage),)
        case Call(raw=raw):
            return _make_deltas(raw, chunk, turn_key, number)
        case RawCall(name=name, arguments=arguments, id=id):
            first = CallDelta(id or f"call_{turn_key}_{number}", number, name)
            return (first, *(CallDelta(index=number, arguments=piece) for piece in _split_text(arguments, chunk)))
        case Delay() | Fail() | Hang() | Finish():
            return ()
        case _:
            return (part,)


def _split_text(text: str, size: int) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)] if size else [text]


def connect(name: str, context: ProviderContext) -> ScriptedModel:
    return ScriptedModel.from_file(name)
