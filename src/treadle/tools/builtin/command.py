"""run_command: a shell command in the project, its output live and bounded (T-05). It starts a supervised command, or
takes up the one that this call has already: after a crash the real output and exit code are collected, and nothing runs
twice (D-02)."""

import itertools
from typing import Any

import msgspec
from msgspec.structs import replace

from treadle.errors import ToolError
from treadle.faultpoint import faultpoint
from treadle.ports.commands import Command, Commands, Ended
from treadle.ports.snapshots import Snapshots
from treadle.ports.toolset import Invocation, Outcome, Rehearsal, Settlement
from treadle.protocol.files import Source
from treadle.protocol.tools import ToolSpec
from treadle.tools.builtin import background
from treadle.tools.builtin.base import in_thread, parameters
from treadle.tools.builtin.capture import HEAD_LINES, TAIL_LINES
from treadle.tools.builtin.context import ToolContext
from treadle.tools.builtin.output import view
from treadle.tools.builtin.process import (
    DEFAULT_TIMEOUT_S,
    MAX_TIMEOUT_S,
    Place,
    follow,
    job_of,
    level,
    place_of,
    refuse_outside,
    sandbox_of,
    tidy,
)
from treadle.tools.builtin.result import collect, ending, sandbox_in
from treadle.tools.builtin.transaction import (
    ATTEMPTS,
    RECORDED_BEFORE,
    Attempt,
    Reached,
    Tried,
    Way,
    before_of,
    commit,
    compare,
    current,
    discard,
    facts_of,
    forgotten,
    is_lost,
    last_lines,
    name_of,
    newest,
    outcome_of,
    own_of,
    prevent,
    rehearsal_key,
    way_of,
)
from treadle.types import CallKey

_NO_COMMANDS = "This Treadle runs no commands."


class RunCommand:
    spec = ToolSpec(
        name="run_command",
        description=(
            "Run a shell command (bash) in the project: pipes, redirections and && work. Output and errors come "
            f"merged, with the exit code; of long output the first {HEAD_LINES} and the last {TAIL_LINES} lines, and a "
            "handle for read_output. The working directory and exported variables carry over to the next command. "
            "There is no input: use flags that answer questions. Everything it starts is stopped when it ends or "
            f"after timeout_s seconds ({DEFAULT_TIMEOUT_S}, at most {MAX_TIMEOUT_S}). For servers and interactive "
            "programs use background: it returns at once with a handle for check_command, send_input and stop_command."
        ),
        parameters=parameters(
            required=("command",),
            command={"type": "string", "minLength": 1},
            timeout_s={"type": "number", "exclusiveMinimum": 0, "maximum": MAX_TIMEOUT_S, "default": DEFAULT_TIMEOUT_S},
            cwd={
                "type": "string",
                "description": "Where to run it, relative to the project root; else where the last command ended.",
            },
            background={"type": "boolean", "default": False, "description": "Start it and return at once."},
            pty={"type": "boolean", "default": False, "description": "Give it a terminal."},
            fresh={
                "type": "boolean",
                "default": False,
                "description": "Start in the root with a fresh environment, and leave the shell as it was.",
            },
        ),
        timeout_s=MAX_TIMEOUT_S + 60.0,  # its own limit comes first, and then it tidies up
        summary_argument="command",
    )

    def __init__(self, context: ToolContext) -> None:
        self._context = context

    async def prepare(self, invocation: Invocation) -> dict[str, Any] | None:
        commands = self._commands()
        if "\0" in str(invocation.arguments["command"]):
            raise ToolError("The command contains a NUL character, which no shell takes.")
        place = await place_of(self._context, invocation)
        sandbox = await sandbox_of(self._context, invocation)
        refuse_outside(self._context, invocation, sandbox, place)
        way = await self._way(await self._named(invocation))
        here = {"place": await in_thread(lambda: commands.place), "sandbox": level(sandbox, way.network)}
        return here | msgspec.structs.asdict(way)

    async def run(self, invocation: Invocation) -> Outcome:
        commands = self._commands()
        way = await self._way(invocation) if invocation.plan is None else way_of(invocation)
        place = await place_of(self._context, invocation)
        place = replace(place, notes=(*place.notes, *before_of(invocation)))
        attempt = await self._attempt(invocation, way)
        if attempt.command is None and await self._decided(invocation, way):
            return await self._completed(invocation)
        command = attempt.command or await self._start(commands, invocation, place, way, attempt.key)
        faultpoint("tool.command_started")
        if invocation.arguments.get("background"):
            begun = await background.begun(command, invocation, place.notes, sandbox_in(invocation))
            return replace(begun, facts=(*begun.facts, *facts_of(invocation)))
        ended = await follow(command, invocation.emit)
        faultpoint("tool.command_ended")
        reached = await self._reach(command, ended, invocation, way)
        faultpoint("tool.command_reached")
        outcome = await collect(self._context, command, ended, invocation, place, way, reached)
        return replace(outcome, facts=(*outcome.facts, *facts_of(invocation)))

    async def preview(self, invocation: Invocation) -> str:
        return ""

    async def rehearse(self, invocation: Invocation) -> Rehearsal | None:
        tried = await self.tried(invocation)
        if tried is None:
            return None
        last = ending(tried.ended, invocation, Way(view=True))[1]
        body = [*tried.notes, *(last_lines(tried.output) if tried.ended.size else []), last]
        return Rehearsal("\n".join([*body, "", tried.shown]), tried.empty)

    async def tried(self, invocation: Invocation, *, network: bool = False) -> Tried | None:
        """The command carried out on a view, as it will be committed if it is allowed; None where no view works. Its
        key depends on its words: if whoever allows it changes them, it is another command, and runs when its turn
        comes."""
        commands, snapshots = self._commands(), self._snapshots(invocation)
        if snapshots is None or not await self._on_view(invocation):
            return None
        invocation = await self._named(invocation)
        way = Way(view=True, network=network, key=rehearsal_key(invocation))
        place = await place_of(self._context, invocation)
        attempt = await current(commands, invocation, way)
        command = attempt.command or await self._start(commands, invocation, place, way, attempt.key)
        ended = await follow(command, invocation.emit)
        faultpoint("tool.command_rehearsed")
        if ended.ending not in ("exited", "timed_out"):
            why = ended.error or ending(ended, invocation, way)[0]
            raise ToolError(f"The command could not be tried on a copy of the project: {why}.")
        output = await in_thread(view, command, ended)
        folder = commands.view(invocation.chat, attempt.key)
        effect = await in_thread(snapshots.effect, folder)
        return Tried(ended, output.text, effect, await in_thread(snapshots.diff, folder, effect), place.notes)

    async def stop(self, invocation: Invocation) -> Outcome | None:
        if self._context.commands is None:
            return None
        way = way_of(invocation)
        await prevent(self._context.commands, invocation, way)
        snapshots = self._snapshots(invocation)
        if snapshots is None or not (way.view or way.captured):
            return None
        faultpoint("tool.command_stopped")
        if way.view:
            return outcome_of(await discard(snapshots, invocation))
        source: Source = "observed" if invocation.arguments.get("background") else "direct"
        await tidy(self._context, invocation)
        return outcome_of(await compare(snapshots, invocation, source))

    async def settle(self, invocation: Invocation) -> Settlement:
        """What was started here and is not lost is taken up; what was not started here may be started. What was
        started on another machine, or before a power cut, is taken up only if its end is safe on this disk. What ran on
        a view without network has done nothing before it is decided that it is committed, so it may run again."""
        commands, way = self._commands(), way_of(invocation)
        if await forgotten(commands, invocation, way):
            return Outcome(RECORDED_BEFORE, "carried out before; its result is lost", success=False, effect="direct")
        if way.view:
            return await self._settle_view(commands, invocation, way)
        command = await commands.find(invocation.chat, own_of(invocation))
        if (invocation.plan or {}).get("place") != await in_thread(lambda: commands.place):
            return "run_again" if command is not None and command.durable else "unknown"
        ended = await command.wait(0) if command is not None else None
        return "unknown" if ended is not None and ended.ending == "lost" else "run_again"

    async def _settle_view(self, commands: Commands, invocation: Invocation, way: Way) -> Settlement:
        snapshots = self._snapshots(invocation)
        then, here = str((invocation.plan or {}).get("place", "")), await in_thread(lambda: commands.place)
        if snapshots is None or then.rpartition(":")[2] != here.rpartition(":")[2]:
            return "unknown"
        if await in_thread(snapshots.decided, name_of(invocation)):
            return "run_again"
        found = await newest(commands, invocation, way)
        if found.command is None:  # after a power cut, that it was started may have been forgotten
            return "run_again" if then == here or not way.network else "unknown"
        if not await is_lost(found.command):
            return "run_again"
        return "unknown" if way.network or found.number == ATTEMPTS else "run_again"

    # -- the way to the project ---------------------------------------------------------------------------------

    def _snapshots(self, invocation: Invocation) -> Snapshots | None:
        snapshots_of = self._context.snapshots_of
        return snapshots_of(*invocation.project) if snapshots_of and invocation.root else None

    async def _on_view(self, invocation: Invocation) -> bool:
        arguments, options = invocation.arguments, invocation.options
        if arguments.get("background") or arguments.get("pty") or not options.command_view:
            return False
        sandbox = await sandbox_of(self._context, invocation)
        if sandbox is None or self._context.snapshots_of is None or not sandbox.views:
            return False
        return await in_thread(self._context.views, sandbox, invocation.root)

    async def _way(self, invocation: Invocation) -> Way:
        network, key = invocation.options.network, own_of(invocation)
        on_view = await self._on_view(invocation)
        if on_view:
            tried = (await newest(self._commands(), invocation, Way(key=rehearsal_key(invocation)))).command
            if tried is not None and not await is_lost(tried):
                network, key = False, CallKey(rehearsal_key(invocation))
        captured = not on_view and self._snapshots(invocation) is not None
        return Way(on_view, network, key, captured, own_of(invocation))

    async def _named(self, invocation: Invocation) -> Invocation:
        """A call that is about to begin, under a name of its own: whatever this home knows under that of its key was
        begun before, in a log that was lost. It stays where it is."""
        commands, snapshots = self._commands(), self._snapshots(invocation)
        for number in itertools.count():
            own = CallKey(f"{invocation.call}-{number}" if number else invocation.call)
            named = replace(invocation, plan={"own": own})
            taken = await in_thread(commands.taken, invocation.chat, own)
            if not taken and (snapshots is None or not await in_thread(snapshots.decided, name_of(named))):
                return named
        raise AssertionError("unreachable")

    async def _attempt(self, invocation: Invocation, way: Way) -> Attempt:
        """What to follow. What is decided is completed, and its command is not run again."""
        find = newest if await self._decided(invocation, way) else current
        return await find(self._commands(), invocation, way)

    async def _decided(self, invocation: Invocation, way: Way) -> bool:
        snapshots = self._snapshots(invocation)
        return way.view and snapshots is not None and await in_thread(snapshots.decided, name_of(invocation))

    async def _completed(self, invocation: Invocation) -> Outcome:
        """It was decided what becomes of the project, and all else that was known of the command is gone."""
        snapshots = self._snapshots(invocation)
        assert snapshots is not None
        done = await discard(snapshots, invocation)
        text = "\n".join(("(its output is gone)", *done.lines))
        return outcome_of(done, text, success=False) or Outcome(text, success=False, effect="view")

    async def _start(self, commands: Commands, invocation: Invocation, place: Place, way: Way, key: CallKey) -> Command:
        snapshots = self._snapshots(invocation)
        await background.make_room(commands, invocation, snapshots)
        await tidy(self._context, invocation)
        sandbox = await sandbox_of(self._context, invocation)
        if way.captured and snapshots is not None:
            await in_thread(snapshots.capture, name_of(invocation))
            faultpoint("tool.command_captured")
        folder = commands.view(invocation.chat, key) if way.view else ""
        job = job_of(self._context, invocation, sandbox, place, way.network, folder)
        return await commands.start(invocation.chat, key, job)

    async def _reach(self, command: Command, ended: Ended, invocation: Invocation, way: Way) -> Reached:
        """What becomes of the project. A command that failed or took too long has done what it has done; one that
        somebody stopped, or whose end nobody knows, has done nothing."""
        snapshots = self._snapshots(invocation)
        if snapshots is None or ended.ending == "failed" or not (way.view or way.captured):
            return Reached()
        if not way.view:
            await tidy(self._context, invocation)
            return await compare(snapshots, invocation)
        if ended.ending in ("exited", "timed_out"):
            return await commit(snapshots, invocation, f"{command.folder}/view")
        if ended.ending == "lost":  # and it is not begun anew behind our back
            await prevent(self._commands(), invocation, way)
        return await discard(snapshots, invocation)

    def _commands(self) -> Commands:
        if self._context.commands is None:
            raise ToolError(_NO_COMMANDS)
        return self._context.commands
