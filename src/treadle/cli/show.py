"""`treadle show`: a chat as its log tells it."""

import asyncio
import sys
from collections.abc import Sequence
from typing import Any

import msgspec

from treadle.chat.state import ChatState, open_actions
from treadle.cli.chats import as_dict
from treadle.cli.drive import steps_of
from treadle.cli.screen import Screen
from treadle.cli.session import configured, find_chat, open_agent
from treadle.config import Config
from treadle.ports.store import Listed
from treadle.protocol import wire
from treadle.protocol.content import AssistantEntry, ResultsEntry, UserEntry
from treadle.protocol.events import (
    ActionRequired,
    Envelope,
    ExecutionComplete,
    ExecutionStart,
    SessionIdle,
    UserMessage,
)
from treadle.protocol.files import FileChange
from treadle.protocol.progress import Progress
from treadle.types import ChatId

MOST = 2_000
"""So many events of a chat are shown, its last ones."""


def show(chat: str, everything: bool, short: bool, as_json: bool) -> int:
    return asyncio.run(_show(configured(), chat, everything, short, as_json))


async def _show(config: Config, named: str, everything: bool, short: bool, as_json: bool) -> int:
    async with open_agent(config) as agent:
        store = agent.deps.store
        chat = agent.chat(await find_chat(store, named))
        state, listed = await chat.state(), await store.get(chat.id)
        events = [] if as_json else await chat.events(0 if everything else max(0, state.head - MOST))
        events = _from_a_message([await chat.whole(each) for each in events])
        changes = await chat.files.net(step for each in events for step in steps_of(each))
    if as_json:
        sys.stdout.buffer.write(msgspec.json.encode(_object(state, listed)) + b"\n")
    else:
        _print(chat.id, state, events, changes, short)
    return 0


def _from_a_message(events: list[Envelope]) -> list[Envelope]:
    """From where somebody said something; all of it if that is not in it, or if it is the whole log."""
    if not events or events[0].seq == 1:
        return events
    first = next((number for number, one in enumerate(events) if isinstance(one.data, UserMessage)), 0)
    return events[first:]


def _print(chat: ChatId, state: ChatState, events: list[Envelope], changes: Sequence[FileChange], short: bool) -> None:
    screen = Screen(echo=True)
    screen.changed(changes)
    screen.begin(chat, state.options.model, state.options.root)
    earlier = events[0].seq - 1 if events else 0
    if earlier:
        screen.earlier(f"{earlier:,} earlier events are not shown; all of them: treadle show {chat} --all")
    _tell(screen, events, short)
    if earlier or short:
        screen.counts(state)
    actions = open_actions(state)
    if actions:
        screen.event(Envelope(0, chat, 0, ActionRequired(actions)))
    elif state.restoring is not None:
        screen.restoring(chat, state.restoring)
    elif state.run is None:
        screen.event(Envelope(0, chat, 0, SessionIdle(state.last_end or "done", state.last_why)))
    else:
        screen.unfinished(chat)


def _tell(screen: Screen, events: list[Envelope], short: bool) -> None:
    done = Progress()
    for envelope in events:
        if short and (line := done.take(envelope.data)):
            screen.earlier(f"● {line}")
        if not (short and isinstance(envelope.data, ExecutionStart | ExecutionComplete)):
            screen.event(envelope)
    if short and (line := done.end()):
        screen.earlier(f"● {line}")


def _object(state: ChatState, listed: Listed) -> dict[str, Any]:
    return as_dict(listed) | {
        "options": wire.whole(state.options),
        "last_end": state.last_end,
        "last_why": state.last_why,
        "messages": [_entry(entry) for entry in state.history],
        "actions": wire.whole(open_actions(state)),
        "queue": wire.whole(state.queue),
        "plan": wire.whole(state.plan),
    }


def _entry(entry: UserEntry | AssistantEntry | ResultsEntry) -> dict[str, Any]:
    role = {UserEntry: "user", AssistantEntry: "assistant", ResultsEntry: "tool"}[type(entry)]
    shown: dict[str, Any] = wire.whole(entry)
    return {"role": role} | shown
