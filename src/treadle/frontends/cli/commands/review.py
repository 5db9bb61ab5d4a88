"""`treadle review`: all work of a run in one report, for a person who did not watch it (W-04)."""

import io
import shutil
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import click

from treadle.base.inert import inert_line
from treadle.frontends.cli.options import (
    SelectionArguments,
    caches_option,
    gathered,
    json_option,
    run_options,
    words_argument,
)
from treadle.frontends.cli.terminal import Terminal, write_json

if TYPE_CHECKING:
    from treadle.diff.hunks import FileDiff
    from treadle.frontends.cli.changes import SelectedChanges
    from treadle.library.agent import Agent
    from treadle.library.chat import Chat
    from treadle.library.files import RunSpan
    from treadle.protocol import events as e

    Work = tuple[SelectedChanges, Sequence[FileDiff], Sequence[e.Envelope]]

_WAYS = {"view": "on a copy, then committed", "direct": "written through"}
COMMAND = "run_command"


@click.command("review")
@words_argument
@run_options
@caches_option
@json_option("Print one JSON object.")
@gathered(SelectionArguments, "arguments")
def review(arguments: SelectionArguments, as_json: bool) -> None:
    """Show a run's work in one piece: task, commands, changes.

    ID is a chat; without it, the newest that works in this project.
    """
    from treadle.frontends.cli.session import with_agent

    work = with_agent(lambda agent: _look(agent, arguments))
    if as_json:
        _write(work)
        return
    _page(lambda terminal: _print(terminal, work))


async def _look(agent: "Agent", arguments: SelectionArguments) -> "Work":
    from msgspec.structs import replace

    from treadle.frontends.cli.changes import choose, refuse_unknown_words

    choice = await choose(agent, arguments)
    if arguments.run is None and not arguments.everything:
        runs = await choice.files.runs()  # the last one also if all of it was undone
        choice = replace(choice, span=runs[-1] if runs else await _last_task(choice.chat))
    file_diffs = await choice.files.diff(choice.span, choice.paths, even_kept=True)
    if not file_diffs:
        await refuse_unknown_words(choice, arguments)
    previous_seq = max(choice.span.since - 1, 0)
    limit = max(choice.span.upto - previous_seq, 1) if choice.span.upto else 0
    return choice, file_diffs, await choice.chat.events(previous_seq, limit)


async def _last_task(chat: "Chat") -> "RunSpan":
    """From the last message of a person, for a chat that has changed nothing here."""
    from treadle.library.files import RunSpan
    from treadle.protocol.events import UserMessage

    messages = await chat.events_of(UserMessage)
    own = (
        each.seq for each in reversed(messages) if isinstance(each.data, UserMessage) and each.data.source == "person"
    )
    return RunSpan(next(own, 0))


def _print(terminal: Terminal, work: "Work") -> None:
    from treadle.frontends.cli.changes import print_diff
    from treadle.frontends.presentation.notices import summary
    from treadle.protocol import events as e

    choice, file_diffs, events = work
    terminal.line(f"chat {choice.chat.id}", "bold")
    for envelope in events:
        if isinstance(envelope.data, e.UserMessage) and envelope.data.source == "person":
            terminal.line(f"> {envelope.data.content}", "cyan")
    for line in [*_commands(events), *_uncaptured(events), *_restored(events)]:
        terminal.line(line)
    files = [each.change for each in file_diffs]
    remaining = summary(files, choice.aside) if files else "nothing that is left"
    terminal.line(f"changed: {remaining}", "bold")
    print_diff(terminal, file_diffs, choice.aside)


def _write(work: "Work") -> None:
    from treadle.protocol import events as e
    from treadle.protocol import wire

    choice, file_diffs, events = work
    messages = [each.data for each in events if isinstance(each.data, e.UserMessage) and each.data.source == "person"]
    files = [wire.to_wire_form(each.change) | {"hunks": wire.to_wire_form(tuple(each.hunks))} for each in file_diffs]
    report = {"chat": choice.chat.id, "messages": [each.content for each in messages], "commands": _commands(events)}
    write_json(report | {"uncaptured": _uncaptured(events), "restored": _restored(events), "files": files})


def _commands(events: "Sequence[e.Envelope]") -> list[str]:
    """Return a line for each command that was run, and for each that was refused or stopped before it ran."""
    from treadle.protocol import events as e
    from treadle.protocol.views import touched

    starts = {each.data.call: each.data for each in events if isinstance(each.data, e.ExecutionStart)}
    requests = {
        request.call: request
        for each in events
        if isinstance(each.data, e.AssistantMessage)
        for request in each.data.tool_requests
    }
    lines = []
    for envelope in events:
        completion = envelope.data
        if not isinstance(completion, e.ExecutionComplete):
            continue
        start, request = starts.get(completion.call), requests.get(completion.call)
        refused = not completion.success and not completion.sandbox and request is not None and request.name == COMMAND
        if not completion.effect and not refused:
            continue
        command = str(start.arguments.get("command", "")) if start is not None else ""
        command = command or (touched(request.arguments) if request is not None else "")
        outcome = inert_line(completion.result_summary or ("done" if completion.success else "failed"), 60)
        way = f"; {_WAYS[completion.effect]}" if completion.effect else ""
        lines.append(f"$ {inert_line(command, 200)}  ({outcome}{way})")
    return lines


def _uncaptured(events: "Sequence[e.Envelope]") -> list[str]:
    from treadle.frontends.cli.changes import shown_path
    from treadle.protocol import events as e

    uncaptured = {
        each.path: each for one in events if isinstance(one.data, e.FilesChanged) for each in one.data.uncaptured
    }
    return [f"! {shown_path(path)} was not captured: {inert_line(each.reason)}" for path, each in uncaptured.items()]


def _restored(events: "Sequence[e.Envelope]") -> list[str]:
    from treadle.frontends.presentation.notices import summary
    from treadle.protocol import events as e

    words = {e.Undone: "undone since", e.Redone: "redone since", e.ChangesKept: "kept since"}
    return [
        f"! {words[type(each.data)]}: {summary(each.data.files)}"
        for each in events
        if isinstance(each.data, e.Undone | e.Redone | e.ChangesKept) and each.data.files
    ]


def _page(write: Callable[[Terminal], None]) -> None:
    if not sys.stdout.isatty():
        write(Terminal())
        return
    text = io.StringIO()
    text.isatty = sys.stdout.isatty  # type: ignore[method-assign]
    write(Terminal(text))
    if text.getvalue().count("\n") < shutil.get_terminal_size().lines:
        write(Terminal())
    else:
        click.echo_via_pager(text.getvalue())
