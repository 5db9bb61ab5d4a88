"""Which thinking goes back to a model: sealed blocks of its own that it did not refuse (M-10). What was refused is left
out of one conversation from then on; the record is never changed."""

from collections.abc import Callable, Sequence
from weakref import WeakKeyDictionary

from treadle.ports.model import Encode, Memo, ModelRequest
from treadle.protocol.content import AssistantEntry, Thinking

Goes = Callable[[Thinking], bool]


class Returned:
    """Remembers, for one model, the refusals of its conversations."""

    def __init__(self, ref: str) -> None:
        self._ref = ref
        self._refused: WeakKeyDictionary[Memo, tuple[frozenset[str], Memo]] = WeakKeyDictionary()
        """By conversation: the blocks, and a memo for the bytes without them."""

    def pieces(self, request: ModelRequest, begin: Callable[[Goes], Encode]) -> Sequence[bytes]:
        """The bytes of each entry; `begin` makes an encoder that asks which blocks go back."""
        refused, memo = self._refused.get(request.memo, (frozenset[str](), request.memo))
        return memo.pieces(request.entries, lambda: begin(lambda block: self._goes(block, refused)))

    def drop(self, request: ModelRequest) -> bool:
        """Send none of this request's thinking again; False when none was sent."""
        refused, _ = self._refused.get(request.memo, (frozenset[str](), None))
        blocks = (block for entry in request.entries if isinstance(entry, AssistantEntry) for block in entry.thinking)
        sent = {block.opaque for block in blocks if self._goes(block, refused)}
        if sent:
            self._refused[request.memo] = (refused | sent, Memo())
        return bool(sent)

    def _goes(self, block: Thinking, refused: frozenset[str]) -> bool:
        return bool(block.opaque) and block.model == self._ref and block.opaque not in refused
