"""The observer of the work: telemetry. It receives committed events, and facts that only the live process has. It
decides nothing, and nothing waits for it."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

from treadle.base.types import CallKey, ChatId
from treadle.chat.state import ChatState
from treadle.protocol.deltas import FinishDelta
from treadle.protocol.events import Envelope


class Observer:
    """As it stands here, one that watches nothing."""

    _nothing = nullcontext()

    def on_append(self, previous_state: ChatState, envelopes: Sequence[Envelope]) -> None:
        """This process has appended these events to the log that `previous_state` is the fold of."""

    def on_first_token(self, chat: ChatId, turn: int, seconds: float) -> None:
        """The model has begun to answer, so long after it was asked."""

    def on_answer(self, chat: ChatId, turn: int, ending: FinishDelta) -> None: ...

    def trace_work(self, state: ChatState, call: CallKey | None = None) -> AbstractContextManager[None]:
        """Return a context. Work inside it belongs to the chat's run; with `call`, to that call."""
        return self._nothing

    def make_traceparent(self, state: ChatState, waits: CallKey) -> str:
        """For a client that runs a call itself: the span in which the chat waits for that. Empty if none is made."""
        return ""

    async def close(self) -> None:
        pass
