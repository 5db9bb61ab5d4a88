"""`treadle chats`: the chats of the database."""

import time
from pathlib import PurePath
from typing import TYPE_CHECKING

import click

from treadle.base.inert import inert_line
from treadle.frontends.cli.group import in_agent
from treadle.frontends.cli.options import json_option
from treadle.frontends.cli.terminal import Terminal, write_json
from treadle.frontends.presentation.styled import Colour, Line, Span, spans

if TYPE_CHECKING:
    from treadle.library.agent import Agent
    from treadle.ports.store import Listed

MOST = 200
"""So many chats are listed for people, the newest."""


@click.command("chats")
@click.option("--all", "everything", is_flag=True, help="Show all chats, archived ones too.")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Show the N newest.")
@click.option(
    "--search",
    default="",
    metavar="TEXT",
    help="Only chats with these words in title, project, id or messages.",
)
@click.option(
    "--project",
    is_flag=False,
    flag_value=".",
    metavar="[DIR]",
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
    most = limit or (0 if everything or as_json else MOST)
    narrow = bool(search or project)
    archived = None if everything else False
    if search.strip():
        from treadle.library.searching import search as hits
        from treadle.ports.store import ChatFilter

        matches = [hit.listed async for hit in hits(agent.deps.store, ChatFilter(archived=archived), search)]
    else:
        matches = await agent.chats(archived=archived, limit=most + 1 if most and not narrow else 0)
    matches = _of_project(matches, project)
    if as_json:
        matches = matches[:most] if most else matches
        for listed in matches:
            write_json(as_dict(listed))
        return
    terminal = Terminal()
    if not matches:
        none = "no such chat" if narrow else "no chats yet; begin one with: treadle run PROMPT"
        terminal.note(none, "dim")
    page = matches[:most] if most else matches
    for listed in page:
        terminal.line(_line(terminal, listed))
    if len(page) < len(matches) and limit is None:
        terminal.note(f"these are the {most} newest; all of them: treadle chats --all", "dim")


def _of_project(matches: "list[Listed]", project: str | None) -> "list[Listed]":
    import os

    from treadle.base.file_system import is_below
    from treadle.frontends.cli.session import project_root

    if project is not None:
        here = str(project_root(project if project != "." else None, force=True))
        matches = [
            each for each in matches if each.summary.root and is_below(here, os.path.realpath(each.summary.root))
        ]
    return matches


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
    archived = " (archived)" if summary.archived else ""
    details = f"  {project:20}  {title}{archived}"
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
