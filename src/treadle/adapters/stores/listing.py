"""The filter and the order of a list of chats, the same for all stores."""

import msgspec

from treadle.base.types import ChatId
from treadle.ports.store import ChatFilter, Cursor
from treadle.protocol.views import ChatSummary

_decoder = msgspec.json.Decoder(ChatSummary)


def fits(chat_filter: ChatFilter, summary: ChatSummary, cursor: Cursor | None) -> bool:
    return (
        chat_filter.owner in (None, summary.owner)
        and chat_filter.archived in (None, summary.archived)
        and chat_filter.status in (None, summary.status)
        and (chat_filter.label is None or chat_filter.label in summary.labels)
        and (
            not chat_filter.query
            or folded(chat_filter.query) in folded(summary.title)
            or summary.chat.startswith(beginnings(chat_filter.query))
        )
        and (cursor is None or place(summary) < cursor)
    )


def place(summary: ChatSummary) -> Cursor:
    """Where a chat stands in a list; the highest comes first."""
    return summary.updated_ms, summary.chat


def folded(text: str) -> str:
    """A title, or a part of one, without its case. NUL is what no database takes in a text."""
    return text.casefold().replace("\0", "")


def beginnings(query: str) -> tuple[str, str]:
    """How the id of a chat may begin that is meant by `query`."""
    return query, f"c_{query}"


def decode_summary(chat: str, body: bytes) -> ChatSummary:
    """A summary that cannot be read must not hide the chat, nor the others in a list; `treadle fsck` tells of it."""
    try:
        return _decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, TypeError):
        return ChatSummary(ChatId(chat), status="error", title="(the summary is damaged: run treadle fsck)")
