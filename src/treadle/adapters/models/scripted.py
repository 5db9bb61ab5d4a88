"""A model that says what it was told to: for tests, demos and faults (M-14). Plays a
`treadle.adapters.models.script`; needs no network, and after the death of its process it goes on where the
conversation stands."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path

from treadle.adapters.models.provider_context import ProviderContext
from treadle.adapters.models.script import (
    Call,
    Delay,
    Fail,
    Finish,
    Follow,
    Hang,
    Part,
    RawCall,
    ReportUsage,
    Say,
    Script,
    Step,
    Think,
    Turn,
    read_script,
    turns_of,
)
from treadle.errors import ModelError, ScriptError
from treadle.ports.model import ModelInfo, ModelRequest
from treadle.protocol.content import AssistantEntry
from treadle.protocol.deltas import CallDelta, Delta, FinishDelta, TextDelta, ThinkingDelta, UsageDelta
from treadle.protocol.events import Purpose

__all__ = ["Call", "Delay", "Fail", "Finish", "Hang", "RawCall", "ReportUsage", "Say", "ScriptedModel", "Think", "Turn"]


class ScriptedModel:
    """Answers each call with the next turn of a script.

    Which turn is next is read from the request, so that a new process goes on at the right one (`follow`):
    `entries`  the number of assistant entries in the request; the default
    `turns`    the turn number of the last of them; for chats that are compacted, if no turn failed for good
    `calls`    the order of the calls made of this object; for chats whose history is edited, not for resuming
    Calls that are no turn (`request.purpose`) are answered from `others`, by purpose and as often as they come; one
    that is not in there gets a stock sentence.
    """

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
            side_turns = {
                key: turn if isinstance(turn, Turn) else Turn((Say(turn),))
                for key, turn in (side_answers or {}).items()
            }
            self.script = Script(turns_of(steps), side_turns, follow, info or Script(()).info)
        self._sleep = sleep
        self._next = 0
        """One more than the highest turn that was asked for."""
        self._calls = 0
        self._others: set[Purpose] = set()
        self._failed: dict[tuple[int | str, int], int] = {}

    @classmethod
    def from_file(cls, path: str | Path) -> "ScriptedModel":
        return cls(read_script(path))

    @property
    def info(self) -> ModelInfo:
        return self.script.info

    async def close(self) -> None:
        """Nothing is held open."""

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
                case Fail():
                    self._fail(part, (turn_key, number))
                case Hang():
                    await asyncio.Event().wait()
                case Finish(reason=reason):
                    finish = reason
                case FinishDelta():
                    finish = ""
                    yield [part]
                case _:
                    is_call = isinstance(part, Call | RawCall)
                    for delta in _deltas(part, turn.chunk, turn_key, calls):
                        yield [delta]
                        if turn.delay_s:
                            await self._sleep(turn.delay_s)
                    calls += is_call
        if finish != "":
            yield [FinishDelta(finish or ("tool_calls" if calls else "stop"))]

    def _choose(self, request: ModelRequest) -> tuple[int | str, Turn]:
        if request.purpose != "turn":
            self._others.add(request.purpose)
            stock = Turn((Say(f"(scripted {request.purpose})"),))
            return request.purpose, self.script.side_answers.get(request.purpose, stock)
        position = self._position(request)
        self._calls += 1
        if position >= len(self.script.turns):
            raise ScriptError(
                f"the script has {len(self.script.turns)} turns and was asked for turn {position + 1}; "
                "add it, or let the last turn end without calls"
            )
        self._next = max(self._next, position + 1)
        return position, self.script.turns[position]

    def _position(self, request: ModelRequest) -> int:
        if self.script.follow == "calls":
            return self._calls
        answers = [entry for entry in request.entries if isinstance(entry, AssistantEntry)]
        if self.script.follow == "turns":
            return answers[-1].turn if answers else 0
        return len(answers)

    def _fail(self, fail: Fail, key: tuple[int | str, int]) -> None:
        failures = self._failed[key] = self._failed.get(key, 0) + 1
        if fail.times == 0 or failures <= fail.times:
            if isinstance(key[0], int):
                self._calls -= 1  # under `calls`, a retry asks for this turn again
            raise ModelError(fail.kind, fail.message, status=fail.status, retry_after=fail.retry_after)


def _deltas(part: Part, chunk: int, turn_key: int | str, number: int) -> Iterable[Delta]:
    """Return the deltas of a part; `number` is its index among the calls of the turn."""
    match part:
        case Say(text=text):
            return map(TextDelta, _pieces(text, chunk))
        case Think(text=text):
            return map(ThinkingDelta, _pieces(text, chunk))
        case ReportUsage(usage=usage):
            return (UsageDelta(usage),)
        case Call(raw=raw):
            return _deltas(raw, chunk, turn_key, number)
        case RawCall(name=name, arguments=arguments, id=given):
            first = CallDelta(given or f"call_{turn_key}_{number}", number, name)
            return (first, *(CallDelta(index=number, arguments=piece) for piece in _pieces(arguments, chunk)))
        case Delay() | Fail() | Hang() | Finish():
            return ()
        case _:
            return (part,)


def _pieces(text: str, size: int) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)] if size else [text]


def connect(name: str, context: ProviderContext) -> ScriptedModel:
    return ScriptedModel.from_file(name)
