"""What the engine looks at while it decides, and what the log does not say about its surroundings: the model's window
and prices, the weight of the system text, the time. All of it is worked back from what the log does say next."""

from collections.abc import Sequence
from itertools import islice

from treadle.chat.state import ChatState
from treadle.chat.transcript import estimate
from treadle.chat.weight import CHARS_PER_TOKEN
from treadle.engine.hub import Hub
from treadle.engine.lease import Tenure
from treadle.engine.log import Ahead, Log
from treadle.engine.request import TYPICAL_OUTPUT
from treadle.ports.model import ModelInfo
from treadle.ports.store import Lease
from treadle.protocol.events import (
    CompactionComplete,
    CompactionStart,
    Event,
    LimitReached,
    LimitWarning,
    TurnEnd,
    TurnStart,
)
from treadle.protocol.options import ChatOptions
from treadle.replay.stage import Stage

ROOM = 1_000_000_000
NO_TOOLS = 2
"""Characters of the JSON of no tools at all."""


class WatchedLog(Log):
    """A log that tells which state the rules are being asked about: they are asked ahead of what is written."""

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage, Hub(), WrittenTime(self))
        self.stage = stage
        self.tenure: Tenure | None = None
        self._asked: ChatState | None = None

    @property
    def state(self) -> ChatState:
        """What the engine looks at."""
        return self._asked or (self.tenure.state if self.tenure is not None else ChatState())

    async def append(
        self,
        state: ChatState,
        events: Sequence[Event],
        *,
        lease: Lease | None,
        durable: bool,
        ahead: Ahead | None = None,
    ) -> ChatState:
        def asked(after: ChatState) -> Sequence[Event]:
            self._asked = after
            return ahead(after) if ahead is not None else ()

        self._asked = state
        try:
            return await super().append(state, events, lease=lease, durable=durable, ahead=asked)
        finally:
            self._asked = None

    def decision(self) -> list[Event]:
        """What the rules said next, where the engine looks."""
        return self.stage.recording.decision(self.state.head)


class WrittenTime:
    """The clock that stamps events: each gets its recorded time, so that deadlines and durations repeat."""

    def __init__(self, log: WatchedLog) -> None:
        self._log = log

    def now_ms(self) -> int:
        recording = self._log.stage.recording
        written = recording.at(self._log.state.head + 1)
        return (written or recording.events[-1]).time_ms

    def monotonic(self) -> float:
        return 0.0

    async def sleep(self, seconds: float) -> None:
        """Nobody sleeps on it."""


class DecidedTime(WrittenTime):
    """The clock that decisions are made by. Where the record has one that only time explains, it is that late;
    everywhere else it is as early as it can be."""

    def now_ms(self) -> int:
        if any(_timely(event) for event in self._log.decision()):
            due = self._log.stage.recording.due(self._log.state.head)
            return due.time_ms if due is not None else 0
        last = self._log.stage.recording.at(self._log.state.head)
        return last.time_ms if last is not None else 0

    async def sleep(self, seconds: float) -> None:
        """A wait before another attempt: it takes no time, but may have been the end of the run or of the worker."""
        due = await self._log.stage.turn()
        if isinstance(due.data, TurnEnd) and due.data.finish_reason == "interrupted":
            await self._log.stage.stopped()


def _timely(event: Event) -> bool:
    if isinstance(event, LimitReached | LimitWarning):
        return event.kind == "wall_s"
    return getattr(event, "synthetic", "") == "deadline"


def filler(log: WatchedLog, _options: ChatOptions) -> str:
    """A system text that weighs what the real one weighed together with the tools. The log has its weight in every
    estimate; rounded to tokens, which is all that the rules see of it."""
    state = log.state
    wanted = 0
    for event in log.decision():
        match event:
            case TurnStart(reserved=reserved):
                wanted = reserved.input
            case CompactionStart(trigger="threshold", tokens_before=before):
                wanted = before
            case LimitReached(kind="tokens", used=used, limit=limit):
                wanted = int(limit - used) + 1 - _expected_output(state)
            case _:
                pass
    chars = int((wanted - 1) * CHARS_PER_TOKEN) + 1 - state.context_chars
    return " " * max(0, chars - NO_TOOLS)


def _expected_output(state: ChatState) -> int:
    run = state.run
    return run.usage.output // run.turns if run is not None and run.turns else TYPICAL_OUTPUT


def info(log: WatchedLog, ref: str) -> ModelInfo:
    """A model of which is known what the log says next: its name and price where a turn is reserved, a window too
    small where a compaction begins, and room without end everywhere else."""
    state = log.state
    said = log.decision()[-1:]
    cramped = bool(state.compacting)
    price = 0.0
    for event in said:
        match event:
            case TurnStart(model=model, reserved=reserved):
                ref = model
                price = reserved.usd / reserved.input if reserved.input else 0.0
            case LimitReached():
                price = _too_dear(event, estimate(state, NO_TOOLS + len(filler(log, state.options))))
            case CompactionStart(trigger="threshold"):
                cramped = True
            case CompactionComplete(success=True):
                cramped = False  # masking was enough; where it was not, the model was asked first
            case CompactionComplete(error=error) if error != "interrupted":
                cramped = False  # the model was not even asked: for all of the history, that was too much
                over = _limit_behind(log)
                price = _too_dear(over, 1) if over is not None else 1.0
            case _:
                pass
    provider, _, name = ref.partition(":")
    window, output = (1, ROOM) if cramped else (ROOM, 0)
    return ModelInfo(provider, name, window, output, usd_per_million_input=price * 1_000_000)


def _too_dear(limit: LimitReached, tokens: int) -> float:
    """A price per token at which this many break the limit, and not by much."""
    if limit.kind != "usd" or not tokens:
        return 0.0
    return ((limit.limit - limit.used) * (1 + 1e-9) + 1e-9) / tokens


def _limit_behind(log: WatchedLog) -> LimitReached | None:
    """The limit that was told right behind what the rules said next."""
    told = list(islice(log.stage.recording.outputs(log.state.head), 2))
    return next((envelope.data for envelope in told[1:] if isinstance(envelope.data, LimitReached)), None)
