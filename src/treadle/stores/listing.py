"""Which chats a list is about, and in what order: said once for all stores. Knows nothing of where chats are kept."""

import msgspec

from treadle.ports.store import Cursor
from treadle.protocol.views import ChatSummary, Status


class Wanted(msgspec.Struct, frozen=True):
    """The filters of `Store.list`; what is None or empty lets everything pass."""

    owner: str | None = None
    archived: bool | None = None
    status: Status | None = None
    label: str | None = None
    query: str = ""
    before: Cursor | None = None

    def fits(self, summary: ChatSummary) -> bool:
        return (
            self.owner in (None, summary.owner)
            and self.archived in (None, summary.archived)
            and self.status in (None, summary.status)
            and (self.label is None or self.label in summary.labels)
            and (not self.query or self._found(summary))
            and (self.before is None or place(summary) < self.before)
        )

    def _found(self, summary: ChatSummary) -> bool:
        return folded(self.query) in folded(summary.title) or summary.chat.startswith(beginnings(self.query))


def place(summary: ChatSummary) -> Cursor:
    """Where a chat stands in a list; the highest comes first."""
    return summary.updated_ms, summary.chat


def folded(text: str) -> str:
    """A title, or a part of one, without its case. NUL is what no database takes in a text."""
    return text.casefold().replace("\0", "")


def beginnings(query: str) -> tuple[str, str]:
    """How the id of a chat may begin that is meant by `query`."""
    return query, f"c_{query}"
