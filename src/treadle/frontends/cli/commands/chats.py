"""`treadle chats`, `show`, `stop` and `delete`: the chats of the database."""

import time
from collections.abc import Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING

import click

from treadle.base.inert import inert_line, print_note
from treadle.errors import InvalidInput
from treadle.frontends.cli.group import in_agent, in_chat
from treadle.frontends.cli.options import EXIT_ERROR, EXIT_OK, FOLDER, POSITIVE, json_option
from treadle.frontends.cli.terminal import Terminal, write_json, write_list, write_outcome
from treadle.frontends.presentation.styled import Colour, Line, Span, spans

if TYPE_CHECKING:
    from treadle.chat.state import ChatState
    from treadle.library.agent import Agent
    from treadle.library.chat import Chat
    from treadle.ports.store import Listed
    from treadle.protocol.events import Envelope
    from treadle.protocol.files import FileChange

MOST = 200
"""So many chats are listed for people, the newest."""
MOST_EVENTS = 2_000
"""So many events of a chat are shown, its last ones."""


@click.command("chats")
@click.option("--all", "everything", is_flag=True, help="Show all chats, archived ones too.")
@click.option("--limit", type=POSITIVE, metavar="N", help="Show the N newest.")
@click.option(
    "--search", default="", metavar="TEXT", help="Only chats with these words in title, project, id or messages."
)
@click.option(
    "--project",
    is_flag=False,
    flag_value=".",
    metavar="[DIR]",
    type=FOLDER,
    help="Only chats that work in DIR; without DIR, in this folder.",
)
@json_option("Print every chat as one line of JSON.")
@in_agent()
async def chats(
    agent: "Agent", everything: bool, limit: int | None, search: str, project: str | None, as_json: bool
) -> None:
    """List the chats, newest first.

    Each with its id, age, state, project and title.
    """
    from treadle.frontends.cli.changes import holds_folder
    from treadle.frontends.cli.session import project_root
    from treadle.library.searching import search as hits
    from treadle.ports.store import ChatFilter

    most = limit or (0 if everything or as_json else MOST)
    narrow = bool(search or project)
    archived = None if everything else False
    if search.strip():
        matches = [hit.listed async for hit in hits(agent.deps.store, ChatFilter(archived=archived), search)]
    else:
        matches = await agent.chats(archived=archived, limit=most + 1 if most and not narrow else 0)
    if project is not None:
        here = str(project_root(project if project != "." else None, force=True))
        matches = [each for each in matches if holds_folder(each.summary.root, here)]
    page = matches[:most] if most else matches
    none = "no such chat" if narrow else "no chats yet; begin one with: treadle run PROMPT"
    terminal = Terminal()
    write_list([(as_dict(each), _line(terminal, each)) for each in page], none, as_json=as_json)
    if len(page) < len(matches) and limit is None:
        terminal.note(f"these are the {most} newest; all of them: treadle chats --all", "dim")


def as_dict(listed: "Listed") -> dict[str, object]:
    from treadle.protocol import wire
    from treadle.protocol.views import shown_status

    fields: dict[str, object] = wire.to_wire_form(listed.summary)
    fields["status"] = shown_status(listed.summary.status, listed.leased)
    for name in ("created", "updated"):
        fields[name] = wire.iso_time(getattr(listed.summary, f"{name}_ms"))
    for name in ("created_ms", "updated_ms", "runnable", "wake_ms"):
        del fields[name]
    return fields | {"leased": listed.leased}


def _line(terminal: Terminal, listed: "Listed") -> Line:
    from treadle.frontends.presentation.names import status_words
    from treadle.protocol.views import shown_status

    summary, status = listed.summary, shown_status(listed.summary.status, listed.leased)
    title = inert_line(summary.title or "(no title)", max(20, terminal.width - 72))
    colour: Colour = "red" if status == "error" else "dim" if status == "idle" else "yellow"
    aged = Span(f"{age(summary.updated_ms):>8}", ("dim",))
    project = inert_line(PurePath(summary.root).name or summary.root or "-", 20)
    details = f"  {project:20}  {title}{' (archived)' if summary.archived else ''}"
    line = spans(f"{summary.chat} ", aged, "  ", Span(f"{status_words(status):15}", (colour,)), details)
    if summary.last_error is None:
        return line
    error_text = f"{summary.last_error.error_class}: {summary.last_error.message}"
    return (*line, Span(f"\n    {inert_line(error_text, max(20, terminal.width - 4))}", ("red",)))


def age(time_ms: int) -> str:
    seconds = max(0, time.time() - time_ms / 1000)
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= length:
            return f"{int(seconds // length)} {unit}"
    return f"{int(seconds)} s"


@click.command("show")
@click.option("--all", "everything", is_flag=True, help="Show all of a long chat, not only its end.")
@click.option("--short", is_flag=True, help="One line for calls that follow each other.")
@json_option("Print the chat as one JSON object.")
@in_chat()
async def show(agent: "Agent", chat: "Chat", everything: bool, short: bool, as_json: bool) -> None:
    """Show a chat from its log.

    ID is a chat's id, the beginning of it, or last. For the events themselves see export.
    """
    from treadle.frontends.cli.drive import steps_of
    from treadle.frontends.presentation.names import status_words
    from treadle.library.subagents.tree import tree_of
    from treadle.protocol.events import UserMessage

    if as_json and short:
        raise click.UsageError("--json and --short exclude each other.")
    state = await chat.state()
    if as_json:
        write_json(_object(state, await agent.deps.store.get(chat.id)))
        return
    recorded = await chat.events(0 if everything else max(0, state.head - MOST_EVENTS))
    events = [await chat.load_full_event(each) for each in recorded]
    if events and events[0].seq > 1:  # the end of a log is shown from a message on, if there is one
        events = events[next((at for at, each in enumerate(events) if isinstance(each.data, UserMessage)), 0) :]
    changes = await chat.files.net(step for each in events for step in steps_of(each))
    if state.parent:
        print_note(f"begun by {inert_line(state.parent, 120)}")
    _print(chat, state, events, changes, short)
    rows = await tree_of(agent.deps, chat.id, [each.data for each in events])
    # The chats that its calls began, and theirs, where what was shown has not told all of it.
    for row in rows if any(row.depth > 1 or not row.ended for row in rows) else ():
        waits = f"waits for an answer: {', '.join(row.waits)}" if row.waits else ""
        cost = f"${row.usage.usd:.4f}" if row.usage.usd else f"{row.usage.tokens:,} tokens"
        facts = (row.chat, row.title, waits or row.ended or status_words(row.status), f"{row.turns} turns", cost)
        line = " · ".join(inert_line(fact, 80) for fact in facts)
        print_note(f"{'   ' * row.depth}└ {line}")


def _print(
    chat: "Chat", state: "ChatState", events: "list[Envelope]", changes: "Sequence[FileChange]", short: bool
) -> None:
    from treadle.chat.state import open_actions
    from treadle.frontends.cli.screen import Screen
    from treadle.protocol.events import ActionRequired, Envelope, ExecutionComplete, ExecutionStart, SessionIdle
    from treadle.protocol.progress import Progress

    screen = Screen(echo=True)
    screen.set_changed_files(changes, state.options.world)
    screen.begin(chat.id, state.options.model, state.options.root)
    earlier = events[0].seq - 1 if events else 0
    if earlier:
        screen.earlier(f"{earlier:,} earlier events are not shown; all of them: treadle show {chat.id} --all")
    progress = Progress()
    for envelope in events:
        if short and (line := progress.take(envelope.data)):
            screen.earlier(f"● {line}")
        if not (short and isinstance(envelope.data, ExecutionStart | ExecutionComplete)):
            screen.event(envelope)
    if short and (line := progress.end()):
        screen.earlier(f"● {line}")
    if earlier or short:
        screen.counts(state)
    if actions := open_actions(state):
        screen.event(Envelope(0, chat.id, 0, ActionRequired(actions)))
    elif state.restoring is not None:
        screen.restoring(chat.id, state.restoring)
    elif state.run is None:
        screen.event(Envelope(0, chat.id, 0, SessionIdle(state.last_end or "done", state.last_why)))
    else:
        screen.unfinished(chat.id)


def _object(state: "ChatState", listed: "Listed") -> dict[str, object]:
    from treadle.chat.state import open_actions
    from treadle.protocol import wire

    roles = {"UserEntry": "user", "AssistantEntry": "assistant", "ResultsEntry": "tool"}
    return as_dict(listed) | {
        "options": wire.to_wire_form(state.options),
        "last_end": state.last_end,
        "last_why": state.last_why,
        "messages": [{"role": roles[type(each).__name__]} | wire.to_wire_form(each) for each in state.history],
        "actions": wire.to_wire_form(open_actions(state)),
        "queue": wire.to_wire_form(state.queue),
        "plan": wire.to_wire_form(state.plan),
    }


@click.command("stop")
@json_option("Print one JSON object.")
@in_chat(works=True)
async def stop(agent: "Agent", chat: "Chat", as_json: bool) -> None:
    """Stop the run of a chat, wherever it works.

    ID is a chat's id, the beginning of it, or last. Running commands end, open calls get a result that says so, and the
    chat can be continued. Background commands stay: see jobs.
    """
    from treadle.frontends.presentation.notices import end
    from treadle.protocol.events import SessionIdle

    await chat.interrupt()  # recorded first; the worker of the chat, or this process, then settles the calls (L-07)
    idle_event = SessionIdle("interrupted")
    async for envelope in chat.resume():
        if isinstance(envelope.data, SessionIdle):
            idle_event = envelope.data
    note = f"chat {chat.id}: {end(idle_event)} · go on: treadle run --chat {chat.id} PROMPT"
    write_outcome({"chat": chat.id, "reason": idle_event.reason}, note, as_json=as_json)


@click.command("delete")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@json_option("Print one JSON object; needs --yes.")
@in_chat()
async def delete(agent: "Agent", chat: "Chat", yes: bool, as_json: bool) -> int:
    """Delete a chat and its sub-agents for good.

    ID is a chat's id, the beginning of it, or last. A chat that works is not deleted: stop it first. Its background
    commands end. The files of the project stay as they are, but what the chat changed can no longer be undone. Worlds
    stay. To keep a copy, export the chat before; to hide it, archive it.
    """
    from treadle.frontends.cli.dialogue import agreed, someone_is_there

    if not yes:
        if as_json or not someone_is_there():
            raise InvalidInput(f"A deleted chat cannot be brought back. Delete it with: treadle delete --yes {chat.id}")
        title = inert_line((await agent.deps.store.get(chat.id)).summary.title or chat.id, 60)
        if not await agreed(f"delete “{title}” for good? [y/N] "):
            Terminal().note("nothing was deleted", "dim")
            return EXIT_ERROR
    await agent.delete_chat(chat.id)
    write_outcome({"chat": chat.id, "deleted": True}, f"chat {chat.id} is deleted", as_json=as_json)
    return EXIT_OK
