"""`treadle diff`: the changes of a run that still stand, with the numbers by which hunks are undone and kept.
`treadle review`: all work of a run in one report, for a person who did not watch it (W-04)."""

import io
import shutil
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from treadle.base.inert import inert_line
from treadle.frontends.cli import options as o
from treadle.frontends.cli.group import in_agent
from treadle.frontends.cli.terminal import Terminal, write_json

if TYPE_CHECKING:
    from treadle.diff.hunks import FileDiff
    from treadle.frontends.cli.changes import SelectedChanges
    from treadle.library.agent import Agent
    from treadle.protocol import events as e

    Work = tuple[SelectedChanges, Sequence[FileDiff], Sequence[e.Envelope]]

_WAYS = {"view": "on a copy, then committed", "direct": "written through"}
COMMAND = "run_command"


@click.command("diff")
@o.words_argument
@o.run_options
@click.option("--runs", is_flag=True, help="List the runs that may have changed files, with their numbers.")
@click.option("--stat", is_flag=True, help="Only the names of files and the number of changed lines.")
@o.even_kept_option
@o.caches_option
@o.json_option("Print one JSON object a file.")
@o.gathered(o.SelectionArguments, "arguments")
@in_agent()
async def diff(agent: "Agent", arguments: o.SelectionArguments, runs: bool, stat: bool, as_json: bool) -> int:
    """Show what a run changed in the project, hunk by hunk.

    ID is a chat; without it, the newest that works in this project. PATH limits the output to files, or to files below
    folders. Changes that were undone or kept are left out.
    """
    from treadle.frontends.cli.changes import choose, refuse_unknown_words
    from treadle.library.files import interrupted_text

    terminal = Terminal()
    choice = await choose(agent, arguments)
    interrupted_call = await choice.files.interrupted_call()
    if runs:
        await _list_runs(terminal, choice, as_json)
    elif not await _show(terminal, choice, stat, as_json):
        await refuse_unknown_words(choice, arguments)
        if not as_json and not interrupted_call:
            terminal.note(f"chat {choice.chat.id} has changed nothing that is neither undone nor kept", "dim")
    if interrupted_call:
        terminal.note(interrupted_text(choice.chat.id, interrupted_call), "yellow")
    return o.EXIT_ERROR if interrupted_call else o.EXIT_OK


async def _show(terminal: Terminal, choice: "SelectedChanges", stat: bool, as_json: bool) -> bool:
    """Print the changes. Returns False if there are none."""
    from treadle.frontends.cli.changes import print_changes, print_diff
    from treadle.frontends.presentation.notices import summary
    from treadle.protocol import wire

    file_diffs = await choice.files.diff(choice.span, choice.paths, even_kept=choice.even_kept)
    if as_json:
        for each in file_diffs:
            write_json(wire.to_wire_form(each.change) | {"notes": each.notes, "hunks": each.hunks})
    elif files := [each.change for each in file_diffs]:
        if stat:
            print_changes(terminal, files, choice.aside)
        else:
            print_diff(terminal, file_diffs, choice.aside)
        terminal.note(f"{summary(files, choice.aside)} · undo: treadle undo {choice.chat.id}", "dim")
    return bool(file_diffs)


async def _list_runs(terminal: Terminal, choice: "SelectedChanges", as_json: bool) -> None:
    from treadle.frontends.presentation.notices import summary
    from treadle.protocol import wire
    from treadle.protocol.events import UserMessage

    messages = await choice.chat.events_of(UserMessage)
    tasks = {each.seq: each.data.content for each in messages if isinstance(each.data, UserMessage)}
    for number, span in enumerate(await choice.files.runs(), 1):
        files = [each.change for each in await choice.files.diff(span)]
        task = tasks.get(span.since, "")
        if as_json:
            changes = [wire.to_wire_form(each) for each in files]
            write_json({"run": number, "message": span.since, "task": task, "files": changes})
        else:
            remaining, task = summary(files) if files else "nothing left", inert_line(task, terminal.width - 50)
            terminal.line(f"{number:>3}  message {span.since:<6} {remaining:24} {task}")


@click.command("review")
@o.words_argument
@o.run_options
@o.caches_option
@o.json_option("Print one JSON object.")
@o.gathered(o.SelectionArguments, "arguments")
def review(arguments: o.SelectionArguments, as_json: bool) -> None:
    """Show a run's work in one piece: task, commands, changes.

    ID is a chat; without it, the newest that works in this project.
    """
    from treadle.frontends.cli.session import with_agent

    work = with_agent(lambda agent: _look(agent, arguments))
    if as_json:
        _write_report(work)
    elif not sys.stdout.isatty():
        _print_report(Terminal(), work)
    else:
        text = io.StringIO()
        text.isatty = sys.stdout.isatty  # type: ignore[method-assign]
        _print_report(Terminal(text), work)
        if text.getvalue().count("\n") < shutil.get_terminal_size().lines:
            _print_report(Terminal(), work)
        else:
            click.echo_via_pager(text.getvalue())


async def _look(agent: "Agent", arguments: o.SelectionArguments) -> "Work":
    from msgspec.structs import replace

    from treadle.frontends.cli.changes import choose, person_messages, refuse_unknown_words
    from treadle.library.files import RunSpan
    from treadle.protocol.events import UserMessage

    choice = await choose(agent, arguments)
    if arguments.run is None and not arguments.everything:
        runs = await choice.files.runs()  # the last one also if all of it was undone
        if not runs:  # a chat that has changed nothing here: from the last message of a person
            runs = [RunSpan(max(person_messages(await choice.chat.events_of(UserMessage)), default=0))]
        choice = replace(choice, span=runs[-1])
    file_diffs = await choice.files.diff(choice.span, choice.paths, even_kept=True)
    if not file_diffs:
        await refuse_unknown_words(choice, arguments)
    previous_seq = max(choice.span.since - 1, 0)
    limit = max(choice.span.upto - previous_seq, 1) if choice.span.upto else 0
    return choice, file_diffs, await choice.chat.events(previous_seq, limit)


def _print_report(terminal: Terminal, work: "Work") -> None:
    from treadle.frontends.cli.changes import person_messages, print_diff
    from treadle.frontends.presentation.notices import summary

    choice, file_diffs, events = work
    terminal.line(f"chat {choice.chat.id}", "bold")
    for message in person_messages(events).values():
        terminal.line(f"> {message}", "cyan")
    for line in [line for lines in _list_work(events).values() for line in lines]:
        terminal.line(line)
    files = [each.change for each in file_diffs]
    terminal.line(f"changed: {summary(files, choice.aside) if files else 'nothing that is left'}", "bold")
    print_diff(terminal, file_diffs, choice.aside)


def _write_report(work: "Work") -> None:
    from treadle.frontends.cli.changes import person_messages
    from treadle.protocol import wire

    choice, file_diffs, events = work
    files = [wire.to_wire_form(each.change) | {"hunks": wire.to_wire_form(tuple(each.hunks))} for each in file_diffs]
    report = {"chat": choice.chat.id, "messages": [*person_messages(events).values()]}
    write_json(report | _list_work(events) | {"files": files})


def _list_work(events: "Sequence[e.Envelope]") -> dict[str, list[str]]:
    """Lines about each command that was run, or refused or stopped before it ran, about files that were not captured,
    and about changes that were undone, redone or kept."""
    from treadle.frontends.cli.changes import shown_path
    from treadle.frontends.presentation.notices import summary
    from treadle.protocol import events as e
    from treadle.protocol.views import touched

    facts = [envelope.data for envelope in events]
    starts = {each.call: each for each in facts if isinstance(each, e.ExecutionStart)}
    messages = (each for each in facts if isinstance(each, e.AssistantMessage))
    requests = {request.call: request for each in messages for request in each.tool_requests}
    words = {e.Undone: "undone since", e.Redone: "redone since", e.ChangesKept: "kept since"}
    commands, uncaptured, restored = [], {}, []
    for fact in facts:
        if isinstance(fact, e.ExecutionComplete):
            start, request = starts.get(fact.call), requests.get(fact.call)
            refused = not fact.success and not fact.sandbox and request is not None and request.name == COMMAND
            if fact.effect or refused:
                command = str(start.arguments.get("command", "")) if start is not None else ""
                command = command or (touched(request.arguments) if request is not None else "")
                outcome = inert_line(fact.result_summary or ("done" if fact.success else "failed"), 60)
                way = f"; {_WAYS[fact.effect]}" if fact.effect else ""
                commands.append(f"$ {inert_line(command, 200)}  ({outcome}{way})")
        elif isinstance(fact, e.FilesChanged):
            for each in fact.uncaptured:
                uncaptured[each.path] = f"! {shown_path(each.path)} was not captured: {inert_line(each.reason)}"
        elif isinstance(fact, e.Undone | e.Redone | e.ChangesKept) and fact.files:
            restored.append(f"! {words[type(fact)]}: {summary(fact.files)}")
    return {"commands": commands, "uncaptured": [*uncaptured.values()], "restored": restored}
