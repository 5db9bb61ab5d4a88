"""Models that answer from the record: with deltas that add up to exactly the message that was recorded, with the same
failures, and silent where the worker died or the run was interrupted."""

import math
from collections.abc import AsyncIterator, Sequence
from typing import cast, get_args

import msgspec

from treadle.chat.completion import MARKER
from treadle.errors import ConfigError, ModelError, ModelErrorKind
from treadle.library.replay.recorded_inputs import WatchedLog, info
from treadle.library.replay.recording import fault_of
from treadle.ports.model import Model, ModelInfo, ModelRequest
from treadle.protocol import deltas as d
from treadle.protocol import events as e
from treadle.protocol.content import Usage

NEVER = math.inf
"""A requested wait that is longer than any limit, so that the call is not repeated."""


class RecordedAnswer(msgspec.Struct, frozen=True):
    """The recorded outcome of a model call."""

    deltas: tuple[d.Delta, ...] = ()
    error: Exception | None = None
    stopped: bool = False


class RecordedModels:
    """Implements `treadle.ports.model.Models`."""

    def __init__(self, log: WatchedLog) -> None:
        self._log = log

    def get(self, ref: str) -> Model:
        for event in self._log.decision()[:1]:
            match event:
                case e.SessionError(error_class="config", message=message):
                    raise ConfigError(message)
                case e.CompactionComplete(success=False, threshold=0, error=message):
                    raise ConfigError(message)
                case _:
                    pass
        return RecordedModel(self._log, ref)

    async def close(self) -> None:
        """Nothing is held open."""


class RecordedModel:
    def __init__(self, log: WatchedLog, ref: str) -> None:
        self._log = log
        self._ref = ref

    @property
    def info(self) -> ModelInfo:
        return info(self._log, self._ref)

    async def stream(self, request: ModelRequest) -> AsyncIterator[Sequence[d.Delta]]:
        stage = self._log.stage
        due = await stage.turn()
        following = [envelope.data for envelope in stage.recording.following(due)]
        answer = _turn(following) if request.purpose == "turn" else _side_call(following)
        if answer is None:
            await stage.leave(stage.differs(due, None))
        if answer.deltas:
            yield answer.deltas
        if answer.stopped:
            await stage.stopped()
        if answer.error is not None:
            raise answer.error

    async def close(self) -> None:
        """Nothing is held open."""


def _turn(following: Sequence[e.Event]) -> RecordedAnswer | None:
    """The attempt that these events are the record of; None if they are none of an attempt."""
    first, *later_events = following
    match first:
        case e.ModelNotice(kind=kind, text=text):
            later = _turn(later_events) if later_events else RecordedAnswer((d.UsageDelta(Usage()), d.FinishDelta()))
            notice = (d.NoticeDelta(kind, text),)
            return later and msgspec.structs.replace(later, deltas=(*notice, *later.deltas))
        case e.TurnRetry():
            return RecordedAnswer(_counted(first.usage), _failure(first, later_events))
        case e.AssistantMessage():
            # A completion by the tool comes behind its result; one by the marker right behind the message.
            marked = bool(later_events) and isinstance(later_events[0], e.TaskComplete)
            deltas = (*_deltas(first, marked), d.UsageDelta(first.usage or Usage()))  # none in a torn copy
            if first.partial:
                return RecordedAnswer(deltas, stopped=True)
            return RecordedAnswer((*deltas, d.FinishDelta(first.finish_reason)))
        case e.TurnEnd(usage=usage, finish_reason="interrupted"):
            return RecordedAnswer(_counted(usage), stopped=True)
        case e.SessionError(error_class=kind, message=message):
            return RecordedAnswer(error=_error(kind, message))
        case _:
            return None


def _deltas(message: e.AssistantMessage, marked: bool) -> list[d.Delta]:
    """The parts of a message, in an order that adds up to it."""
    deltas: list[d.Delta] = [d.ThinkingBlock(block) for block in message.reasoning]
    text = message.content + (MARKER if marked else "")
    if text:
        deltas.append(d.TextDelta(text))
    for position, request in enumerate(message.tool_requests):
        call_labels = (request.id or None, position, request.name or None)
        deltas.append(d.CallDelta(*call_labels, request.arguments, request.repaired))
    return deltas


def _counted(usage: Usage) -> tuple[d.Delta, ...]:
    """Return the usage that was counted before the end; no usage is reported for a call that cost nothing."""
    return (d.UsageDelta(usage),) if usage != Usage() else ()


def _failure(retry: e.TurnRetry, later_events: Sequence[e.Event]) -> Exception:
    """The failure behind a retry, which asks for the wait that was chosen then; or for none, where the turn was given
    up and the retry stands only for what the attempt had cost."""
    following = later_events[0] if later_events else None
    given_up = not retry.delay_s and retry.usage.tokens and isinstance(following, e.SessionError)
    if isinstance(following, e.SessionError) and following.error_class == retry.error_class == "internal":
        return fault_of(following)
    return _error(retry.error_class, retry.message, NEVER if given_up else retry.delay_s)


def _error(kind: str, message: str, retry_after: float = NEVER) -> Exception:
    if kind == "config":
        return ConfigError(message)
    error_kind = kind if kind in (*get_args(ModelErrorKind), "internal") else "bad_request"
    return ModelError(cast(ModelErrorKind, error_kind), message, retry_after=retry_after)


def _side_call(following: Sequence[e.Event]) -> RecordedAnswer | None:
    """A call that is no turn. A compaction's text is its summary, recorded with the compaction itself."""
    first, *later_events = following
    match first:
        case e.ModelCall(usage=usage, error="interrupted"):
            return RecordedAnswer(_counted(usage), stopped=True)
        case e.ModelCall(usage=usage, error=error) if error:
            return RecordedAnswer(_counted(usage), ModelError("bad_request", error))
        case e.ModelCall(usage=usage, text=text):
            if later_events and isinstance(later_events[0], e.CompactionComplete):
                text = later_events[0].summary
            return RecordedAnswer((d.TextDelta(text), d.UsageDelta(usage), d.FinishDelta()))
        case e.CompactionComplete(error="interrupted") | e.RunEnd(reason="interrupted"):
            return RecordedAnswer(stopped=True)
        case _:
            return None
