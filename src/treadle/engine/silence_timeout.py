"""How long a model call may take: how long it may be silent (L-12), how long it may last in all, and how long to wait
before a failed one is made again (M-11). A sign of life costs one look at the clock: no timer is set anew for it."""

import asyncio
import math
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from treadle.engine.tenure import CancelScope
from treadle.errors import PROVIDER_DOWN, ModelError
from treadle.ports.model import LONGEST_WAIT_S
from treadle.protocol.deltas import CallDelta, Delta, TextDelta, UsageDelta

SILENCE_S = 300.0
ANSWER_S = 3_600.0  # an answer that takes longer is not waited for, however lively it is
RETRIES = 5
BASE_S = 2.0
CAP_S = 30.0
JITTER = 0.25
UNREACHABLE_RETRIES = 1  # a server that does not run is not started by waiting
RETRY_LIMIT_S = 20.0  # the most that all waits together take while a provider is down and no person watches
_TRANSIENT = ("rate_limit", "overloaded", "network", "cut_stream", "silence")


class SilenceTimeout:
    """Ends its block with a ModelError: of kind `silence` when nothing arrived for too long, of kind `answer_limit`
    when the whole block takes too long. With `late`, time is checked only from `watch` on: a caller that already has a
    timer for short calls saves a second one."""

    __slots__ = ("_answer_s", "_end", "_last", "_loop", "_scope", "_silence_s", "_timer", "_watches")

    def __init__(self, silence_s: float, answer_s: float = ANSWER_S, *, late: bool = False) -> None:
        self._silence_s, self._answer_s = silence_s, answer_s
        self._loop = asyncio.get_running_loop()
        self._scope = CancelScope()
        self._last = self._loop.time()
        self._end = self._last + answer_s
        self._watches = not late
        self._timer: asyncio.TimerHandle | None = None

    def watch(self) -> None:
        self._watches = True
        self._timer = self._loop.call_at(self._compute_due_time(), self._check_silence)

    def hear(self, deltas: Sequence[Delta]) -> None:
        """An item came. Counts alone, or a call with nothing new, are no sign of life: servers keep a line open so."""
        if not deltas or type(deltas[0]) is TextDelta or any(map(_has_content, deltas)):
            self._last = self._loop.time()

    def _compute_due_time(self) -> float:
        return min(self._last + self._silence_s, self._end)

    def _check_silence(self) -> None:
        if self._loop.time() < self._compute_due_time():
            self.watch()
        else:
            self._scope.cancel()

    async def __aenter__(self) -> Self:
        self._scope.__enter__()
        if self._watches and self._timer is None:
            self.watch()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._scope.__exit__(kind, error, trace):
            if self._loop.time() >= self._end:
                message = f"The model did not end its answer within {self._answer_s:g} seconds; it was given up."
                raise ModelError("answer_limit", message) from error
            raise ModelError("silence", f"The model sent nothing for {self._silence_s:g} seconds.") from error


def _has_content(delta: Delta) -> bool:
    return bool(delta.name or delta.arguments) if type(delta) is CallDelta else type(delta) is not UsageDelta


def delay(
    error: ModelError, failures: int, chance: float, base_s: float = BASE_S, left_s: float = math.inf
) -> float | None:
    """Seconds before the next attempt; None: there is none. `left_s`: the longest wait for a provider that is down."""
    if error.kind not in _TRANSIENT or failures >= (UNREACHABLE_RETRIES if error.unreachable else RETRIES):
        return None
    wait = error.retry_after
    if wait is None:
        wait = float(min(base_s * 2.0**failures * (1 + JITTER * (2 * chance - 1)), CAP_S))
    longest_s = min(left_s, LONGEST_WAIT_S) if error.kind in PROVIDER_DOWN else LONGEST_WAIT_S
    return wait if wait <= longest_s else None
