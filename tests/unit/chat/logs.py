"""Short ways to write a log by hand and to see what it comes to."""

from treadle.base.types import ChatId, make_call_key
from treadle.chat.fold import fold
from treadle.chat.state import ChatState
from treadle.protocol import events as e
from treadle.protocol.content import ToolRequest, Usage
from treadle.protocol.options import ChatOptions

CHAT = ChatId("c_log")
EPOCH = 1


def chat(*events: e.Event, options: ChatOptions | None = None, state: ChatState | None = None) -> ChatState:
    """The state of a chat in which these things happened, one a second, all written by a worker. Messages of a
    person are written by a command, as in production."""
    if state is None:
        state = ChatState(chat=CHAT)
        events = (e.SessionCreated(options or ChatOptions(model="m:x", root="/p")), *events)
    for event in events:
        by_command = isinstance(event, e.UserMessage) and event.source == "person" and not event.queue_id
        seq = state.head + 1
        state = fold(state, e.Envelope(seq, CHAT, seq * 1_000, event, 0 if by_command else EPOCH))
    return state


def answer(turn: int, *names: str, text: str = "", arguments: str = "{}", usage: Usage | None = None) -> list[e.Event]:
    """One whole turn: the model says `text` and calls the tools with these names."""
    requests = tuple(ToolRequest(make_call_key(turn, n), name, arguments) for n, name in enumerate(names))
    return [
        e.TurnStart(turn),
        e.AssistantMessage(turn, text, tool_requests=requests),
        e.TurnEnd(turn, usage or Usage(10, 5)),
    ]


def ran(turn: int, position: int = 0, result: str = "ok", success: bool = True) -> list[e.Event]:
    """One call, from intent to outcome."""
    key = make_call_key(turn, position)
    completion = e.ExecutionComplete(key, success, result if success else "", "" if success else result)
    return [e.ExecutionStart(key, "tool"), completion]


def make_message(text: str = "do it") -> e.UserMessage:
    return e.UserMessage(text)
