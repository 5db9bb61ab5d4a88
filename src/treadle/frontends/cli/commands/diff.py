"""`treadle diff`: the changes of a run that still stand, with the numbers by which hunks are undone and kept.
`treadle review`: all work of a run in one report, for a person who did not watch it (W-04). `treadle undo`: take back
what a run did, shown first and asked for on a terminal; `treadle redo`: take the last undo back; `treadle keep`: accept
what a run did, or parts of it. `treadle apply`: a patch or a fenced block, from a file, standard input or a chat's last
answer, becomes a change of the project (L-18): planned and shown, then made all or not at all, with the same rules and
the same way back as a call of the model."""

import io
import itertools
import shutil
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from treadle.base.inert import make_inert_line
from treadle.base.types import CallKey, ChatId
from treadle.errors import EditError, InvalidInput, Refused, ToolError
from treadle.frontends.cli import options as o
from treadle.frontends.cli.group import pass_agent, run_in_loop

from treadle.frontends.cli.lazy import (  # isort: skip
    Agent, Chat, Config, applying, c, changes, chat_files, chat_options, command_stream, dialogue, diff_changes, e,
    msgspec, notices, piped, session, snapshots, toolset, views, wire,
)  # fmt: skip
from treadle.frontends.cli.terminal import Terminal, write_json

if TYPE_CHECKING:
    from treadle.diff.diff import FileDiff
    from treadle.library.agent import Agent
    from treadle.protocol import events as e
    from treadle.protocol.files import FileChange

    Work = tuple[changes.SelectedChanges, Sequence[FileDiff], Sequence[e.Envelope]]

_WAYS = {"view": "on a copy, then committed", "direct": "written through"}
COMMAND = "run_command"


@click.command("diff")
@o.words_argument
@o.add_run_options
@click.option("--runs", is_flag=True, help="List the runs that may have changed files, with their numbers.")
@click.option("--stat", is_flag=True, help="Only the names of files and the number of changed lines.")
@o.even_kept_option
@o.caches_option
@o.add_json_option("Print one JSON object a file.")
@o.gather_options(o.SelectionArguments, "arguments")
@pass_agent()
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
            terminal.write_note(f"chat {choice.chat.id} has changed nothing that is neither undone nor kept", "dim")
    if interrupted_call:
        terminal.write_note(chat_files.describe_interrupted_call(choice.chat.id, interrupted_call), "yellow")
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
        summary = notices.summarize_changes(files, choice.aside)
        terminal.write_note(f"{summary} · undo: treadle undo {choice.chat.id}", "dim")
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
            remaining = notices.summarize_changes(files) if files else "nothing left"
            shown_task = make_inert_line(task, terminal.width - 50)
            terminal.write_line(f"{number:>3}  message {span.since:<6} {remaining:24} {shown_task}")


@click.command("review")
@o.words_argument
@o.add_run_options
@o.caches_option
@o.add_json_option("Print one JSON object.")
@o.gather_options(o.SelectionArguments, "arguments")
def review(arguments: o.SelectionArguments, as_json: bool) -> None:
    """Show a run's work in one piece: task, commands, changes.

    ID is a chat; without it, the newest that works in this project."""
    choice, file_diffs, events = work = session.run_with_agent(lambda agent: _load_work(agent, arguments))
    if as_json:
        report = {"chat": choice.chat.id, "messages": [*changes.find_person_messages(events).values()]}
        files = [wire.to_wire_form(each.change) | {"hunks": wire.to_wire_form(list(each.hunks))} for each in file_diffs]
        return write_json(report | _list_work(events) | {"files": files})
    if sys.stdout.isatty():
        text = io.StringIO()
        text.isatty = sys.stdout.isatty  # type: ignore[method-assign]
        _print_report(Terminal(text), work)
        if text.getvalue().count("\n") >= shutil.get_terminal_size().lines:
            return click.echo_via_pager(text.getvalue())
    _print_report(Terminal(), work)


async def _load_work(agent: "Agent", arguments: o.SelectionArguments) -> "Work":
    choice = await changes.choose(agent, arguments)
    if arguments.run is None and not arguments.everything:
        runs = await choice.files.runs()  # the last one also if all of it was undone
        if not runs:  # a chat that has changed nothing here: from the last message of a person
            messages = changes.find_person_messages(await choice.chat.events_of(e.UserMessage))
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
    terminal.write_line(f"chat {choice.chat.id}", "bold")
    for message in changes.find_person_messages(events).values():
        terminal.write_line(f"> {message}", "cyan")
    for line in itertools.chain(*_list_work(events).values()):
        terminal.write_line(line)
    files = [each.change for each in file_diffs]
    summary = notices.summarize_changes(files, choice.aside) if files else "nothing that is left"
    terminal.write_line(f"changed: {summary}", "bold")
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
                outcome = make_inert_line(fact.result_summary or ("done" if fact.success else "failed"), 60)
                way = f"; {_WAYS[fact.effect]}" if fact.effect else ""
                commands.append(f"$ {make_inert_line(command, 200)}  ({outcome}{way})")
        elif isinstance(fact, e.FilesChanged):
            for each in fact.uncaptured:
                path = changes.format_path(each.path)
                uncaptured[each.path] = f"! {path} was not captured: {make_inert_line(each.reason)}"
        elif isinstance(fact, e.Undone | e.Redone | e.ChangesKept) and fact.files:
            restored.append(f"! {words[type(fact)]}: {notices.summarize_changes(fact.files)}")
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
@o.add_run_options
@click.option("--to", type=o.POSITIVE, metavar="MESSAGE", help="Go back to before this message.")
@click.option("--conversation", is_flag=True, help="With --to only the conversation.")
@click.option("--files", is_flag=True, help="With --to only the files.")
@o.merge_option
@o.even_kept_option
@click.option("--preview", "-n", is_flag=True, help="Show the changes without making them.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@o.add_json_option("Print the result as one JSON object, and do not ask.")
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
    return session.run_with_agent(lambda agent: _undo(agent, arguments, flags))


async def _undo(agent: "Agent", arguments: o.SelectionArguments, flags: UndoFlags) -> int:
    terminal = Terminal()
    choice = await changes.choose(agent, arguments)
    if flags.to is not None:
        messages = changes.find_person_messages(await choice.chat.events_of(e.UserMessage))
        if flags.to not in messages:
            listed = "; ".join(f"{seq} {make_inert_line(text, 40)!r}" for seq, text in [*messages.items()][-10:])
            raise Refused("no_such_message", f"no message of yours stands at {flags.to}; they are: {listed}")
        choice = msgspec.structs.replace(choice, span=chat_files.RunSpan(flags.to))
    selection: dict[str, Any] = {name: getattr(choice, name) for name in ("paths", "hunks", "even_kept")}
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
        if not flags.preview and completed.is_answer_to(undoing):  # the unfinished undo was the same command
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
    question = f"undo {notices.summarize_changes(plan.files)}? [y/N] "
    if not await dialogue.confirm_action(terminal, question, asks=not (flags.yes or flags.as_json)):
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
        terminal.write_note(f"the conversation goes back to before message {flags.to}", "dim")
    if not plan.files and not plan.conflicts and flags.files:
        terminal.write_note(f"chat {choice.chat.id}: nothing to undo", "dim")
    elif flags.preview:
        terminal.write_note(f"would undo: {notices.summarize_changes(plan.files)}; nothing was changed", "dim")
    if not flags.merge and any(each.reason.startswith(snapshots.MERGEABLE) for each in plan.conflicts):
        terminal.write_note("   --merge removes the chat's changes from files that were edited since", "dim")


@click.command("redo")
@click.argument("chat", metavar="[ID]", default="", type=o.CHAT)
@o.merge_option
@o.add_json_option("Print the result as one JSON object.")
@pass_agent()
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
@o.add_run_options
@o.add_json_option("Print the result as one JSON object.")
@o.gather_options(o.SelectionArguments, "arguments")
@pass_agent()
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
        terminal.write_note(f"chat {choice.chat.id}: nothing to keep", "dim")
    return await changes.tell(terminal, choice, outcome, "kept", as_json, listed=True)


_SHORTER = "apply it in parts"


class Wish(NamedTuple):
    source: str | None
    path: str | None
    block: int | None
    chat: str | None
    root: str | None
    force_root: bool
    preview: bool
    yes: bool

    def check(self) -> None:
        both_places = "--chat and --root exclude each other: a chat has its project."
        is_twofold = self.chat and (self.root or self.force_root)
        o.refuse({"--preview and --yes exclude each other.": self.preview and self.yes, both_places: is_twofold})


@click.command("apply")
@click.argument("source", metavar="[FILE]", required=False, type=o.FILE)
@click.option("--to", "path", metavar="PATH", type=o.FILE, help="Write a fenced block, or all of a text, to this file.")
@click.option("--block", type=o.POSITIVE, metavar="N", help="The number of the fenced block, from 1.")
@click.option("--chat", type=o.CHAT, help="Apply in this chat; without FILE apply its last answer.")
@o.add_root_options
@click.option("--preview", "-n", is_flag=True, help="Show the changes without making them.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask, not even about sensitive files.")
@o.add_json_option("Print the result as one JSON object, and do not ask.")
@o.gather_options(Wish, "wish")
@run_in_loop
async def apply(wish: Wish, as_json: bool) -> int:
    """Apply a patch or a fenced block of an answer to the project.

    FILE holds a unified diff, a patch that begins with *** Begin Patch, or an answer with one of these in a fenced
    block; without FILE, or with -, it is read from standard input. With --to a block, or a text without one, becomes
    that file. It is shown first and applied whole or not at all; treadle undo takes it back."""
    config = session.load_config()
    text = _read_text(wish)
    terminal = Terminal()
    async with session.open_agent(config) as agent:
        chat, root = await _find_or_make_chat(agent, config, wish)
        if text is None:
            text = applying.find_last_answer(await chat.state())
            if not text:
                raise Refused("no_such_block", f"the chat {chat.id} has no answer yet")
        command = _make_command(wish, text)
        files, diff = await _plan_changes(agent, root, command)
        amount = diff_changes.count(len(files), "file")
        if not as_json:
            changes.print_patch(terminal, diff)
        if wish.preview or not files:
            if as_json:
                write_json({"preview": wish.preview, "applied": False, "files": wire.to_wire_form(files), "diff": diff})
            elif files:
                terminal.write_note(f"would change {amount}; nothing was changed", "dim")
            else:
                terminal.write_note("nothing to apply: the files are like that already", "dim")
            return o.EXIT_OK
        if not await dialogue.confirm_action(terminal, f"apply to {amount}? [y/N] ", asks=not (wish.yes or as_json)):
            return o.EXIT_ERROR
        return await _run_apply(terminal, chat, command, wish, as_json)


def _read_text(wish: Wish) -> str | None:
    """Return the text to apply; None for the last answer of the chat."""
    if wish.source not in (None, "-"):
        return piped.read_file(str(wish.source), piped.PATCH_LIMIT, _SHORTER)
    if wish.source is None and wish.chat:
        return None
    if wish.source is None and not piped.is_piped():
        raise click.UsageError("Name a FILE, pipe a patch in, or name a chat with --chat.")
    return piped.read_text(piped.PATCH_LIMIT, _SHORTER)


def _make_command(wish: Wish, text: str) -> "c.Apply":
    """A patch if it is one, else a text for the named file."""
    blocks = applying.parse_fenced_blocks(text)
    if wish.block is not None and wish.block > len(blocks):
        raise InvalidInput(f"there is no block {wish.block}: the text has {len(blocks)} that are closed by their fence")
    if wish.block is None and len(blocks) > 1:
        patches = [block for block in blocks if _is_patch(block)]
        if wish.path or len(patches) != 1:
            raise InvalidInput(f"the text has {len(blocks)} fenced blocks; say which with --block 1 to {len(blocks)}")
        blocks = patches
    content = text
    if blocks and not (wish.block is None and _is_patch(text) and not _is_patch(blocks[0])):
        content = blocks[(wish.block or 1) - 1]
    if wish.path:
        return c.Apply(wish.path, content)
    if not _is_patch(content):
        raise InvalidInput("this is no patch; say with --to PATH which file it should become")
    return c.Apply(patch=content)


def _is_patch(text: str) -> bool:
    from treadle.adapters.tools.builtin.patch_text import parse

    try:
        return bool(parse(text))
    except EditError:
        return text.lstrip().startswith(("*** Begin Patch", "diff --git ", "--- "))


async def _find_or_make_chat(agent: "Agent", config: "Config", wish: Wish) -> "tuple[Chat, str]":
    """The chat that was named, else a new one, which is not written down before it has something to do; its root."""
    if wish.chat:
        chat = await session.open_chat(agent, wish.chat)
        return chat, (await chat.state()).options.root
    root = str(o.resolve_project_root(wish.root, force=wish.force_root))
    # `apply` is a request to write these files, so the chat uses the mode that lets edits pass.
    options, asks = config.settings.make_chat_options(root), dialogue.is_person_there()
    return agent.chat(options=options, mode="auto-edit", interactive=asks, auto_approve_sensitive_edits=wish.yes), root


async def _plan_changes(agent: "Agent", root: str, command: "c.Apply") -> "tuple[tuple[FileChange, ...], str]":
    """Return the changes and their preview, computed by the tool that will make them. Nothing is written."""
    from treadle.protocol.tools import PATCH_TOOL, WRITE_TOOL, ToolSpec

    name, arguments = WRITE_TOOL, {"path": command.path, "content": command.content}
    if command.patch is not None:
        name, arguments = PATCH_TOOL, {"patch": command.patch}
    tool = agent.deps.tools.find(name, chat_options.ChatOptions(tools=(name,)))
    assert tool is not None
    assert not isinstance(tool, ToolSpec)
    options = chat_options.ChatOptions(root=root)
    invocation = toolset.Invocation(ChatId("apply"), CallKey("1.0"), name, arguments, options=options, by_person=True)
    rehearsal = await tool.rehearse(invocation)
    return () if rehearsal is None else rehearsal.files, await tool.preview(invocation)


async def _run_apply(terminal: Terminal, chat: "Chat", command: "c.Apply", wish: Wish, as_json: bool) -> int:
    """Carry it out in the way of every call: policy, checkpoint, log."""
    await chat.open()
    if not wish.chat:
        await chat.command(c.Rename(f"apply {wish.source if wish.source not in (None, '-') else 'standard input'}"))
    stream: command_stream.CommandStream | None
    stream = chat.apply(command.path, content=command.content, patch=command.patch)
    while stream is not None:
        outcome = await command_stream.collect_changes(stream)
        stream = await dialogue.answer_next(terminal, chat, asks=not as_json)
    is_applied = outcome.completion is not None and outcome.completion.success
    error = outcome.completion.error if outcome.completion is not None and not is_applied else ""
    if as_json:
        write_json({"chat": chat.id, "applied": is_applied, "error": error, "files": wire.to_wire_form(outcome.files)})
    elif error:
        raise ToolError(error)
    elif is_applied:
        summary = notices.summarize_changes(outcome.files)
        terminal.write_note(f"applied: {summary} · back: treadle undo {chat.id}", "dim")
    return o.EXIT_OK if is_applied else o.EXIT_ERROR
