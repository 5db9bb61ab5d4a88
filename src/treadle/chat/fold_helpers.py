"""The small changes that folding is made of: to the run, to an open call, to what was spent, to the conversation."""

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from treadle.base.types import CallKey
from treadle.chat.history import weigh
from treadle.chat.state import ChatState
from treadle.chat.transcript import attach
from treadle.protocol.content import Entry, Usage
from treadle.protocol.events import Envelope

Fold = Callable[[ChatState, Any, Envelope], ChatState]
"""The function that applies one type of event."""
TITLE_LENGTH = 60


def change_run(state: ChatState, **changes: Any) -> ChatState:
    return state if state.run is None else replace(state, run=replace(state.run, **changes))


def change_call(state: ChatState, key: CallKey, **changes: Any) -> ChatState:
    """Change an open call. A call that has its result does not change any more: later events about it are ignored."""
    position = place_of(state, key)
    if position is None or state.calls[position].phase == "done":
        return state
    new_call = replace(state.calls[position], **changes)
    return replace(state, calls=(*state.calls[:position], new_call, *state.calls[position + 1 :]))


def place_of(state: ChatState, key: CallKey) -> int | None:
    """Where an open call stands. Its key tells: a turn may have hundreds of calls, and each has several events."""
    place = key.rpartition(".")[2]
    position = int(place) if place.isdecimal() and len(place) < 10 else len(state.calls)
    return position if position < len(state.calls) and state.calls[position].key == key else None


def spend(state: ChatState, usage: Usage) -> ChatState:
    if usage == Usage():
        return state
    state = replace(state, totals=replace(state.totals, usage=state.totals.usage + usage))
    return state if state.run is None else change_run(state, usage=state.run.usage + usage)


def say(state: ChatState, entry: Entry) -> ChatState:
    return replace(
        state,
        history=state.history.append(entry),
        transcript=attach(state.transcript, entry),
        context_chars=state.context_chars + weigh(entry),
    )


def title_of(content: str) -> str:
    first = next((line.strip() for line in content.splitlines() if line.strip()), "")
    return first if len(first) <= TITLE_LENGTH else first[: TITLE_LENGTH - 1].rstrip() + "…"
