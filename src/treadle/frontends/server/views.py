"""States and summaries as the answers of the server. Projections; nothing here decides."""

import msgspec

from treadle.chat.state import ChatState, failure_of, open_actions, status, summary
from treadle.ports.store import Listed
from treadle.protocol.content import AssistantEntry, Entry, ResultsEntry, UserEntry
from treadle.protocol.http_answers import Accepted, CallView, ChatLine, ChatView, MessageView, ResultView
from treadle.protocol.views import ChatSummary, Status, shown_status
from treadle.protocol.wire import iso_time


def chat_line(listed: Listed) -> ChatLine:
    return _line(listed.summary, shown_status(listed.summary.status, listed.leased))


def chat_view(state: ChatState, chat_status: Status, warnings: tuple[str, ...] = ()) -> ChatView:
    line = msgspec.structs.asdict(_line(summary(state), chat_status))
    return ChatView(
        **line | {"last_error": failure_of(state)},
        options=state.options,
        queue=state.queue,
        actions=open_actions(state),
        plan=state.plan,
        last_end=state.last_end,
        last_why=state.last_why,
        warnings=warnings,
    )


_SAME = ("title", "model", "root", "archived", "labels", "head", "turns", "usage", "last_error", "deleted")
"""Fields that a line has from the summary as they are."""


def _line(line: ChatSummary, chat_status: Status) -> ChatLine:
    return ChatLine(
        id=line.chat,
        status=chat_status,
        created=iso_time(line.created_ms),
        updated=iso_time(line.updated_ms),
        parent=line.parent.partition("/")[0],
        **{name: getattr(line, name) for name in _SAME},
    )


def accepted(state: ChatState, queue_id: str = "", restore: str = "") -> Accepted:
    queued = queue_id if any(item.id == queue_id for item in state.queue) else ""
    return Accepted(chat=state.chat, status=status(state), head=state.head, queued=queued, restore=restore)


def message_view(place: int, entry: Entry) -> MessageView:
    match entry:
        case UserEntry(text=text, seq=seq, source=source):
            return MessageView(place=place, role="user", seq=seq, source=source, content=text)
        case AssistantEntry(turn=turn, text=text, thinking=thinking, calls=calls):
            return MessageView(
                place=place,
                role="assistant",
                turn=turn,
                content=text,
                reasoning="".join(block.text for block in thinking),
                calls=tuple(CallView(call=call.call, name=call.name, arguments=call.arguments) for call in calls),
            )
        case ResultsEntry(turn=turn, results=results):
            result_views = tuple(ResultView(call=each.call, success=each.success, text=each.text) for each in results)
            return MessageView(place=place, role="tool", turn=turn, results=result_views)
