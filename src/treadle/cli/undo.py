"""`treadle undo`: take back what a run did. It is shown first; on a terminal somebody is asked."""

import asyncio
import sys

import msgspec

from treadle.cli.changes import Choice, Named, choose, print_changes, print_conflicts, write_json
from treadle.cli.dialogue import read_line, someone_is_there
from treadle.cli.drive import EXIT_ERROR, EXIT_OK
from treadle.cli.inert import inert_line
from treadle.cli.notices import summary
from treadle.cli.session import configured, open_agent
from treadle.cli.terminal import Terminal
from treadle.config import Config
from treadle.errors import InvalidInput, Refused, ToolError
from treadle.files import Completed, Span
from treadle.ports.snapshots import MERGEABLE, Plan
from treadle.protocol import commands as c
from treadle.protocol import wire
from treadle.protocol.events import Envelope, Restored, Undone, UserMessage


class How(msgspec.Struct, frozen=True):
    to: int | None = None
    conversation: bool = True
    files: bool = True
    merge: bool = False
    preview: bool = False
    yes: bool = False


def undo(wanted: Named, how: How, as_json: bool) -> int:
    if how.to is not None and (wanted.paths or wanted.hunks or wanted.run is not None or wanted.everything):
        raise InvalidInput("--to goes back to before a message with everything; name no files, hunks or runs with it")
    if how.to is None and not (how.conversation and how.files):
        raise InvalidInput("--conversation and --files belong to --to MESSAGE")
    return asyncio.run(_undo(configured(), wanted, how, as_json))


async def _undo(config: Config, wanted: Named, how: How, as_json: bool) -> int:
    terminal = Terminal()
    async with open_agent(config) as agent:
        choice = await choose(agent, wanted)
        if how.to is not None:
            await _require_message(choice, how.to)
            choice = msgspec.structs.replace(choice, span=Span(how.to))
        begun = await _complete(terminal, choice, as_json)
        if begun is not None and not how.preview and begun.answers(await _command(choice, how)):
            return tell(terminal, choice, begun.done if as_json else await whole(choice, begun.done), "undone", as_json)
        if begun is not None and begun.request.kind == "redo" and how.to is None:
            choice = await choose(agent, wanted)  # the last run may be another now
        plan = await _preview(choice, how) if how.files else Plan(())
        if not as_json:
            _show(terminal, choice, plan, how)
        if how.preview:
            if as_json:
                write_json({"chat": choice.chat.id, "preview": True} | msgspec.to_builtins(plan))
            return _code(plan)
        if not plan.files and how.to is None:
            if as_json:
                write_json({"chat": choice.chat.id} | msgspec.to_builtins(plan))
            return _code(plan)
        if not (how.yes or as_json) and someone_is_there() and not await _agreed(plan):
            terminal.note("nothing was changed", "dim")
            return EXIT_ERROR
        done = await _do(choice, how)
        if done is None:
            return EXIT_OK
        return tell(terminal, choice, done if as_json else await whole(choice, done), "undone", as_json)


async def _preview(choice: Choice, how: How) -> Plan:
    return await choice.files.preview(
        choice.span, choice.paths, hunks=choice.hunks, merge=how.merge, even_kept=choice.even_kept
    )


async def _command(choice: Choice, how: How) -> c.Restore | c.Rewind:
    """What would be asked for; an undo that was begun and not ended may have been the same."""
    if how.to is not None:
        return c.Rewind(how.to, how.conversation, how.files, merge=how.merge)
    return await choice.files.undoing(
        choice.span, choice.paths, hunks=choice.hunks, merge=how.merge, even_kept=choice.even_kept
    )


async def _complete(terminal: Terminal, choice: Choice, as_json: bool) -> Completed | None:
    await tell_begun(terminal, choice, as_json)
    begun = await choice.files.complete()
    if begun is not None and not as_json:
        print_changes(terminal, begun.done.files)
        print_conflicts(terminal, begun.done.conflicts)
    return begun


async def tell_begun(terminal: Terminal, choice: Choice, as_json: bool) -> None:
    """What somebody began and did not see to its end is completed before anything is looked at."""
    if not as_json and (request := await choice.files.begun()) is not None:
        terminal.note(f"the {request.kind} that was begun before and did not end is completed first", "yellow")


async def _do(choice: Choice, how: How) -> Undone | None:
    if how.to is not None:
        return await choice.files.back_to(how.to, conversation=how.conversation, files=how.files, merge=how.merge)
    return await choice.files.undo(
        choice.span, choice.paths, hunks=choice.hunks, merge=how.merge, even_kept=choice.even_kept
    )


async def _require_message(choice: Choice, message: int) -> None:
    said = [
        (each.seq, each.data.content)
        for each in await choice.chat.events()
        if isinstance(each.data, UserMessage) and each.data.source == "person"
    ]
    if message not in dict(said):
        listed = "; ".join(f"{seq} {inert_line(text, 40)!r}" for seq, text in said[-10:])
        raise Refused("no_such_message", f"no message of yours stands at {message}; they are: {listed}")


def _show(terminal: Terminal, choice: Choice, plan: Plan, how: How) -> None:
    print_changes(terminal, plan.files)
    print_conflicts(terminal, plan.conflicts)
    if how.to is not None and how.conversation:
        terminal.note(f"the conversation goes back to before message {how.to}", "dim")
    if not plan.files and not plan.conflicts and how.files:
        terminal.note(f"chat {choice.chat.id}: nothing to undo", "dim")
    elif how.preview:
        terminal.note(f"would undo: {summary(plan.files)}; nothing was changed", "dim")
    if not how.merge and any(each.reason.startswith(MERGEABLE) for each in plan.conflicts):
        terminal.note("   --merge takes the chat's changes out of files that somebody has changed since", "dim")


async def _agreed(plan: Plan) -> bool:
    sys.stdout.flush()
    sys.stderr.write(f"undo {summary(plan.files)}? [y/N] ")
    sys.stderr.flush()
    return (await read_line() or "")[:1].lower() == "y"


async def whole(choice: Choice, done: Restored) -> Restored:
    """What came of it with all files, however many they are."""
    found = (await choice.chat.whole(Envelope(0, choice.chat.id, 0, done))).data
    assert isinstance(found, Restored)
    return found


def tell(terminal: Terminal, choice: Choice, done: Restored, word: str, as_json: bool) -> int:
    """What came of it, and the exit code."""
    if done.error:
        raise ToolError(done.error)
    if as_json:
        write_json({"chat": choice.chat.id} | wire.whole(done))
        return _code(done)
    back = {"undone": "redo", "redone": "undo"}.get(word, "")
    hint = f" · back: treadle {back} {choice.chat.id}" if back and done.files else ""
    if done.files:
        terminal.note(f"{word}: {summary(done.files)}{hint}", "dim")
    if done.conflicts:
        terminal.note(f"left as it is: {len(done.conflicts)}", "yellow")
    return _code(done)


def _code(done: Restored | Plan) -> int:
    return EXIT_ERROR if done.conflicts else EXIT_OK
