"""A model that speaks Chat Completions until its server says that it speaks only the Responses API (M-01, M-05)."""

import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing
from weakref import WeakKeyDictionary

from msgspec.structs import replace

from treadle.adapters.models.base import ModelBase
from treadle.errors import ModelError
from treadle.ports.model import Memo, Model, ModelRequest
from treadle.protocol.deltas import Delta

_OTHER_WIRE = re.compile(
    r"/responses\b.*/chat/completions|/chat/completions\b.*/responses|not (?:accessible|supported).*/chat/completions",
    re.I | re.S,
)


def demands_responses(error: ModelError) -> bool:
    """True if the server says that the model is to be called by the other protocol."""
    return error.kind == "bad_request" and _OTHER_WIRE.search(str(error)) is not None


class ChatOrResponses(ModelBase):
    """`chat` is used until the server names the other protocol; `make_responses` makes the model for that."""

    def __init__(self, chat: Model, make_responses: Callable[[], Model]) -> None:
        super().__init__(chat.info)
        self._chat = chat
        self._make_responses = make_responses
        self._responses: Model | None = None
        self._memos: WeakKeyDictionary[Memo, Memo] = WeakKeyDictionary()
        """The conversations on the second wire: a memo holds the bytes of one."""

    def __repr__(self) -> str:
        return repr(self._responses or self._chat)

    async def stream(self, request: ModelRequest) -> AsyncIterator[Sequence[Delta]]:
        if self._responses is None:
            try:
                async with aclosing(self._chat.stream(request)) as stream:  # type: ignore[type-var]
                    async for deltas in stream:
                        yield deltas
                return
            except ModelError as error:
                if not demands_responses(error):
                    raise
                self._responses = self._make_responses()
        memo = self._memos.setdefault(request.memo, Memo())
        async with aclosing(self._responses.stream(replace(request, memo=memo))) as stream:  # type: ignore[type-var]
            async for deltas in stream:
                yield deltas

    async def close(self) -> None:
        await self._chat.close()
        if self._responses is not None:
            await self._responses.close()
