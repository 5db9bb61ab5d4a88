"""`treadle undo`: take back what a run did, shown first and asked for on a terminal; `treadle redo`: take the last undo
back; `treadle keep`: accept what a run did, or parts of it."""

from typing import TYPE_CHECKING, Any, NamedTuple

import click

from treadle.base.inert import inert_line
from treadle.errors import InvalidInput, Refused
from treadle.frontends.cli import options as o
from treadle.frontends.cli.group import in_agent
from treadle.frontends.cli.terminal import Terminal, write_json

if TYPE_CHECKING:
    from treadle.frontends.cli.changes import SelectedChanges
    from treadle.library.agent import Agent
    from treadle.ports.snapshots import Plan
    from treadle.protocol import commands as c
    from treadle.protocol.events import Undone


class UndoFlags(NamedTuple):
    """How to undo what was named; with `to` everything since that message."""

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
@o.gathered(o.SelectionArguments, "arguments")
@o.gathered(UndoFlags, "flags")
def undo(arguments: o.SelectionArguments, flags: UndoFlags) -> int:
    """Undo what a run did to the project: everything, files or hunks.

    ID is a chat; without it, the newest that works in this project. PATH limits it to files, or what is below folders.
    A file that was edited since is not touched. Reverse an undo with redo.
    """
    both = flags.conversation == flags.files
    flags = flags._replace(conversation=flags.conversation or both, files=flags.files or both)
    is_narrowed = arguments.paths or arguments.hunks or arguments.run is not None or arguments.everything
    if flags.to is not None and is_narrowed:
        raise InvalidInput("--to goes back to before a message with everything; name no files, hunks or runs with it")
    if flags.to is None and not both:
        raise InvalidInput("--conversation and --files belong to --to MESSAGE")
    from treadle.frontends.cli.session import with_agent

    return with_agent(lambda agent: _undo(agent, arguments, flags))


async def _undo(agent: "Agent", arguments: o.SelectionArguments, flags: UndoFlags) -> int:
    from msgspec import to_builtins
    from msgspec.structs import replace

    from treadle.frontends.cli.changes import (
        choose,
        person_messages,
        print_changes,
        print_conflicts,
        refuse_unknown_words,
        tell,
        tell_begun,
    )
    from treadle.frontends.cli.dialogue import may_go_on
    from treadle.frontends.presentation.notices import summary
    from treadle.library.files import RunSpan
    from treadle.ports.snapshots import Plan
    from treadle.protocol.events import UserMessage

    terminal = Terminal()
    choice = await choose(agent, arguments)
    if flags.to is not None:
        messages = person_messages(await choice.chat.events_of(UserMessage))
        if flags.to not in messages:
            listed = "; ".join(f"{seq} {inert_line(text, 40)!r}" for seq, text in [*messages.items()][-10:])
            raise Refused("no_such_message", f"no message of yours stands at {flags.to}; they are: {listed}")
        choice = replace(choice, span=RunSpan(flags.to))
    selection: dict[str, Any] = {
        "paths": choice.paths,
        "hunks": choice.hunks,
        "merge": flags.merge,
        "even_kept": choice.even_kept,
    }
    await tell_begun(terminal, choice, flags.as_json)
    if (completed := await choice.files.complete()) is not None:
        if not flags.as_json:
            print_changes(terminal, completed.outcome_event.files)
            print_conflicts(terminal, completed.outcome_event.conflicts)
        # The unfinished undo may have been the same command.
        if not flags.preview and completed.answers(await _command(choice, flags, selection)):
            return await tell(terminal, choice, completed.outcome_event, "undone", flags.as_json)
        if completed.request.kind == "redo" and flags.to is None:
            choice = await choose(agent, arguments)  # the last run may be another now
    plan = await choice.files.preview(choice.span, **selection) if flags.files else Plan(())
    if not plan.files and not plan.conflicts:
        await refuse_unknown_words(choice, arguments)
    if not flags.as_json:
        _show(terminal, choice, plan, flags)
    if flags.preview or (not plan.files and flags.to is None):
        if flags.as_json:
            write_json({"chat": choice.chat.id} | ({"preview": True} if flags.preview else {}) | to_builtins(plan))
        return o.EXIT_ERROR if plan.conflicts else o.EXIT_OK
    if not await may_go_on(terminal, f"undo {summary(plan.files)}? [y/N] ", asks=not (flags.yes or flags.as_json)):
        return o.EXIT_ERROR
    if flags.to is None:
        restored: Undone | None = await choice.files.undo(choice.span, **selection)
    else:
        parts = {"conversation": flags.conversation, "files": flags.files}
        restored = await choice.files.back_to(flags.to, **parts, merge=flags.merge)
    return o.EXIT_OK if restored is None else await tell(terminal, choice, restored, "undone", flags.as_json)


async def _command(choice: "SelectedChanges", flags: UndoFlags, selection: dict[str, Any]) -> "c.Restore | c.Rewind":
    from treadle.protocol import commands as c

    if flags.to is not None:
        return c.Rewind(flags.to, flags.conversation, flags.files, merge=flags.merge)
    return await choice.files.undoing(choice.span, **selection)


def _show(terminal: Terminal, choice: "SelectedChanges", plan: "Plan", flags: UndoFlags) -> None:
    from treadle.frontends.cli.changes import print_changes, print_conflicts
    from treadle.frontends.presentation.notices import summary
    from treadle.ports.snapshots import MERGEABLE

    print_changes(terminal, plan.files)
    print_conflicts(terminal, plan.conflicts)
    if flags.to is not None and flags.conversation:
        terminal.note(f"the conversation goes back to before message {flags.to}", "dim")
    if not plan.files and not plan.conflicts and flags.files:
        terminal.note(f"chat {choice.chat.id}: nothing to undo", "dim")
    elif flags.preview:
        terminal.note(f"would undo: {summary(plan.files)}; nothing was changed", "dim")
    if not flags.merge and any(each.reason.startswith(MERGEABLE) for each in plan.conflicts):
        terminal.note("   --merge removes the chat's changes from files that were edited since", "dim")


@click.command("redo")
@click.argument("chat", metavar="[ID]", default="", type=o.CHAT)
@o.merge_option
@o.json_option("Print the result as one JSON object.")
@in_agent()
async def redo(agent: "Agent", chat: str, merge: bool, as_json: bool) -> int:
    """Reverse an undo.

    ID is a chat; without it, the newest that works in this project. It reverses the last undo.
    """
    from treadle.frontends.cli.changes import choose, tell, tell_begun

    terminal = Terminal()
    choice = await choose(agent, o.SelectionArguments(only_chat=chat))
    await tell_begun(terminal, choice, as_json)
    return await tell(terminal, choice, await choice.files.redo(merge=merge), "redone", as_json, listed=True)


@click.command("keep")
@o.words_argument
@o.hunk_option
@o.run_options
@o.json_option("Print the result as one JSON object.")
@o.gathered(o.SelectionArguments, "arguments")
@in_agent()
async def keep(agent: "Agent", arguments: o.SelectionArguments, as_json: bool) -> int:
    """Accept changes, so that an undo leaves them alone.

    ID is a chat; without it, the newest that works in this project. Nothing in the project changes.
    """
    from treadle.frontends.cli.changes import choose, refuse_unknown_words, tell, tell_begun

    terminal = Terminal()
    choice = await choose(agent, arguments)
    await tell_begun(terminal, choice, as_json)
    outcome = await choice.files.keep(choice.span, choice.paths, choice.hunks)
    if not (outcome.files or outcome.conflicts):
        await refuse_unknown_words(choice, arguments)
    if not (as_json or outcome.files or outcome.conflicts or outcome.error):
        terminal.note(f"chat {choice.chat.id}: nothing to keep", "dim")
    return await tell(terminal, choice, outcome, "kept", as_json, listed=True)
