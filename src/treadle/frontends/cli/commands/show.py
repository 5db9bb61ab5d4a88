"""`treadle show`: a chat as its log tells it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from treadle.base.inert import inert_line, print_note
from treadle.frontends.cli.commands.chats import as_dict
from treadle.frontends.cli.group import in_agent
from treadle.frontends.cli.options import json_option
from treadle.frontends.cli.terminal import write_json

if TYPE_CHECKING:
    from treadle.base.types import ChatId
    from treadle.chat.state import ChatState
    from treadle.frontends.cli.screen import Screen
    from treadle.library.agent import Agent
    from treadle.ports.store import Listed
    from treadle.protocol.content import AssistantEntry, ResultsEntry, UserEntry
    from treadle.protocol.events import Envelope
    from treadle.protocol.files import FileChange

MOST = 2_000
"""So many events of a chat are shown, its last ones."""


@click.command("show")
@click.argument("chat_ref", metavar="ID")
@click.option("--all", "everything", is_flag=True, help="Show all of a long chat, not only its end.")
@click.option("--short", is_flag=True, help="One line for calls that follow each other.")
@json_option("Print the chat as one JSON object.")
@in_agent()
async def show(agent: "Agent", chat_ref: str, everything: bool, short: bool, as_json: bool) -> None:
    """Show a chat from its log.

    ID is a chat's id, the beginning of it, or last. For the events themselves see export.
    """
    if as_json and short:
        raise click.UsageError("--json and --short exclude each other.")
    from treadle.frontends.cli.drive import steps_of
    from treadle.frontends.cli.session import find_chat

    store = agent.deps.store
    chat = agent.chat(await find_chat(store, chat_ref))
    state = await chat.state()
    if as_json:
        write_json(_object(state, await store.get(chat.id)))
        return
    events = await chat.events(0 if everything else max(0, state.head - MOST))
    events = _from_a_message([await chat.load_full_event(each) for each in events])
    changes = await chat.files.net(step for each in events for step in steps_of(each))
    if state.parent:
        print_note(f"begun by {inert_line(state.parent, 120)}")
    _print(chat.id, state, events, changes, short)
    await _show_tree(agent, chat.id, events)


async def _show_tree(agent: "Agent", chat: "ChatId", events: "list[Envelope]") -> None:
    """The chats that its calls began, and theirs, where what was shown has not told all of it."""
    from treadle.frontends.presentation.names import status_words
    from treadle.library.subagents.tree import tree_of

    rows = await tree_of(agent.deps, chat, [each.data for each in events])
    for row in rows if any(row.depth > 1 or not row.ended for row in rows) else ():
        waits = f"waits for an answer: {', '.join(row.waits)}" if row.waits else ""
        cost = f"${row.usage.usd:.4f}" if row.usage.usd else f"{row.usage.tokens:,} tokens"
        facts = (row.chat, row.title, waits or row.ended or status_words(row.status), f"{row.turns} turns", cost)
        line = " · ".join(inert_line(fact, 80) for fact in facts)
        print_note(f"{'   ' * row.depth}└ {line}")


def _from_a_message(events: "list[Envelope]") -> "list[Envelope]":
    """Return the events from the first user message on; all events if there is none, or if they are the whole log."""
    from treadle.protocol.events import UserMessage

    if not events or events[0].seq == 1:
        return events
    first = next((number for number, one in enumerate(events) if isinstance(one.data, UserMessage)), 0)
    return events[first:]


def _print(
    chat: "ChatId", state: "ChatState", events: "list[Envelope]", changes: "Sequence[FileChange]", short: bool
) -> None:
    from treadle.chat.state import open_actions
    from treadle.frontends.cli.screen import Screen
    from treadle.protocol.events import ActionRequired, Envelope, SessionIdle

    screen = Screen(echo=True)
    screen.set_changed_files(changes, state.options.world)
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


def _tell(screen: "Screen", events: "list[Envelope]", short: bool) -> None:
    from treadle.protocol.events import ExecutionComplete, ExecutionStart
    from treadle.protocol.progress import Progress

    progress = Progress()
    for envelope in events:
        if short and (line := progress.take(envelope.data)):
            screen.earlier(f"● {line}")
        if not (short and isinstance(envelope.data, ExecutionStart | ExecutionComplete)):
            screen.event(envelope)
    if short and (line := progress.end()):
        screen.earlier(f"● {line}")


def _object(state: "ChatState", listed: "Listed") -> dict[str, object]:
    from treadle.chat.state import open_actions
    from treadle.protocol import wire

    return as_dict(listed) | {
        "options": wire.to_wire_form(state.options),
        "last_end": state.last_end,
        "last_why": state.last_why,
        "messages": [_entry(entry) for entry in state.history],
        "actions": wire.to_wire_form(open_actions(state)),
        "queue": wire.to_wire_form(state.queue),
        "plan": wire.to_wire_form(state.plan),
    }


def _entry(entry: "UserEntry | AssistantEntry | ResultsEntry") -> dict[str, object]:
    from treadle.protocol import wire

    role = {"UserEntry": "user", "AssistantEntry": "assistant", "ResultsEntry": "tool"}[type(entry).__name__]
    fields: dict[str, object] = wire.to_wire_form(entry)
    return {"role": role} | fields
