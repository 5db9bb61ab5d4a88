"""The newest states of chats that this process has seen, with what is derived from them: so that a command costs its
tail and a turn what is new in it. Bounded by weight: a few long chats weigh more than thousands of short ones. A chat
that is driven here stays; any other is read again from the store when it is needed."""

from collections import OrderedDict
from collections.abc import Callable, Iterator

import msgspec

from treadle.chat.history import weigh
from treadle.chat.state import ChatState
from treadle.ports.model import Memo
from treadle.protocol.content import Entry
from treadle.types import ChatId

MAX_WEIGHT = 64 << 20
"""In bytes, by the length of texts; what Python adds to them is not counted."""
EMPTY_WEIGHT = 4_096
"""Of a chat in which nothing was said."""


class Kept(msgspec.Struct):
    """A state, and how much of its conversation was weighed."""

    state: ChatState
    weight: int = EMPTY_WEIGHT
    said: int = 0
    """The weight of the entries up to `last`."""
    count: int = 0
    last: Entry | None = None
    memos: dict[str, Memo] = msgspec.field(default_factory=dict)

    def weigh(self) -> int:
        """Costs what was added since the last time; after a cut, everything."""
        history = self.state.history
        grown = self.count == 0 or (self.count <= len(history) and history[self.count - 1] is self.last)
        if not grown:
            self.said = self.count = 0
        self.said += sum(weigh(entry) for entry in history.slice(self.count))
        self.count, self.last = len(history), history.last
        options = self.state.options
        told = len(options.system_prompt) + len(options.instructions) + len(options.agent_prompt)
        pictures = sum(len(data) for memo in self.memos.values() for data in memo.pictures.values())
        self.weight = EMPTY_WEIGHT + told + pictures + self.said * (1 + len(self.memos))
        return self.weight


class StateCache:
    def __init__(self, forgotten: Callable[[ChatId], None]) -> None:
        self._kept: OrderedDict[ChatId, Kept] = OrderedDict()
        self._forgotten = forgotten
        self.weight = 0
        self.is_driven: Callable[[ChatId], bool] = lambda _chat: False
        """Whether a worker of this process drives a chat: then it is about to be needed."""

    def get(self, chat: ChatId) -> ChatState | None:
        kept = self._kept.get(chat)
        return kept.state if kept is not None else None

    def __iter__(self) -> Iterator[ChatState]:
        return iter([kept.state for kept in self._kept.values()])

    def keep(self, state: ChatState) -> None:
        """Unless a newer one is known."""
        kept = self._kept.get(state.chat)
        if kept is None:
            kept = self._kept[state.chat] = Kept(state, 0)
        elif kept.state.head > state.head:
            return
        kept.state = state
        self._kept.move_to_end(state.chat)
        self._reweigh(kept)
        if self.weight > MAX_WEIGHT:
            self._shrink(state.chat)

    def memo(self, chat: ChatId, model: str) -> Memo:
        """The bytes of the chat's conversation for this model, kept from run to run as long as its state is. Another
        model may see other parts of it (M-10)."""
        kept = self._kept.get(chat)
        if kept is None:
            return Memo()
        return kept.memos.setdefault(model, Memo())

    def forget(self, chat: ChatId) -> None:
        kept = self._kept.pop(chat, None)
        if kept is not None:
            self.weight -= kept.weight
        self._forgotten(chat)

    def _reweigh(self, kept: Kept) -> None:
        before = kept.weight
        self.weight += kept.weigh() - before

    def _shrink(self, newest: ChatId) -> None:
        """Forget chats, the one first that was used least recently."""
        for chat in [*self._kept]:
            if self.weight <= MAX_WEIGHT:
                return
            if chat != newest and not self.is_driven(chat):
                self.forget(chat)
