"""The entries of a conversation, and how heavy they are. An append-only sequence that is cheap to share: a chat's state
holds one, and an older state still sees exactly what it saw.

Appending to the newest version costs O(1), because all versions share one list and each remembers its length;
appending to an older version (after a cut) copies once. Without this, folding n events would copy n lists."""

from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar, assert_never

from treadle.protocol.content import AssistantEntry, Entry, ResultsEntry, UserEntry

T = TypeVar("T")
CHARS_PER_TOKEN = 3.6
ENTRY_CHARS = 16  # the size of a role, an id and their punctuation, in characters
IMAGE_CHARS = 4_000


class History(Generic[T]):
    __slots__ = ("_items", "_length")

    def __init__(self, items: Iterable[T] = ()) -> None:
        self._items = list(items)
        self._length = len(self._items)

    @classmethod
    def _share(cls, items: list[T], length: int) -> "History[T]":
        history = cls.__new__(cls)
        history._items = items
        history._length = length
        return history

    def append(self, item: T) -> "History[T]":
        items = self._items
        if len(items) != self._length:
            items = items[: self._length]
        items.append(item)
        return self._share(items, self._length + 1)

    def take_first(self, length: int) -> "History[T]":
        return self._share(self._items, min(max(length, 0), self._length))

    def slice(self, start: int) -> list[T]:
        return self._items[start : self._length]

    @property
    def last(self) -> T | None:
        return self._items[self._length - 1] if self._length else None

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[T]:
        return iter(self._items[: self._length])

    def __getitem__(self, index: int) -> T:
        if not -self._length <= index < self._length:
            raise IndexError(index)
        return self._items[index if index >= 0 else self._length + index]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, History) and self.slice(0) == other.slice(0)

    def __hash__(self) -> int:
        return hash(self._length)

    def __repr__(self) -> str:
        return f"History({self.slice(0)!r})"


def weigh(entry: Entry) -> int:
    """The weight of an entry in characters. The provider's own count of tokens replaces the estimate later."""
    match entry:
        case UserEntry():
            return len(entry.text) + ENTRY_CHARS + IMAGE_CHARS * len(entry.images)
        case AssistantEntry():
            thinking = sum(len(block.opaque or block.text) for block in entry.thinking)
            calls = sum(len(call.name) + len(call.arguments) + ENTRY_CHARS for call in entry.calls)
            return len(entry.text) + thinking + calls + ENTRY_CHARS
        case ResultsEntry():
            return sum(len(result.text) + ENTRY_CHARS for result in entry.results)
        case _ as never:
            assert_never(never)


def estimate_tokens(chars: int) -> int:
    """Tokens that this many characters probably are; rounded up, so that an estimate errs on the safe side."""
    return int(chars / CHARS_PER_TOKEN) + 1 if chars else 0
