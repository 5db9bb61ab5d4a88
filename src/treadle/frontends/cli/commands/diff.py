"""`treadle diff`: the changes of a run that still stand, with the numbers by which hunks are undone and kept.
`treadle review`: all work of a run in one report, for a person who did not watch it (W-04). `treadle undo`: take back
what a run did, shown first and asked for on a terminal; `treadle redo`: take the last undo back; `treadle keep`: accept
what a run did, or parts of it."""

import io
import itertools
import shutil
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from treadle.base.inert import inert_line
from treadle.errors import InvalidInput, Refused
from treadle.frontends.cli import options as o
from treadle.frontends.cli.group import in_agent

from treadle.frontends.cli.lazy import (  # isort: skip
    Agent, c, changes, chat_files, dialogue, e, msgspec, notices, session, snapshots, views, wire,
)  # fmt: skip
from treadle.frontends.cli.terminal import Terminal, write_json

if TYPE_CHECKING:
    from treadle.diff.diff import FileDiff
    from treadle.library.agent import Agent
    from treadle.protocol import events as e

    Work = tuple[changes.SelectedChanges, Sequence[FileDiff], Sequence[e.Envelope]]

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
@o.gather_options(o.SelectionArguments, "arguments")
@in_agent()
async def diff(agent: "Agent", arguments: o.SelectionArguments, runs: bool, stat: bool, as_json: bool) -> int:
    """Show what a run changed in the project, hunk by hunk.

    ID is a chat; without it, the newest that works in this project. PATH limits the output to files, or to files below
    folders. Changes that were undone or kept are left out."""
    terminal = Terminal()
    choice = await changes.choose(agent, arguments)
    interrupted_call = await choice.files.interrupted_call()
    if runs:
        await _list_runs(terminal, choice, as_json)
    elif not await _show(terminal, choice, stat, as_json):
        await changes.refuse_unknown_words(choice, arguments)
        if not as_json and not interrupted_call:
            terminal.note(f"chat {choice.chat.id} has changed nothing that is neither undone nor kept", "dim")
    if interrupted_call:
        terminal.note(chat_files.interrupted_text(choice.chat.id, interrupted_call), "yellow")
    return o.EXIT_ERROR if interrupted_call else o.EXIT_OK


async def _show(terminal: Terminal, choice: "changes.SelectedChanges", stat: bool, as_json: bool) -> bool:
    """Print the changes. Returns False if there are none."""
    file_diffs = await choice.files.diff(choice.span, choice.paths, even_kept=choice.even_kept)
    if as_json:
        for each in file_diffs:
            write_json(wire.to_wire_form(each.change) | {"notes": each.notes, "hunks": each.hunks})
    elif files := [each.change for each in file_diffs]:
        if stat:
            changes.print_changes(terminal, files, choice.aside)
        else:
            changes.print_diff(terminal, file_diffs, choice.aside)
        terminal.note(f"{notices.summary(files, choice.aside)} · undo: treadle undo {choice.chat.id}", "dim")
    return bool(file_diffs)


async def _list_runs(terminal: Terminal, choice: "changes.SelectedChanges", as_json: bool) -> None:
    messages = await choice.chat.events_of(e.UserMessage)
    tasks = {each.seq: each.data.content for each in messages if isinstance(each.data, e.UserMessage)}
    for number, span in enumerate(await choice.files.runs(), 1):
        files = [each.change for each in await choice.files.diff(span)]
        task = tasks.get(span.since, "")
        if as_json:
            wire_files = [wire.to_wire_form(each) for each in files]
            write_json({"run": number, "message": span.since, "task": task, "files": wire_files})
        else:
            remaining, task = notices.summary(files) if files else "nothing left", inert_line(task, terminal.width - 50)
            terminal.line(f"{number:>3}  message {span.since:<6} {remaining:24} {task}")


@click.command("review")
@o.words_argument
@o.run_options
@o.caches_option
@o.json_option("Print one JSON object.")
@o.gather_options(o.SelectionArguments, "arguments")
def review(arguments: o.SelectionArguments, as_json: bool) -> None:
    """Show a run's work in one piece: task, commands, changes.

    ID is a chat; without it, the newest that works in this project."""
    work = session.with_agent(lambda agent: _look(agent, arguments))
    choice, file_diffs, events = work
    if as_json:
        report = {"chat": choice.chat.id, "messages": [*changes.person_messages(events).values()]}
        files = [
            wire.to_wire_form(each.change) | {"hunks": wire.to_wire_form(tuple(each.hunks))} for each in file_diffs
        ]
        write_json(report | _list_work(events) | {"files": files})
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
    choice = await changes.choose(agent, arguments)
    if arguments.run is None and not arguments.everything:
        runs = await choice.files.runs()  # the last one also if all of it was undone
        if not runs:  # a chat that has changed nothing here: from the last message of a person
            messages = changes.person_messages(await choice.chat.events_of(e.UserMessage))
            runs = [chat_files.RunSpan(max(messages, default=0))]
        choice = msgspec.structs.replace(choice, span=runs[-1])
    file_diffs = await choice.files.diff(choice.span, choice.paths, even_kept=True)
    if not file_diffs:
        await changes.refuse_unknown_words(choice, arguments)
    previous_seq = max(choice.span.since - 1, 0)
    limit = max(choice.span.upto - previous_seq, 1) if choice.span.upto else 0
    return choice, file_diffs, await choice.chat.events(previous_seq, limit)


def _print_report(terminal: Terminal, work: "Work") -> None:
    choice, file_diffs, events = work
    terminal.line(f"chat {choice.chat.id}", "bold")
    for message in changes.person_messages(events).values():
        terminal.line(f"> {message}", "cyan")
    for line in itertools.chain(*_list_work(events).values()):
        terminal.line(line)
    files = [each.change for each in file_diffs]
    terminal.line(f"changed: {notices.summary(files, choice.aside) if files else 'nothing that is left'}", "bold")
    changes.print_diff(terminal, file_diffs, choice.aside)


def _list_work(events: "Sequence[e.Envelope]") -> dict[str, list[str]]:
    """Lines about each command that was run, or refused or stopped before it ran, about files that were not captured,
    and about changes that were undone, redone or kept."""
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
                command = command or (views.summarize_arguments(request.arguments) if request is not None else "")
                outcome = inert_line(fact.result_summary or ("done" if fact.success else "failed"), 60)
                way = f"; {_WAYS[fact.effect]}" if fact.effect else ""
                commands.append(f"$ {inert_line(command, 200)}  ({outcome}{way})")
        elif isinstance(fact, e.FilesChanged):
            for each in fact.uncaptured:
                uncaptured[each.path] = f"! {changes.shown_path(each.path)} was not captured: {inert_line(each.reason)}"
        elif isinstance(fact, e.Undone | e.Redone | e.ChangesKept) and fact.files:
            restored.append(f"! {words[type(fact)]}: {notices.summary(fact.files)}")
    return {"commands": commands, "uncaptured": [*uncaptured.values()], "restored": restored}


class UndoFlags(NamedTuple):
    to: int | None
    conversation: bool
    files: bool
    merge: bool
    preview: bool
    yes: bool
    as_json: bool


@click.command("undo")
@o.words_argument
@o.hunk_option
@o.run_options
@click.option("--to", type=o.POSITIVE, metavar="MESSAGE", help="Go back to before this message.")
@click.option("--conversation", is_flag=True, help="With --to only the conversation.")
@click.option("--files", is_flag=True, help="With --to only the files.")
@o.merge_option
@o.even_kept_option
@click.option("--preview", "-n", is_flag=True, help="Show the changes without making them.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@o.json_option("Print the result as one JSON object, and do not ask.")
@o.gather_options(o.SelectionArguments, "arguments")
@o.gather_options(UndoFlags, "flags")
def undo(arguments: o.SelectionArguments, flags: UndoFlags) -> int:
    """Undo what a run did to the project: everything, files or hunks.

    ID is a chat; without it, the newest that works in this project. PATH limits it to files, or what is below folders.
    A file that was edited since is not touched. Reverse an undo with redo."""
    both = flags.conversation == flags.files
    flags = flags._replace(conversation=flags.conversation or both, files=flags.files or both)
    is_narrowed = arguments.paths or arguments.hunks or arguments.run is not None or arguments.everything
    if flags.to is not None and is_narrowed:
        raise InvalidInput("--to goes back to before a message with everything; name no files, hunks or runs with it")
    if flags.to is None and not both:
        raise InvalidInput("--conversation and --files belong to --to MESSAGE")
    return session.with_agent(lambda agent: _undo(agent, arguments, flags))


async def _undo(agent: "Agent", arguments: o.SelectionArguments, flags: UndoFlags) -> int:
    terminal = Terminal()
    choice = await changes.choose(agent, arguments)
    if flags.to is not None:
        messages = changes.person_messages(await choice.chat.events_of(e.UserMessage))
        if flags.to not in messages:
            listed = "; ".join(f"{seq} {inert_line(text, 40)!r}" for seq, text in [*messages.items()][-10:])
            raise Refused("no_such_message", f"no message of yours stands at {flags.to}; they are: {listed}")
        choice = msgspec.structs.replace(choice, span=chat_files.RunSpan(flags.to))
    selection: dict[str, Any] = {"paths": choice.paths, "hunks": choice.hunks, "even_kept": choice.even_kept}
    selection["merge"] = flags.merge
    await changes.tell_begun(terminal, choice, flags.as_json)
    if (completed := await choice.files.complete()) is not None:
        if not flags.as_json:
            changes.print_changes(terminal, completed.outcome_event.files)
            changes.print_conflicts(terminal, completed.outcome_event.conflicts)
        undoing: c.Restore | c.Rewind
        if flags.to is not None:
            undoing = c.Rewind(flags.to, flags.conversation, flags.files, merge=flags.merge)
        else:
            undoing = await choice.files.undoing(choice.span, **selection)
        if not flags.preview and completed.answers(undoing):  # the unfinished undo was the same command
            return await changes.tell(terminal, choice, completed.outcome_event, "undone", flags.as_json)
        if completed.request.kind == "redo" and flags.to is None:
            choice = await changes.choose(agent, arguments)  # the last run may be another now
    plan = await choice.files.preview(choice.span, **selection) if flags.files else snapshots.Plan(())
    if not plan.files and not plan.conflicts:
        await changes.refuse_unknown_words(choice, arguments)
    if not flags.as_json:
        _show_plan(terminal, choice, plan, flags)
    if flags.preview or (not plan.files and flags.to is None):
        if flags.as_json:
            preview = {"preview": True} if flags.preview else {}
            write_json({"chat": choice.chat.id} | preview | msgspec.to_builtins(plan))
        return o.EXIT_ERROR if plan.conflicts else o.EXIT_OK
    question = f"undo {notices.summary(plan.files)}? [y/N] "
    if not await dialogue.may_go_on(terminal, question, asks=not (flags.yes or flags.as_json)):
        return o.EXIT_ERROR
    if flags.to is None:
        restored: e.Undone | None = await choice.files.undo(choice.span, **selection)
    else:
        parts = {"conversation": flags.conversation, "files": flags.files}
        restored = await choice.files.back_to(flags.to, **parts, merge=flags.merge)
    return o.EXIT_OK if restored is None else await changes.tell(terminal, choice, restored, "undone", flags.as_json)


def _show_plan(terminal: Terminal, choice: "changes.SelectedChanges", plan: "snapshots.Plan", flags: UndoFlags) -> None:
    changes.print_changes(terminal, plan.files)
    changes.print_conflicts(terminal, plan.conflicts)
    if flags.to is not None and flags.conversation:
        terminal.note(f"the conversation goes back to before message {flags.to}", "dim")
    if not plan.files and not plan.conflicts and flags.files:
        terminal.note(f"chat {choice.chat.id}: nothing to undo", "dim")
    elif flags.preview:
        terminal.note(f"would undo: {notices.summary(plan.files)}; nothing was changed", "dim")
    if not flags.merge and any(each.reason.startswith(snapshots.MERGEABLE) for each in plan.conflicts):
        terminal.note("   --merge removes the chat's changes from files that were edited since", "dim")


@click.command("redo")
@click.argument("chat", metavar="[ID]", default="", type=o.CHAT)
@o.merge_option
@o.json_option("Print the result as one JSON object.")
@in_agent()
async def redo(agent: "Agent", chat: str, merge: bool, as_json: bool) -> int:
    """Reverse an undo.

    ID is a chat; without it, the newest that works in this project. It reverses the last undo."""
    terminal = Terminal()
    choice = await changes.choose(agent, o.SelectionArguments(only_chat=chat))
    await changes.tell_begun(terminal, choice, as_json)
    return await changes.tell(terminal, choice, await choice.files.redo(merge=merge), "redone", as_json, listed=True)


@click.command("keep")
@o.words_argument
@o.hunk_option
@o.run_options
@o.json_option("Print the result as one JSON object.")
@o.gather_options(o.SelectionArguments, "arguments")
@in_agent()
async def keep(agent: "Agent", arguments: o.SelectionArguments, as_json: bool) -> int:
    """Accept changes, so that an undo leaves them alone.

    ID is a chat; without it, the newest that works in this project. Nothing in the project changes."""
    terminal = Terminal()
    choice = await changes.choose(agent, arguments)
    await changes.tell_begun(terminal, choice, as_json)
    outcome = await choice.files.keep(choice.span, choice.paths, choice.hunks)
    if not (outcome.files or outcome.conflicts):
        await changes.refuse_unknown_words(choice, arguments)
    if not (as_json or outcome.files or outcome.conflicts or outcome.error):
        terminal.note(f"chat {choice.chat.id}: nothing to keep", "dim")
    return await changes.tell(terminal, choice, outcome, "kept", as_json, listed=True)
