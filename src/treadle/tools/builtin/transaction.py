"""How a command reaches the project (W-08, W-10): on a copy-on-write view, whose effect is committed when it has ended;
or through, with the tree compared before and after. And which command of a call counts, where a lost one was begun anew
(D-02): what ran on a view and was never committed has not happened, so it may.

One decision per call: its effect is committed or discarded, by its name. A worker that has been asleep finds it made.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TypeVar

import msgspec

from treadle.errors import StoreError, ToolError, Unfinished
from treadle.lines.changes import change_lines, total
from treadle.ports.commands import Command, Commands, Ended
from treadle.ports.snapshots import Effect, Snapshots
from treadle.ports.toolset import Invocation, Outcome
from treadle.ports.workspace import inert
from treadle.protocol.events import ModelNotice
from treadle.protocol.files import DiffStat, FileChange, FileConflict, Source, Uncaptured, decode_path
from treadle.protocol.tools import digest
from treadle.tools.builtin.base import in_thread
from treadle.types import CallKey

T = TypeVar("T")
ATTEMPTS = 3
"""How often a command may be begun whose supervisor is lost: it may be the command itself that brings it down."""
RECORDED_BEFORE = (
    "This command was carried out, and its result was recorded in a log that was lost: the database was put back to an "
    "earlier state. Its output is gone, and it was not run again. Look at the files before you go on."
)
MADE_BEFORE = (
    "a command was run as call {call} before, in a log that was lost: the database was put back to an earlier state. "
    "What that command changed in the project was not taken back"
)
_SHOWN = 40
_NOT_MADE = "the command ran, but nothing of what it changed was committed"


class Way(msgspec.Struct, frozen=True):
    """How the command of a call runs: decided before the intent is recorded, and recorded with it."""

    view: bool = False
    network: bool = False
    key: str = ""
    """Of its first attempt."""
    captured: bool = False
    """Whether the tree is compared before and after."""
    own: str = ""
    """The name under which this home knows it: the call's key, with a number behind it if there was a call of this key
    before, in a log that was lost (a database that was put back)."""


class Reached(msgspec.Struct, frozen=True):
    """What became of the project, as the call's outcome tells it."""

    lines: tuple[str, ...] = ()
    success: bool = True
    files: tuple[FileChange, ...] = ()
    source: Source = "direct"
    uncaptured: tuple[Uncaptured, ...] = ()
    conflicts: tuple[FileConflict, ...] = ()
    git: str = ""

    @property
    def stat(self) -> DiffStat | None:
        stat = total(self.files)
        return stat if stat.added or stat.removed else None


class Tried(msgspec.Struct, frozen=True):
    """What a command did on a view, of which nothing is committed yet."""

    ended: Ended
    output: str
    effect: Effect
    shown: str
    """The effect for people."""
    notes: tuple[str, ...] = ()

    @property
    def empty(self) -> bool:
        return not self.effect.files and not self.effect.uncaptured


def way_of(invocation: Invocation) -> Way:
    """As it was recorded. Calls of earlier versions wrote through, and nothing was compared."""
    plan = invocation.plan or {}
    known = {name: plan[name] for name in Way.__struct_fields__ if name in plan}
    return Way(**{"key": str(own_of(invocation)), **known})


def own_of(invocation: Invocation) -> CallKey:
    return CallKey((invocation.plan or {}).get("own") or invocation.call)


def name_of(invocation: Invocation, call: str = "") -> str:
    """The name of a call's effect."""
    return f"{invocation.chat}/{call or own_of(invocation)}"


def rehearsal_key(invocation: Invocation) -> str:
    """Of the command that is tried before it is allowed. Whoever allows it may edit it: then it is another one."""
    return f"{own_of(invocation)}~{digest(invocation.arguments)[:12]}"


def before_of(invocation: Invocation) -> tuple[str, ...]:
    """What the model must know of a call that had another one before it."""
    return () if own_of(invocation) == invocation.call else (f"[{MADE_BEFORE.format(call=invocation.call)}]",)


def facts_of(invocation: Invocation) -> tuple[ModelNotice, ...]:
    """The same for people."""
    return tuple(ModelNotice("log_put_back", text[1:-1]) for text in before_of(invocation))


# -- attempts ---------------------------------------------------------------------------------------------------------


class Attempt(msgspec.Struct, frozen=True):
    key: CallKey
    command: Command | None
    number: int = 1


async def newest(commands: Commands, invocation: Invocation, way: Way) -> Attempt:
    """The command that counts: the last that was begun. `command` is None if none was."""
    key = way.key
    found = Attempt(_nth(key, 1), None)
    for number in range(1, ATTEMPTS + 1):
        command = await commands.find(invocation.chat, _nth(key, number))
        if command is None:
            break
        found = Attempt(_nth(key, number), command, number)
    return found


async def current(commands: Commands, invocation: Invocation, way: Way) -> Attempt:
    """The command to follow, or the key under which to start one: after one that was lost, if it can have done nothing
    but to its view."""
    found = await newest(commands, invocation, way)
    if not way.view or way.network or found.command is None or found.number == ATTEMPTS:
        return found
    if not await is_lost(found.command):
        return found
    return Attempt(_nth(way.key, found.number + 1), None, found.number + 1)


async def is_lost(command: Command) -> bool:
    """Whether nobody will ever know how it ended, or what it wrote may be there only in part."""
    ended = await command.wait(0)
    return not command.present or (ended is not None and ended.ending == "lost")


async def forgotten(commands: Commands, invocation: Invocation, way: Way) -> bool:
    """Whether the command of a call that has no result came to its end and was let go of, which is done only when the
    result is recorded: so the log was put back to before that."""
    found = await newest(commands, invocation, way)
    ended = await found.command.wait(0) if found.command is not None else None
    if ended is None or ended.ending not in ("exited", "timed_out"):
        return False
    return all(known.call != found.key for known in await commands.known(invocation.chat))


async def prevent(commands: Commands, invocation: Invocation, way: Way) -> None:
    """No command of this call runs, and none will."""
    for key in dict.fromkeys((way.key, own_of(invocation), rehearsal_key(invocation))):
        found = await newest(commands, invocation, Way(key=key))
        for number in range(1, min(found.number + (found.command is not None), ATTEMPTS) + 1):
            if key == way.key or found.command is not None:
                await commands.prevent(invocation.chat, _nth(key, number))


def _nth(key: str, number: int) -> CallKey:
    return CallKey(key if number == 1 else f"{key}~{number}")


# -- what becomes of the project --------------------------------------------------------------------------------------


async def commit(snapshots: Snapshots, invocation: Invocation, view: str) -> Reached:
    """Make the effect of the view the project's own."""
    name = name_of(invocation)
    try:
        effect = await _decided(snapshots, invocation, lambda: snapshots.commit(name, view))
    except ToolError as error:
        if await in_thread(snapshots.decided, name):  # by somebody else, long ago
            raise StoreError(str(error)) from error
        with suppress(ToolError):
            await in_thread(snapshots.discard, name)
        return Reached((f"[{_NOT_MADE}: {error}]",), success=False, source="view")
    if effect.conflicts:
        return await in_thread(_refused, snapshots, view, effect)
    return reached(effect, "view")


async def discard(snapshots: Snapshots, invocation: Invocation) -> Reached:
    """See to it that nothing is committed; what was decided before stays."""
    effect = await _decided(snapshots, invocation, lambda: snapshots.discard(name_of(invocation)))
    return Reached(source="view") if effect is None else reached(effect, "view")


async def _decided(snapshots: Snapshots, invocation: Invocation, carry_out: Callable[[], T]) -> T:
    """Carry out what is decided about the effect of a call, whatever strikes on the way: completed or taken back, now
    or by whoever takes the chat up next (Unfinished). ToolError: nothing was changed, and nothing is decided."""
    name = name_of(invocation)
    try:
        return await in_thread(carry_out)
    except ToolError:
        if not await in_thread(snapshots.begun, name):
            raise
    try:
        return await in_thread(carry_out)
    except ToolError as error:
        if not await in_thread(snapshots.begun, name):
            raise
        raise Unfinished(
            f"What the command changed could not be committed entirely: {error} It is completed when the chat is taken "
            "up again."
        ) from error


async def compare(snapshots: Snapshots, invocation: Invocation, source: Source = "direct", call: str = "") -> Reached:
    """What changed since before the command began."""
    name = name_of(invocation, call)
    try:
        try:
            effect = await in_thread(snapshots.compare, name)
        except ToolError:  # somebody may have changed what was looked at
            effect = await in_thread(snapshots.compare, name)
    except ToolError as error:
        return Reached((f"[what it changed in the project could not be found out: {error}]",), source=source)
    return reached(effect, source)


def reached(effect: Effect, source: Source) -> Reached:
    if effect.conflicts:  # it was decided that nothing is committed
        return Reached(success=False, source=source, conflicts=effect.conflicts)
    lines = change_lines(effect.files, shown, _SHOWN)
    if lines:
        lines.insert(0, "[changed in the project]")
    if source == "view":
        lines += [f"[not committed: {shown(each.path)}: {each.reason}]" for each in effect.uncaptured[:_SHOWN]]
    return Reached(tuple(lines), True, effect.files, source, effect.uncaptured, git=effect.git)


def _refused(snapshots: Snapshots, view: str, effect: Effect) -> Reached:
    try:
        would = snapshots.diff(view, effect)
    except ToolError:
        would = "\n".join(f"[conflict: {shown(each.path)}: {each.reason}]" for each in effect.conflicts[:_SHOWN])
    lines = (
        f"[{_NOT_MADE}, because somebody else changed the same files meanwhile: look at them, and run it again if it "
        "is still wanted. What it would have changed:]",
        would,
    )
    return Reached(lines, success=False, source="view", conflicts=effect.conflicts)


def outcome_of(reached: Reached, text: str = "", *, success: bool = True) -> Outcome | None:
    """Of a call that has no other result, such as one that was stopped; None if nothing became of the project."""
    if not reached.files and not reached.uncaptured:
        return None
    return Outcome(
        text,
        success=success,
        files=reached.files,
        source=reached.source,
        uncaptured=reached.uncaptured,
        git=reached.git,
        diff_stat=reached.stat,
        effect="view" if reached.source == "view" else "direct",
    )


def shown(path: str) -> str:
    return inert(decode_path(path))


def last_lines(text: str, most: int = 20) -> Sequence[str]:
    """The end of an output, for a card that shows more than it."""
    lines = text.split("\n")
    return lines if len(lines) <= most else [f"[{len(lines) - most:,} lines before]", *lines[-most:]]
