"""Models that answer from the record: with deltas that add up to exactly the message that was recorded, with the same
failures, and silent where the worker died or the run was interrupted."""

import math
from collections.abc import AsyncIterator, Sequence
from typing import cast, get_args

import msgspec

from treadle.chat.completion import MARKER
from treadle.errors import ConfigError, ModelError, ModelErrorKind
from treadle.ports.model import Model, ModelInfo, ModelRequest
from treadle.protocol import deltas as d
from treadle.protocol import events as e
from treadle.protocol.content import Usage
from treadle.replay.recorded_inputs import WatchedLog, info
from treadle.replay.recording import fault_of

NEVER = math.inf
"""What a provider asks for that is not waited for."""


class Said(msgspec.Struct, frozen=True):
    """What a model call came to."""

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
        said = _turn(following) if request.purpose == "turn" else _side_call(following)
        if said is None:
            await stage.leave(stage.differs(due, None))
        if said.deltas:
            yield said.deltas
        if said.stopped:
            await stage.stopped()
        if said.error is not None:
            raise said.error

    async def close(self) -> None:
        """Nothing is held open."""


def _turn(following: Sequence[e.Event]) -> Said | None:
    """The attempt that these events are the record of; None if they are none of an attempt."""
    first, *rest = following
    match first:
        case e.ModelNotice(kind=kind, text=text):
            later = _turn(rest) if rest else Said((d.UsageDelta(Usage()), d.FinishDelta()))
            notice = (d.NoticeDelta(kind, text),)
            return later and msgspec.structs.replace(later, deltas=(*notice, *later.deltas))
        case e.TurnRetry():
            return Said(_counted(first.usage), _failure(first, rest))
        case e.AssistantMessage():
            marked = bool(rest) and isinstance(rest[0], e.TaskComplete)  # one by the tool comes behind its result
            deltas = (*_deltas(first, marked), d.UsageDelta(first.usage or Usage()))  # none in a torn copy
            if first.partial:
                return Said(deltas, stopped=True)
            return Said((*deltas, d.FinishDelta(first.finish_reason)))
        case e.TurnEnd(usage=usage, finish_reason="interrupted"):
            return Said(_counted(usage), stopped=True)
        case e.SessionError(error_class=kind, message=message):
            return Said(error=_error(kind, message))
        case _:
            return None


def _deltas(message: e.AssistantMessage, marked: bool) -> list[d.Delta]:
    """The parts of a message, in an order that adds up to it."""
    deltas: list[d.Delta] = [d.ThinkingBlock(block) for block in message.reasoning]
    text = message.content + (MARKER if marked else "")
    if text:
        deltas.append(d.TextDelta(text))
    for position, request in enumerate(message.tool_requests):
        named = (request.id or None, position, request.name or None)
        deltas.append(d.CallDelta(*named, request.arguments, request.repaired))
    return deltas


def _counted(usage: Usage) -> tuple[d.Delta, ...]:
    """What was counted before the end; nothing was heard of a call that cost nothing."""
    return (d.UsageDelta(usage),) if usage != Usage() else ()


def _failure(retry: e.TurnRetry, rest: Sequence[e.Event]) -> Exception:
    """The failure behind a retry, which asks for the wait that was chosen then; or for none, where the turn was given
    up and the retry stands only for what the attempt had cost."""
    following = rest[0] if rest else None
    given_up = not retry.delay_s and retry.usage.tokens and isinstance(following, e.SessionError)
    if isinstance(following, e.SessionError) and following.error_class == retry.error_class == "internal":
        return fault_of(following)
    return _error(retry.error_class, retry.message, NEVER if given_up else retry.delay_s)


def _error(kind: str, message: str, retry_after: float = NEVER) -> Exception:
    if kind == "config":
        return ConfigError(message)
    known = kind if kind in (*get_args(ModelErrorKind), "internal") else "bad_request"
    return ModelError(cast(ModelErrorKind, known), message, retry_after=retry_after)


def _side_call(following: Sequence[e.Event]) -> Said | None:
    """A call that is no turn. A compaction's text is its summary, recorded with the compaction itself."""
    first, *rest = following
    match first:
        case e.ModelCall(usage=usage, error="interrupted"):
            return Said(_counted(usage), stopped=True)
        case e.ModelCall(usage=usage, error=error) if error:
            return Said(_counted(usage), ModelError("bad_request", error))
        case e.ModelCall(usage=usage, text=text):
            if rest and isinstance(rest[0], e.CompactionComplete):
                text = rest[0].summary
            return Said((d.TextDelta(text), d.UsageDelta(usage), d.FinishDelta()))
        case e.CompactionComplete(error="interrupted") | e.RunEnd(reason="interrupted"):
            return Said(stopped=True)
        case _:
            return None
