"""What the engine looks at while it decides, and what the log does not say about its surroundings: the model's window
and prices, the weight of the system text, the time. All of it is worked back from what the log does say next."""

from collections.abc import Sequence
from itertools import islice
from typing import Any

from treadle.chat.assembly import NOTICES
from treadle.chat.history import CHARS_PER_TOKEN
from treadle.chat.state import ChatState
from treadle.chat.transcript import COMPACT_AT, HEADROOM_TOKENS, estimate, threshold
from treadle.engine.hub import Hub
from treadle.engine.log import Ahead, Log
from treadle.engine.request import TYPICAL_OUTPUT
from treadle.engine.tenure import Tenure
from treadle.ports.model import ModelInfo
from treadle.protocol import events as e
from treadle.protocol.options import ChatOptions
from treadle.replay.store import ReplayStore

ROOM = 1_000_000_000
ROOMY = (ROOM, 0)
CRAMPED = (1, ROOM)
"""A window and an output limit."""
NO_TOOLS = 2
"""Characters of the JSON of no tools at all."""


class WatchedLog(Log):
    """A log that tells which state the rules are being asked about: they are asked ahead of what is written."""

    def __init__(self, stage: ReplayStore) -> None:
        super().__init__(stage, Hub(), WrittenTime(self))
        self.stage = stage
        self.tenure: Tenure | None = None
        self._asked: ChatState | None = None

    @property
    def state(self) -> ChatState:
        """What the engine looks at."""
        return self._asked or (self.tenure.state if self.tenure is not None else ChatState())

    async def append(
        self, state: ChatState, events: Sequence[e.Event], *, ahead: Ahead | None = None, **given: Any
    ) -> ChatState:
        def asked(after: ChatState) -> Sequence[e.Event]:
            self._asked = after
            return ahead(after) if ahead is not None else ()

        self._asked = state
        try:
            return await super().append(state, events, ahead=asked, **given)
        finally:
            self._asked = None

    def decision(self) -> list[e.Event]:
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
        if isinstance(due.data, e.TurnEnd) and due.data.finish_reason == "interrupted":
            await self._log.stage.stopped()


def _timely(event: e.Event) -> bool:
    if isinstance(event, e.LimitReached | e.LimitWarning):
        return event.kind == "wall_s"
    return getattr(event, "synthetic", "") == "deadline"


def filler(log: WatchedLog, _options: ChatOptions) -> str:
    """A system text that weighs what the real one weighed together with the tools. The log has its weight in every
    estimate; rounded to tokens, which is all that the rules see of it."""
    state = log.state
    wanted = 0
    for event in log.decision():
        match event:
            case e.TurnStart(reserved=reserved):
                wanted = reserved.input
            case e.CompactionStart(trigger="threshold", tokens_before=before):
                wanted = before
            case e.LimitReached(kind="tokens", used=used, limit=limit):
                wanted = int(limit - used) + 1 - _expected_output(state)
            case _:
                pass
    chars = int((wanted - 1) * CHARS_PER_TOKEN) + 1 - state.context_chars
    return " " * max(0, chars - NO_TOOLS)


def _expected_output(state: ChatState) -> int:
    run = state.run
    return run.usage.output // run.turns if run is not None and run.turns else TYPICAL_OUTPUT


def info(log: WatchedLog, ref: str) -> ModelInfo:
    """A model of which is known what the log says next: its name and price where a turn is reserved, how much it holds
    where a compaction begins or is made, and room without end everywhere else."""
    state = log.state
    near = [envelope.data for envelope in islice(log.stage.recording.outputs(state.head), 2)]
    price = 0.0
    match log.decision()[-1:]:
        case [e.TurnStart(model=ref, reserved=reserved)]:
            price = reserved.usd / reserved.input if reserved.input else 0.0
        case [e.LimitReached() as limit]:
            price = _too_dear(limit, estimate(state, NO_TOOLS + len(filler(log, state.options))))
        case [e.CompactionComplete(success=False, error=error)] if error != "interrupted":
            behind = near[-1]  # the limit that forbade it, if that was not cut off from it
            price = _too_dear(behind, 1) if isinstance(behind, e.LimitReached) else 1.0
        case _:
            pass
    window, output = _capacity(state, near)
    provider, _, name = ref.partition(":")
    native = not _is_marked(log, state)
    # The log has settled the question of a known price: it records how the run went on.
    usd = price * 1_000_000
    return ModelInfo(provider, name, window, output, usd_per_million_input=usd, native_tools=native, free=True)


def _is_marked(log: WatchedLog, state: ChatState) -> bool:
    """Whether the answer that comes next ended its run by the marker: only the record knows which rung it was on."""
    if state.open_turn is None:
        return False
    near = [envelope.data for envelope in islice(log.stage.recording.outputs(state.head), NOTICES + 2)]
    said = next((place for place, event in enumerate(near) if isinstance(event, e.AssistantMessage)), len(near))
    return any(isinstance(event, e.TaskComplete) for event in near[said + 1 : said + 2])


def _too_dear(limit: e.LimitReached, tokens: int) -> float:
    """A price per token at which this many break the limit, and not by much."""
    if limit.kind != "usd" or not tokens:
        return 0.0
    return ((limit.limit - limit.used) * (1 + 1e-9) + 1e-9) / tokens


def _capacity(state: ChatState, near: Sequence[e.Event]) -> tuple[int, int]:
    """A window and an output limit that lead where the log leads. Only the threshold that they make is ever seen."""
    done = next((event for event in near if isinstance(event, e.CompactionComplete)), None)
    if state.compacting and done is not None and done.threshold:
        return _making(done.threshold, state.options)
    if state.compacting or isinstance(near[0] if near else None, e.CompactionStart):
        return CRAMPED
    return ROOMY


def _making(wanted: int, options: ChatOptions) -> tuple[int, int]:
    """A window and an output limit, as far as the options leave them open, that make this threshold."""
    fixed, output = options.context_window, options.max_tokens
    if fixed:
        return fixed, max(0, fixed - HEADROOM_TOKENS - wanted)
    share = int(wanted / COMPACT_AT)
    for window in (2 * wanted, wanted + output + HEADROOM_TOKENS, share, share + 1):
        if threshold(window, output or ROOM) == wanted:
            return window, ROOM
    return CRAMPED
