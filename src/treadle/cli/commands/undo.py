"""`treadle undo`: take back what a run did, shown first and asked for on a terminal; `treadle redo`: take the last undo
back; `treadle keep`: accept what a run did, or parts of it."""

from typing import TYPE_CHECKING, Any, NamedTuple

import click

from treadle.cli.group import in_agent
from treadle.cli.options import (
    EXIT_ERROR,
    EXIT_OK,
    Named,
    even_kept_option,
    gathered,
    hunk_option,
    json_option,
    merge_option,
    run_options,
    words_argument,
)
from treadle.cli.terminal import Terminal, write_json
from treadle.errors import InvalidInput, Refused
from treadle.inert import inert_line

if TYPE_CHECKING:
    from treadle.cli.changes import Chosen
    from treadle.files import Completed
    from treadle.ports.snapshots import Plan
    from treadle.protocol import commands as c
    from treadle.protocol.events import Undone
    from treadle.runtime import Agent


class How(NamedTuple):
    """How to undo what was named; with `to` everything since that message."""

    to: int | None
    conversation: bool
    files: bool
    merge: bool
    preview: bool
    yes: bool
    as_json: bool


@click.command("undo")
@words_argument
@hunk_option
@run_options
@click.option("--to", type=click.IntRange(min=1), metavar="MESSAGE", help="Go back to before this message.")
@click.option("--conversation", is_flag=True, help="With --to only the conversation.")
@click.option("--files", is_flag=True, help="With --to only the files.")
@merge_option
@even_kept_option
@click.option("--preview", "-n", is_flag=True, help="Show the changes without making them.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@json_option("Print the result as one JSON object, and do not ask.")
@gathered(Named, "wanted")
@gathered(How, "how")
def undo(wanted: Named, how: How) -> int:
    """Undo what a run did to the project: everything, files or hunks.

    ID is a chat; without it, the newest that works in this project. PATH limits it to files, or what is below folders.
    A file that was edited since is not touched. Reverse an undo with redo.
    """
    both = how.conversation == how.files
    how = how._replace(conversation=how.conversation or both, files=how.files or both)
    if how.to is not None and (wanted.paths or wanted.hunks or wanted.run is not None or wanted.everything):
        raise InvalidInput("--to goes back to before a message with everything; name no files, hunks or runs with it")
    if how.to is None and not both:
        raise InvalidInput("--conversation and --files belong to --to MESSAGE")
    from treadle.cli.session import with_agent

    return with_agent(lambda agent: _undo(agent, wanted, how))


async def _undo(agent: "Agent", wanted: Named, how: How) -> int:
    from msgspec import to_builtins
    from msgspec.structs import replace

    from treadle.cli.changes import choose, refuse_unknown_words, tell
    from treadle.cli.dialogue import may_go_on
    from treadle.files import RunSpan
    from treadle.ports.snapshots import Plan
    from treadle.presentation.notices import summary

    terminal = Terminal()
    choice = await choose(agent, wanted)
    if how.to is not None:
        await _require_message(choice, how.to)
        choice = replace(choice, span=RunSpan(how.to))
    begun = await _complete(terminal, choice, how.as_json)
    if begun is not None and not how.preview and begun.answers(await _command(choice, how)):
        return await tell(terminal, choice, begun.done, "undone", how.as_json)
    if begun is not None and begun.request.kind == "redo" and how.to is None:
        choice = await choose(agent, wanted)  # the last run may be another now
    plan = await choice.files.preview(choice.span, **_which(choice, how)) if how.files else Plan(())
    if not plan.files and not plan.conflicts:
        await refuse_unknown_words(choice, wanted)
    if not how.as_json:
        _show(terminal, choice, plan, how)
    if how.preview or (not plan.files and how.to is None):
        if how.as_json:
            write_json({"chat": choice.chat.id} | ({"preview": True} if how.preview else {}) | to_builtins(plan))
        return EXIT_ERROR if plan.conflicts else EXIT_OK
    if not await may_go_on(terminal, f"undo {summary(plan.files)}? [y/N] ", asks=not (how.yes or how.as_json)):
        return EXIT_ERROR
    done = await _do(choice, how)
    return EXIT_OK if done is None else await tell(terminal, choice, done, "undone", how.as_json)


def _which(choice: "Chosen", how: How) -> dict[str, Any]:
    return {"paths": choice.paths, "hunks": choice.hunks, "merge": how.merge, "even_kept": choice.even_kept}


async def _command(choice: "Chosen", how: How) -> "c.Restore | c.Rewind":
    """What would be asked for; an undo that was begun and not ended may have been the same."""
    from treadle.protocol import commands as c

    if how.to is not None:
        return c.Rewind(how.to, how.conversation, how.files, merge=how.merge)
    return await choice.files.undoing(choice.span, **_which(choice, how))


async def _complete(terminal: Terminal, choice: "Chosen", as_json: bool) -> "Completed | None":
    from treadle.cli.changes import print_changes, print_conflicts, tell_begun

    await tell_begun(terminal, choice, as_json)
    begun = await choice.files.complete()
    if begun is not None and not as_json:
        print_changes(terminal, begun.done.files)
        print_conflicts(terminal, begun.done.conflicts)
    return begun


async def _do(choice: "Chosen", how: How) -> "Undone | None":
    if how.to is not None:
        return await choice.files.back_to(how.to, conversation=how.conversation, files=how.files, merge=how.merge)
    return await choice.files.undo(choice.span, **_which(choice, how))


async def _require_message(choice: "Chosen", message: int) -> None:
    from treadle.protocol.events import UserMessage

    said = [
        (each.seq, each.data.content)
        for each in await choice.chat.events_of(UserMessage)
        if isinstance(each.data, UserMessage) and each.data.source == "person"
    ]
    if message not in dict(said):
        listed = "; ".join(f"{seq} {inert_line(text, 40)!r}" for seq, text in said[-10:])
        raise Refused("no_such_message", f"no message of yours stands at {message}; they are: {listed}")


def _show(terminal: Terminal, choice: "Chosen", plan: "Plan", how: How) -> None:
    from treadle.cli.changes import print_changes, print_conflicts
    from treadle.ports.snapshots import MERGEABLE
    from treadle.presentation.notices import summary

    print_changes(terminal, plan.files)
    print_conflicts(terminal, plan.conflicts)
    if how.to is not None and how.conversation:
        terminal.note(f"the conversation goes back to before message {how.to}", "dim")
    if not plan.files and not plan.conflicts and how.files:
        terminal.note(f"chat {choice.chat.id}: nothing to undo", "dim")
    elif how.preview:
        terminal.note(f"would undo: {summary(plan.files)}; nothing was changed", "dim")
    if not how.merge and any(each.reason.startswith(MERGEABLE) for each in plan.conflicts):
        terminal.note("   --merge removes the chat's changes from files that were edited since", "dim")


@click.command("redo")
@click.argument("chat", metavar="[ID]", default="")
@merge_option
@json_option("Print the result as one JSON object.")
@in_agent()
async def redo(agent: "Agent", chat: str, merge: bool, as_json: bool) -> int:
    """Reverse an undo.

    ID is a chat; without it, the newest that works in this project. It reverses the last undo.
    """
    from treadle.cli.changes import choose, tell, tell_begun

    terminal = Terminal()
    choice = await choose(agent, Named(only_chat=chat))
    await tell_begun(terminal, choice, as_json)
    return await tell(terminal, choice, await choice.files.redo(merge=merge), "redone", as_json, listed=True)


@click.command("keep")
@words_argument
@hunk_option
@run_options
@json_option("Print the result as one JSON object.")
@gathered(Named, "wanted")
@in_agent()
async def keep(agent: "Agent", wanted: Named, as_json: bool) -> int:
    """Accept changes, so that an undo leaves them alone.

    ID is a chat; without it, the newest that works in this project. Nothing in the project changes.
    """
    from treadle.cli.changes import choose, refuse_unknown_words, tell, tell_begun

    terminal = Terminal()
    choice = await choose(agent, wanted)
    await tell_begun(terminal, choice, as_json)
    done = await choice.files.keep(choice.span, choice.paths, choice.hunks)
    if not (done.files or done.conflicts):
        await refuse_unknown_words(choice, wanted)
    if not (as_json or done.files or done.conflicts or done.error):
        terminal.note(f"chat {choice.chat.id}: nothing to keep", "dim")
    return await tell(terminal, choice, done, "kept", as_json, listed=True)
