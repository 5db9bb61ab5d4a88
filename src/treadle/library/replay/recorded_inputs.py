"""Inputs of the engine's decisions that are not in the log: the model's window and prices, the size of the system
prompt, the time. All of them are derived from the events that follow in the log."""

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
from treadle.library.replay.store import ReplayStore
from treadle.ports.model import ModelInfo
from treadle.protocol import events as e
from treadle.protocol.options import ChatOptions

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
        """The state on which the engine decides now."""
        return self._asked or (self.tenure.state if self.tenure is not None else ChatState())

    async def append(
        self,
        state: ChatState,
        events: Sequence[e.Event],
        *,
        effect_free_events: Ahead | None = None,
        **append_options: Any,
    ) -> ChatState:
        def record_state(new_state: ChatState) -> Sequence[e.Event]:
            self._asked = new_state
            return effect_free_events(new_state) if effect_free_events is not None else ()

        self._asked = state
        try:
            return await super().append(state, events, effect_free_events=record_state, **append_options)
        finally:
            self._asked = None

    def decision(self) -> list[e.Event]:
        """Return the next recorded decision of the rules, after the state on which the engine decides now."""
        return self.stage.recording.decision(self.state.head)


class WrittenTime:
    """The clock that stamps events: each gets its recorded time, so that deadlines and durations repeat."""

    def __init__(self, log: WatchedLog) -> None:
        self._log = log

    def now_ms(self) -> int:
        recording = self._log.stage.recording
        envelope = recording.at(self._log.state.head + 1)
        return (envelope or recording.events[-1]).time_ms

    def monotonic(self) -> float:
        return 0.0

    async def sleep(self, seconds: float) -> None:
        """Do nothing: no code sleeps on this clock."""


class DecidedTime(WrittenTime):
    """The clock that decisions are made by. Where the record has one that only time explains, it is that late;
    everywhere else it is as early as it can be."""

    def now_ms(self) -> int:
        recording, head = self._log.stage.recording, self._log.state.head
        envelope = recording.due(head) if any(map(_is_timely, self._log.decision())) else recording.at(head)
        return envelope.time_ms if envelope is not None else 0

    async def sleep(self, seconds: float) -> None:
        """A wait before another attempt: it takes no time, but may have been the end of the run or of the worker."""
        due = await self._log.stage.turn()
        if isinstance(due.data, e.TurnEnd) and due.data.finish_reason == "interrupted":
            await self._log.stage.stopped()


def _is_timely(event: e.Event) -> bool:
    if isinstance(event, e.LimitReached | e.LimitWarning):
        return event.kind == "wall_s"
    return getattr(event, "synthetic", "") == "deadline"


def filler(log: WatchedLog) -> str:
    """A system text that weighs what the real one weighed together with the tools. The log has its weight in every
    estimate; rounded to tokens, which is all that the rules see of it."""
    state = log.state
    target_tokens = 0
    for event in log.decision():
        match event:
            case e.TurnStart(reserved=reserved):
                target_tokens = reserved.input
            case e.CompactionStart(trigger="threshold", tokens_before=before):
                target_tokens = before
            case e.LimitReached(kind="tokens", used=used, limit=limit):
                run = state.run
                expected = run.usage.output // run.turns if run is not None and run.turns else TYPICAL_OUTPUT
                target_tokens = int(limit - used) + 1 - expected
            case _:
                pass
    chars = int((target_tokens - 1) * CHARS_PER_TOKEN) + 1 - state.context_chars
    return " " * max(0, chars - NO_TOOLS)


def info(log: WatchedLog, ref: str) -> ModelInfo:
    """A model of which is known what the log says next: its name and price where a turn is reserved, how much it holds
    where a compaction begins or is made, and room without end everywhere else."""
    state = log.state
    next_events = [envelope.data for envelope in islice(log.stage.recording.outputs(state.head), 2)]
    price = 0.0
    match log.decision()[-1:]:
        case [e.TurnStart(model=ref, reserved=reserved)]:
            price = reserved.usd / reserved.input if reserved.input else 0.0
        case [e.LimitReached() as limit]:
            price = _too_dear(limit, estimate(state, NO_TOOLS + len(filler(log))))
        case [e.CompactionComplete(success=False, error=error)] if error != "interrupted":
            limit_event = next_events[-1]  # the limit that forbade it, if that was not cut off from it
            price = _too_dear(limit_event, 1) if isinstance(limit_event, e.LimitReached) else 1.0
        case _:
            pass
    window, output = _capacity(state, next_events)
    provider, _, name = ref.partition(":")
    native = True
    if state.open_turn is not None:  # only the record knows the rung of an answer that ended its run by the marker
        coming = [envelope.data for envelope in islice(log.stage.recording.outputs(state.head), NOTICES + 2)]
        answers = [index for index, event in enumerate(coming) if isinstance(event, e.AssistantMessage)]
        native = not answers or not isinstance((*coming, None)[answers[0] + 1], e.TaskComplete)
    # The log has settled the question of a known price: it records how the run went on.
    usd = price * 1_000_000
    return ModelInfo(provider, name, window, output, usd_per_million_input=usd, native_tools=native, free=True)


def _too_dear(limit: e.LimitReached, tokens: int) -> float:
    """A price per token at which this many break the limit, and not by much."""
    if limit.kind != "usd" or not tokens:
        return 0.0
    return ((limit.limit - limit.used) * (1 + 1e-9) + 1e-9) / tokens


def _capacity(state: ChatState, next_events: Sequence[e.Event]) -> tuple[int, int]:
    """A window and an output limit that lead where the log leads. Only the threshold that they make is ever seen."""
    completion = next((event for event in next_events if isinstance(event, e.CompactionComplete)), None)
    if state.compacting and completion is not None and completion.threshold:
        return _making(completion.threshold, state.options)
    if state.compacting or isinstance(next_events[0] if next_events else None, e.CompactionStart):
        return CRAMPED
    return ROOMY


def _making(target_threshold: int, options: ChatOptions) -> tuple[int, int]:
    """A window and an output limit, as far as the options leave them open, that make this threshold."""
    fixed, output = options.context_window, options.max_tokens
    if fixed:
        return fixed, max(0, fixed - HEADROOM_TOKENS - target_threshold)
    share = int(target_threshold / COMPACT_AT)
    for window in (2 * target_threshold, target_threshold + output + HEADROOM_TOKENS, share, share + 1):
        if threshold(window, output or ROOM) == target_threshold:
            return window, ROOM
    return CRAMPED
