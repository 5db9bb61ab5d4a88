"""`treadle show`: a chat as its log tells it."""

import asyncio
import sys
from typing import Any

import msgspec

from treadle.chat.state import ChatState, open_actions
from treadle.cli.chats import as_dict
from treadle.cli.screen import Screen
from treadle.cli.session import configured, find_chat, open_agent
from treadle.config import Config
from treadle.ports.store import Listed
from treadle.protocol import wire
from treadle.protocol.content import AssistantEntry, ResultsEntry, UserEntry
from treadle.protocol.events import ActionRequired, Envelope, SessionIdle
from treadle.types import ChatId


def show(chat: str, as_json: bool) -> int:
    return asyncio.run(_show(configured(), chat, as_json))


async def _show(config: Config, named: str, as_json: bool) -> int:
    async with open_agent(config) as agent:
        store = agent.deps.store
        chat = agent.chat(await find_chat(store, named))
        state, listed, events = await chat.state(), await store.get(chat.id), await chat.events()
        events = events if as_json else [await chat.files.whole(each) for each in events]
    if as_json:
        sys.stdout.buffer.write(msgspec.json.encode(_object(state, listed)) + b"\n")
    else:
        _print(chat.id, state, events)
    return 0


def _print(chat: ChatId, state: ChatState, events: list[Envelope]) -> None:
    screen = Screen(echo=True)
    screen.begin(chat, state.options.model, state.options.root)
    for envelope in events:
        screen.event(envelope)
    actions = open_actions(state)
    if actions:
        screen.event(Envelope(0, chat, 0, ActionRequired(actions)))
    elif state.restoring is not None:
        screen.restoring(chat, state.restoring)
    elif state.run is None:
        screen.event(Envelope(0, chat, 0, SessionIdle(state.last_end or "done")))
    else:
        screen.unfinished(chat)


def _object(state: ChatState, listed: Listed) -> dict[str, Any]:
    return as_dict(listed) | {
        "options": wire.whole(state.options),
        "last_end": state.last_end,
        "messages": [_entry(entry) for entry in state.history],
        "actions": wire.whole(open_actions(state)),
        "queue": wire.whole(state.queue),
        "plan": wire.whole(state.plan),
    }


def _entry(entry: UserEntry | AssistantEntry | ResultsEntry) -> dict[str, Any]:
    role = {UserEntry: "user", AssistantEntry: "assistant", ResultsEntry: "tool"}[type(entry)]
    shown: dict[str, Any] = wire.whole(entry)
    return {"role": role} | shown
