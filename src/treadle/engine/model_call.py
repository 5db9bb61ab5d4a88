"""One turn: reserve, call the model, show what comes live, record the answer. Failed attempts are recorded and made
again after a wait (M-11); an interrupt keeps the text so far (L-07). An answer is recorded when its stream ended."""

import math
from collections.abc import Sequence
from contextlib import aclosing

from msgspec.structs import replace

from treadle.base.file_system import reach_faultpoint
from treadle.chat.assembly import Assembler, ModelAnswer
from treadle.chat.budget import admit
from treadle.chat.completion import MarkerFilter, is_marker_used, strip_marker, strip_thinking
from treadle.chat.history import estimate_tokens
from treadle.chat.state import ChatState
from treadle.chat.transcript import estimate
from treadle.engine import request as requests
from treadle.engine.deps import Deps
from treadle.engine.silence_timeout import SilenceTimeout, delay
from treadle.engine.tenure import DOUBT_S, Stopped, Tenure
from treadle.errors import ConfigError, ModelError, StoreError
from treadle.ports.model import Model, ModelRequest
from treadle.protocol import events as e
from treadle.protocol.content import Usage
from treadle.protocol.deltas import CallDelta, Delta, NoticeDelta, TextDelta, ThinkingDelta


async def call_model(tenure: Tenure, final: bool, deps: Deps) -> None:
    """Make the chat's next model call, or go on with the one that a dead worker had begun."""
    try:
        model = requests.find_model(tenure.state, deps)
    except ConfigError as error:
        return await tenure.append(e.SessionError("config", str(error)))
    if tenure.state.open_turn is None:
        await tenure.append(*open_turn(tenure.state, final, deps), durable=False, patience_s=DOUBT_S)
    request = requests.build(tenure, model, final, deps)
    await requests.load_pictures(request, deps)
    while (current_turn := tenure.state.open_turn) is not None:
        if (
            current_turn.attempts
            and (over := requests.find_blocking_limit(tenure.state, current_turn.reserved, deps)) is not None
        ):
            return await tenure.append(over)
        attempt = ModelAttempt(tenure, model, current_turn.turn, deps)
        try:
            outcome = await tenure.run_unless_stopped(attempt.run(request), attempt.watch_silence)
        except ModelError as error:
            if not await _retry(tenure, attempt, error, deps):
                return
            continue
        except ConfigError as error:
            return await tenure.record(
                *_build_retry_events(tenure, attempt, "config", error), e.SessionError("config", str(error))
            )
        except StoreError:
            raise
        except Exception as error:  # a fault of an adapter: what had come by then was paid for
            if not (paid := _build_retry_events(tenure, attempt, "internal", error)):
                raise
            return await tenure.record(*paid, e.SessionError("internal", f"{type(error).__name__}: {error}"))
        # An answer with calls is synced together with its first intent, before anything it asks for takes effect.
        durable = isinstance(outcome, Stopped) or not outcome.requests
        return await tenure.record(*attempt.build_events(outcome), durable=durable)


def open_turn(state: ChatState, final: bool, deps: Deps) -> tuple[e.Event, ...]:
    """The events that begin the next turn and reserve its cost, or its limit; none when there is no model to call."""
    try:
        info = requests.find_model(state, deps).info
    except ConfigError:
        return ()
    if state.run is None:
        return ()
    start = e.TurnStart(state.turn + 1, info.ref, requests.estimate_next_usage(state, info, deps), final)
    return admit(state, state.run, start, deps.clock.now_ms())


def _build_retry_events(tenure: Tenure, attempt: "ModelAttempt", kind: str, error: Exception) -> list[e.Event]:
    """The record of an attempt that came to nothing; none if nothing of an answer had come."""
    usage, current_turn = attempt.compute_cost(), tenure.state.open_turn
    failures = current_turn.failures if current_turn is not None else 0
    return [e.TurnRetry(attempt.turn, failures + 1, kind, str(error), usage=usage)] if usage.tokens else []


async def _retry(tenure: Tenure, attempt: "ModelAttempt", error: ModelError, deps: Deps) -> bool:
    """Record a failed attempt and wait; False when the turn is not to be made again here."""
    current_turn = tenure.state.open_turn
    failures = current_turn.failures if current_turn is not None else 0
    tenure.publish_live(e.AssistantReset(attempt.turn))
    retry = e.TurnRetry(attempt.turn, failures + 1, error.kind, str(error), usage=attempt.compute_cost())
    if error.kind == "context_limit" and current_turn is not None and not current_turn.forced_compaction:
        await tenure.record(retry, e.CompactionStart("context_limit"))
        return False
    # A chat that asks at its limits has a person who sees the retries and can stop them.
    is_limited = deps.retry_limit_s and tenure.state.options.limit_rule != "ask"
    left_s = deps.retry_limit_s - (current_turn.down_s if current_turn is not None else 0.0) if is_limited else math.inf
    wait = delay(error, failures, deps.chance(), deps.retry_base_s, left_s)
    if wait is None:
        await tenure.record(
            *_build_retry_events(tenure, attempt, error.kind, error), e.SessionError(error.kind, str(error))
        )
        return False
    await tenure.record(replace(retry, delay_s=round(wait, 3)))
    return not isinstance(await tenure.run_unless_stopped(deps.clock.sleep(wait)), Stopped)


class ModelAttempt:
    __slots__ = ("_assembler", "_deps", "_gates", "_model", "_silence", "_tenure", "heard", "turn")

    def __init__(self, tenure: Tenure, model: Model, turn: int, deps: Deps) -> None:
        self.turn, self.heard = turn, False
        self._tenure, self._model, self._deps = tenure, model, deps
        self._silence = SilenceTimeout(deps.silence_s, deps.answer_s, late=True)
        self._assembler = Assembler(turn, self._show_call)
        self._gates: tuple[MarkerFilter, MarkerFilter] | None = None  # of text and thinking, once they have begun

    def watch_silence(self) -> None:
        self._silence.watch()

    async def run(self, request: ModelRequest) -> ModelAnswer:
        reach_faultpoint("model.before_call")
        self._tenure.speak(self._list_live_text)
        try:
            return await self._listen(request)
        finally:
            self._tenure.speak(None)

    async def _listen(self, request: ModelRequest) -> ModelAnswer:
        silence = self._silence
        start_time = self._deps.clock.monotonic()
        async with silence, aclosing(self._model.stream(request)) as stream:  # type: ignore[type-var]
            async for deltas in stream:
                # Deltas that are only notices of the adapter are not part of the answer and cost nothing.
                if not self.heard and not (deltas and all(isinstance(delta, NoticeDelta) for delta in deltas)):
                    self.heard = True
                    if is_marker_used(self._tenure.state.options, self._model.info.native_tools):
                        self._gates = MarkerFilter(), MarkerFilter()
                    reach_faultpoint("model.first_delta")
                    waited = self._deps.clock.monotonic() - start_time
                    self._deps.observer.on_first_token(self._tenure.state.chat, self.turn, waited)
                silence.hear(deltas)
                self._assembler.feed(deltas)
                if self._tenure.has_reader:
                    self._show(deltas)
        reach_faultpoint("model.after_call")
        if (ending := self._assembler.ending) is not None:
            self._deps.observer.on_answer(self._tenure.state.chat, self.turn, ending)
        return self._assembler.finish(self._model.info.ref)

    def _list_live_text(self) -> list[e.Envelope]:
        """Return the text so far, for a reader that subscribes in the middle of the answer (D-04)."""
        text, thinking = self._assembler.text, self._assembler.thinking_text
        if self._gates:
            self._gates = MarkerFilter(), MarkerFilter()
            text, thinking = self._gates[0].feed(text), self._gates[1].feed(thinking)
        live: list[e.Live] = [e.ReasoningDelta(self.turn, thinking)] if thinking else []
        live += [e.MessageDelta(self.turn, text)] if text else []
        return [e.Envelope(0, self._tenure.state.chat, self._deps.clock.now_ms(), event) for event in live]

    def _show(self, deltas: Sequence[Delta]) -> None:
        for delta in deltas:
            if isinstance(delta, TextDelta | ThinkingDelta):
                gate_index, event_class = (0, e.MessageDelta) if isinstance(delta, TextDelta) else (1, e.ReasoningDelta)
                if text := self._gates[gate_index].feed(delta.text) if self._gates else delta.text:
                    self._tenure.publish_live(event_class(self.turn, text))

    def _show_call(self, position: int, delta: CallDelta) -> None:
        if self._tenure.has_reader:
            self._tenure.publish_live(e.ToolCallDelta(self.turn, position, delta.name or "", delta.arguments))

    def compute_cost(self) -> Usage:
        if not self.heard:
            return Usage()
        if self._assembler.usage is not None:
            return requests.price_usage(self._assembler.usage, self._model.info)
        # The provider cannot tell, or the stream was cut.
        state, info, text = self._tenure.state, self._model.info, self._assembler.text + self._assembler.thinking_text
        used_tokens = estimate(state, requests.measure_overhead(state, info, self._deps))
        return requests.price_usage(Usage(used_tokens, estimate_tokens(len(text)), estimated=True), info)

    def build_events(self, outcome: ModelAnswer | Stopped) -> list[e.Event]:
        info, usage, partial = self._model.info, self.compute_cost(), isinstance(outcome, Stopped)
        answer = self._assembler.build_partial_answer(info.ref) if isinstance(outcome, Stopped) else outcome
        text, thinking, marked = answer.text, answer.thinking, False
        if self._gates:
            text, marked = strip_marker(text)
            thinking, thought_so = strip_thinking(thinking)
            if thought_so and not answer.requests:  # a model that thinks of the end and then calls tools has not ended
                text, marked = text.rstrip(), True
        events: list[e.Event] = [e.ModelNotice(notice.kind, notice.text) for notice in self._assembler.notices]
        cost_and_reason = (usage, answer.finish_reason)
        if not partial or text or thinking:
            events.append(e.AssistantMessage(self.turn, text, thinking, answer.requests, partial, *cost_and_reason))
        else:  # nothing came that could be kept, but it may have cost something
            events.append(e.TurnEnd(self.turn, *cost_and_reason))
        if marked and not partial:
            events.append(e.TaskComplete())
        state = self._tenure.state
        window, cost = state.options.context_window or info.window, state.totals.usage.usd + usage.usd
        self._tenure.publish_live(e.UsageInfo(usage.input + usage.output, window, cost))
        return events
