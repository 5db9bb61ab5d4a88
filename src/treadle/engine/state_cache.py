"""The newest states of chats that this process has seen, and the request bytes made of them, so that a command reads
only the tail of a log. Bounded by weight: a few long chats weigh more than thousands of short ones. A chat that is
driven here stays; any other is read again from the store when it is needed."""

from collections import OrderedDict
from collections.abc import Callable, Iterator

import msgspec

from treadle.base.types import ChatId
from treadle.chat.history import weigh
from treadle.chat.state import ChatState
from treadle.ports.model import Memo
from treadle.protocol.content import Entry

MAX_WEIGHT = 64 << 20
"""In bytes, by the length of texts. The overhead of Python objects is not counted."""
EMPTY_WEIGHT = 32 << 10
"""Of a chat without messages: its state, and what is kept of it elsewhere."""


class CachedState(msgspec.Struct):
    """A state, and how much of its conversation was weighed."""

    state: ChatState
    weight: int = EMPTY_WEIGHT
    text_weight: int = 0
    """The weight of the entries up to `last`."""
    count: int = 0
    last: Entry | None = None
    memos: dict[str, Memo] = msgspec.field(default_factory=dict)

    def weigh(self) -> int:
        """Costs what was added since the last time; after a cut, everything."""
        history = self.state.history
        grown = self.count == 0 or (self.count <= len(history) and history[self.count - 1] is self.last)
        if not grown:
            self.text_weight = self.count = 0
        self.text_weight += sum(weigh(item) for item in history.slice(self.count))
        self.count, self.last = len(history), history.last
        options = self.state.options
        prompts = len(options.system_prompt) + len(options.instructions) + len(options.agent_prompt)
        pictures = sum(len(data) for memo in self.memos.values() for data in memo.pictures.values())
        self.weight = EMPTY_WEIGHT + prompts + pictures + self.text_weight * (1 + len(self.memos))
        return self.weight


class StateCache:
    def __init__(self, forgotten: Callable[[ChatId], None]) -> None:
        self._entries: OrderedDict[ChatId, CachedState] = OrderedDict()
        self._forgotten = forgotten
        self.weight = 0
        self.is_driven: Callable[[ChatId], bool] = lambda _chat: False
        """Says if a worker of this process drives a chat: then its state will be needed soon."""

    def get(self, chat: ChatId) -> ChatState | None:
        entry = self._entries.get(chat)
        return entry.state if entry is not None else None

    def __iter__(self) -> Iterator[ChatState]:
        return iter([entry.state for entry in self._entries.values()])

    def keep(self, state: ChatState) -> None:
        """Unless a newer one is known."""
        entry = self._entries.get(state.chat)
        if entry is None:
            entry = self._entries[state.chat] = CachedState(state, 0)
        elif entry.state.head > state.head:
            return
        entry.state = state
        self._entries.move_to_end(state.chat)
        self._reweigh(entry)
        if self.weight > MAX_WEIGHT:
            self._shrink(state.chat)

    def memo(self, chat: ChatId, model: str) -> Memo:
        """The bytes of the chat's conversation for this model, kept from run to run as long as its state is. Another
        model may see other parts of it (M-10)."""
        entry = self._entries.get(chat)
        if entry is None:
            return Memo()
        return entry.memos.setdefault(model, Memo())

    def forget(self, chat: ChatId) -> None:
        entry = self._entries.pop(chat, None)
        if entry is not None:
            self.weight -= entry.weight
        self._forgotten(chat)

    def _reweigh(self, entry: CachedState) -> None:
        previous = entry.weight
        self.weight += entry.weigh() - previous

    def _shrink(self, newest: ChatId) -> None:
        """Forget chats, the one first that was used least recently."""
        for chat in [*self._entries]:
            if self.weight <= MAX_WEIGHT:
                return
            if chat != newest and not self.is_driven(chat):
                self.forget(chat)
