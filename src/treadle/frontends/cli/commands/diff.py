"""`treadle diff`: the changes of a run that still stand, with the numbers by which hunks are undone and kept."""

from typing import TYPE_CHECKING

import click

from treadle.base.inert import inert_line
from treadle.frontends.cli.group import in_agent
from treadle.frontends.cli.options import (
    EXIT_ERROR,
    EXIT_OK,
    SelectionArguments,
    caches_option,
    even_kept_option,
    gathered,
    json_option,
    run_options,
    words_argument,
)
from treadle.frontends.cli.terminal import Terminal, write_json

if TYPE_CHECKING:
    from treadle.frontends.cli.changes import SelectedChanges
    from treadle.library.agent import Agent


@click.command("diff")
@words_argument
@run_options
@click.option("--runs", is_flag=True, help="List the runs that may have changed files, with their numbers.")
@click.option("--stat", is_flag=True, help="Only the names of files and the number of changed lines.")
@even_kept_option
@caches_option
@json_option("Print one JSON object a file.")
@gathered(SelectionArguments, "arguments")
@in_agent()
async def diff(agent: "Agent", arguments: SelectionArguments, runs: bool, stat: bool, as_json: bool) -> int:
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
    return EXIT_ERROR if interrupted_call else EXIT_OK


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
            write_json(
                {
                    "run": number,
                    "message": span.since,
                    "task": task,
                    "files": [wire.to_wire_form(each) for each in files],
                }
            )
        else:
            remaining = summary(files) if files else "nothing left"
            terminal.line(
                f"{number:>3}  message {span.since:<6} {remaining:24} {inert_line(task, terminal.width - 50)}"
            )
