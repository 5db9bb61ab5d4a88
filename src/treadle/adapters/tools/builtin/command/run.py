"""The command of one call: planned, started, followed, collected, settled and stopped. It starts a supervised command,
or takes up the one that this call has already: after a crash the real output and exit code are collected, and nothing
runs twice (D-02). A command on a view that was never committed has had no effect, so it may be begun anew."""

import asyncio
import itertools
import os

import msgspec
from msgspec.structs import replace

from treadle.adapters.tools.builtin.base import ToolContext, run_in_thread, wait_for_end
from treadle.adapters.tools.builtin.command import output
from treadle.adapters.tools.builtin.command.background import make_room, report_start
from treadle.adapters.tools.builtin.command.network import (
    describe_network_need,
    find_wanted_hosts,
    format_hosts,
    read_reached_hosts,
)
from treadle.adapters.tools.builtin.command.project import CommandProject, ProjectChange, make_folder_changes
from treadle.adapters.tools.builtin.command.request import CommandPlan, CommandRequest
from treadle.adapters.tools.builtin.command.setup import CommandSetup
from treadle.base.file_system import reach_faultpoint
from treadle.base.host_patterns import describe_network
from treadle.base.types import CallKey
from treadle.diff.changes import count, sort_out
from treadle.errors import ToolError, TrialLost
from treadle.ports.commands import Command, CommandExit
from treadle.ports.toolset import Fact, Outcome, Rehearsal, Settlement
from treadle.ports.workspace import escape_name
from treadle.protocol.events import JobStarted, ModelNotice

RECORDED_BEFORE = (
    "This command was carried out, and its result was recorded in a log that was lost: the database was put back to an "
    "earlier state. Its output is gone, and it was not run again. Look at the files before you go on."
)
MADE_BEFORE = (
    "a command was run as call {call} before, in a log that was lost: the database was put back to an earlier state. "
    "What that command changed in the project was not taken back"
)
TRIAL_LOST = (
    "The worker was lost while this command was tried on a copy of the project. Nothing of what it changed there was "
    "committed; but it could use the network, what it did there is not known, and it was not run again. Look at the "
    "current state before you go on."
)
ATTEMPTS = 3  # starts of a command whose supervisor is lost: the command itself may bring it down
DONE = ("exited", "timed_out")  # Endings of commands that have done what they have done
_SHOWN_SECRETS = 5
_LIVE_EVERY_S = 0.05
_LIVE_SELDOM_S = 0.25


class CommandAttempt(msgspec.Struct, frozen=True):
    """An attempt of a command: one whose supervisor was lost may be begun anew, under a key of its own."""

    first: str  # The key of the first attempt
    number: int = 1
    command: Command | None = None

    @property
    def key(self) -> CallKey:
        return CallKey(self.first if self.number == 1 else f"{self.first}~{self.number}")

    @property
    def next(self) -> "CommandAttempt":
        return CommandAttempt(self.first, self.number + 1)

    async def is_lost(self) -> bool:
        """True if the end of the command cannot become known, or its output may be incomplete."""
        if self.command is None:
            return False
        command_exit = await self.command.wait(0)
        return not self.command.present or (command_exit is not None and command_exit.ending == "lost")


class CommandRun:
    """`plan` is what the intent recorded. Cancelling stops the watching, not the command."""

    _place: str  # Where it is planned, known once it was examined
    command: Command
    command_exit: CommandExit
    change: ProjectChange

    def __init__(self, context: ToolContext, request: CommandRequest) -> None:
        if context.commands is None:
            raise ToolError("This Treadle runs no commands.")
        self._context = context
        self._commands = context.commands
        self._request = request
        self._setup = CommandSetup(context, request)
        self._adopt(request.planned)

    def _adopt(self, plan: CommandPlan) -> None:
        self.plan = plan
        request = self._request
        name = f"{request.chat}/{plan.own}"
        self._project = CommandProject(self._context, name, request.project, request.options, request.changed_paths)

    # -- before the intent ----------------------------------------------------------------------------------------
    async def prepare(self) -> CommandPlan:
        await self._examine()
        await self._claim_name()
        await self._choose_plan()
        if self._request.discard and not self.plan.view:
            raise ToolError("Not run: no copy-on-write view can be had for it any more. Try again.")
        if self._request.discard and self.plan.made:
            raise ToolError(f"Not run: no folder can be made for it, because {self._request.discard}.")
        return replace(await self._complete_plan(self.plan), discard=self._request.discard)

    async def _complete_plan(self, plan: CommandPlan) -> CommandPlan:
        is_confined, sandbox = await self._setup.is_confined(), await self._setup.get_sandbox()
        level = f"{sandbox.level}, {describe_network(plan.network)}" if sandbox is not None and is_confined else "none"
        return replace(plan, place=self._place, sandbox=level)

    async def _examine(self) -> None:
        if "\0" in self._request.line:
            raise ToolError("The command contains a NUL character, which no shell takes.")
        if self._request.live and not self._request.background:
            raise ToolError("live is for background commands: set background too, or leave live out.")
        if self._request.writes and not self._request.live:
            raise ToolError("writes goes with live: without it a command may write anywhere on its view.")
        await run_in_thread(self._setup.locate)
        self._place = await self._get_place()
        await self._setup.refuse_outside()
        if await self._setup.is_confined() and output.is_branch_rename(self._request.line):
            raise ToolError(output.RENAMES_BRANCH)

    async def _claim_name(self) -> None:
        """Claim a name. A command under the call's key is of a lost log, and stays. A tried command has its name."""
        if self._request.trial is not None:
            return
        call = self._request.call
        for number in itertools.count():
            own_key = CallKey(f"{call}-{number}" if number else call)
            self._adopt(CommandPlan(key=own_key, own=own_key))
            is_used = await run_in_thread(self._commands.is_key_used, self._request.chat, own_key)
            if not is_used and not await run_in_thread(self._project.is_decided):
                return

    async def _choose_plan(self) -> None:
        own_key = self.plan.own
        background = self._request.background
        network = await self._setup.choose_network(rehearsal=background)  # no person has seen the effect of a job yet
        can_view = await self._setup.can_view()
        captured = not can_view and self._project.has_snapshots
        self.plan = CommandPlan(view=can_view, network=network, key=own_key, captured=captured, own=own_key)
        if background and can_view:
            self.plan = await self._add_layers(self.plan)
        if background or not can_view:
            return
        trial_plan = self._fitting_trial or replace(
            self.plan,
            key=self._request.make_dry_key(self.plan.own),
            network=await self._setup.choose_network(rehearsal=True),
        )
        newest = await self._find_newest(trial_plan.key)
        if self._fitting_trial is not None:
            await self._refuse_repetition(trial_plan, newest)
        if newest.command is not None and not await newest.is_lost():
            self.plan = replace(self.plan, network=trial_plan.network, key=trial_plan.key)

    async def _add_layers(self, plan: CommandPlan) -> CommandPlan:
        request = self._request
        if not request.live:
            return plan
        if request.project.world:
            raise ToolError("Not run: in a world no command can be live. Leave live out: then it works on a view.")
        folders = await run_in_thread(self._project.choose_writable_folders, request.writes)
        return replace(plan, live=True, layers=folders.layers, made=folders.new, read_only=folders.read_only)

    @property
    def _fitting_trial(self) -> CommandPlan | None:
        trial, trial_plan = self._request.trial, self._request.trial_plan
        if trial is None or trial_plan is None:
            return None
        return trial_plan if trial.open or trial_plan.key == self._request.make_dry_key(self.plan.own) else None

    async def _refuse_repetition(self, trial_plan: CommandPlan, attempt: CommandAttempt) -> None:
        """A tried command with network is not started again: it is taken up, or its effects are unknown (D-02)."""
        if not trial_plan.network:
            return
        if attempt.command is None:
            if trial_plan.place != await self._get_place():
                raise TrialLost(TRIAL_LOST)
            return  # recorded here, and never begun
        command_exit = await attempt.command.wait(0)
        if await attempt.is_lost() or (command_exit is not None and command_exit.ending == "stopped"):
            raise TrialLost(TRIAL_LOST)

    # -- from its start to its outcome ----------------------------------------------------------------------------
    async def run_to_outcome(self) -> Outcome:
        """Start it or take it up, see it to its end, and report. If only the decision is left, it is not run."""
        if self._request.plan is None:
            await self._choose_plan()
        await run_in_thread(self._setup.locate)
        attempt = await (self._find_newest(self.plan.key) if await self._is_decided() else self._choose_attempt())
        if attempt.command is None and await self._is_decided():
            change = await self._project.discard()
            text = "\n".join(("(its output is gone)", *change.lines))
            return change.add_to(Outcome(text, success=False, effect="view"))
        self.command = attempt.command or await self._begin(attempt.key)
        reach_faultpoint("tool.command_started")
        if self._request.background:
            return await self._build_background_outcome()
        await self._follow()
        reach_faultpoint("tool.command_ended")
        await self._reach()
        reach_faultpoint("tool.command_reached")
        return await self._collect()

    async def _begin(self, key: CallKey) -> Command:
        await make_room(self._context, self._request)
        await self._project.tidy()
        if self.plan.captured and self._project.has_snapshots:
            await self._project.capture()
            reach_faultpoint("tool.command_captured")
        view = self._commands.locate_view(self._request.chat, key) if self.plan.view else ""
        if self.plan.made:
            await self._project.make_folders(self.plan.made)
            reach_faultpoint("tool.folders_made")
        spec = await run_in_thread(
            self._setup.build_spec, self.plan, view, self._commands.locate_network_log(self._request.chat, key)
        )
        return await self._commands.start(self._request.chat, key, spec)

    async def _build_background_outcome(self) -> Outcome:
        text, summary, success = await report_start(self._context, self.command, self.plan.own)
        layer_note = (
            "[the project has more ignored folders than can be made writable: the command cannot write to "
            f"{self.plan.read_only:,} of them. Name those that it needs in writes]"
        )
        notes = [*self._setup.notes, *(f"[{notice.text}]" for notice in self._log_notices)]
        text = "\n".join((*notes, *([layer_note] if self.plan.read_only else []), text))
        job = JobStarted(
            self.plan.own, self._request.title, self.plan.place or await self._get_place(), os.uname().nodename
        )
        facts: tuple[Fact, ...] = (job, *self._log_notices)
        hosts = await self._read_reached_hosts()
        files = make_folder_changes(self.plan.made)
        outcome = Outcome(text, summary, success, sandbox=self.plan.sandbox, facts=facts, hosts=hosts, files=files)
        return replace(outcome, effect="view" if self.plan.view else "direct")

    async def _follow(self) -> None:
        live = output.LiveOutput(self.command, self._request.emit)
        waiting = asyncio.ensure_future(self.command.wait())
        pause = _LIVE_EVERY_S
        try:
            while not waiting.done():
                await asyncio.wait({waiting}, timeout=pause)
                pause = _LIVE_EVERY_S if live.show(last=waiting.done()) else min(pause * 1.5, _LIVE_SELDOM_S)
            command_exit = waiting.result()
            assert command_exit is not None  # there was no time limit
            self.command_exit = command_exit
        finally:
            waiting.cancel()
            await wait_for_end(waiting)

    async def _reach(self) -> None:
        """Decide what becomes of the project: changes are kept unless it was stopped, or its end is unknown."""
        plan, ending = self.plan, self.command_exit.ending
        if ending == "failed" or not self._project.has_snapshots or not (plan.view or plan.captured):
            self.change = ProjectChange()
        elif not plan.view:
            self.change = await self._project.compare(gated=True)
        elif ending in DONE:
            view = f"{self.command.folder}/view"
            if plan.discard:
                self.change = await self._project.dismiss(view, plan.discard)
            elif objection := await self._find_objection(view):  # that it changed something says nothing about a check
                self.change = replace(await self._project.dismiss(view, objection), success=True)
            else:
                self.change = await self._project.commit(view)
        else:
            if ending == "lost":  # and it is not begun anew behind our back
                await self._prevent()
            self.change = await self._project.discard()

    async def _find_objection(self, view: str) -> str:
        """Why this effect is not committed, if it is judged only now; empty if it is, or was decided before."""
        judge = self._request.judge
        if judge is None or await self._is_decided() or not (effect := await self._project.compute_effect(view)).files:
            return ""
        unrecoverable = await self._project.find_unrecoverable(effect)
        return await judge(Rehearsal("", effect.files, effect.uncaptured, unrecoverable, history=effect.history))

    async def _collect(self) -> Outcome:
        command_exit, change = self.command_exit, self.change
        if command_exit.ending == "failed":
            raise ToolError(f"The command could not be started: {command_exit.error}.")
        notice = await run_in_thread(self._context.notice, self._request.project.root, self._request.options)
        output_view = await run_in_thread(output.build_output_view, self.command, command_exit, self._context.redact)
        leftovers = await run_in_thread(lambda: self._setup.read_shell_end(self.command.read_shell_state(), self.plan))
        needs = describe_network_need(await self._find_wanted_hosts(output_view.text))
        hosts = await self._read_reached_hosts()
        kept_parts, redact = output.iterate_parts(self.command), self._context.redact
        kept_parts = kept_parts if redact is str else output.redact_secrets(kept_parts, redact)
        blob = "" if output_view.exact else await self._context.blobs.put_blob_parts(kept_parts)
        reach_faultpoint("command.collected")
        summary, last = self._request.describe_ending(command_exit, self.plan)
        changes = len(sort_out(change.files).reported_files)
        lost_output = f"[some output could not be kept: {command_exit.error}]"
        lines = (
            *self._setup.notes,
            *self._request.list_network_notes(self.plan),
            *(f"[{notice.text}]" for notice in self._log_notices),
            output_view.text if command_exit.size else "(no output)",
            *output.format_stopped_lines(leftovers.stopped, left_behind=command_exit.left_behind),
            *([lost_output] if command_exit.error and not command_exit.exceeded else []),
            *leftovers.notes,
            *([hint] if self.plan.view and (hint := output.find_rename_hint(output_view.text)) else []),
            *([hint] if (hint := output.find_settings_hint(output_view.text)) else []),
            *([output.format_handle_line(command_exit, self._request.call)] if output_view.is_shortened else []),
            *change.lines,
            *await self._list_secret_notes(),
            *([f"[{needs}]"] if needs else []),
            last,
        )
        outcome = Outcome(
            "\n".join(lines),
            ", ".join([summary, count(command_exit.lines, "line"), *([count(changes, "change")] if changes else [])])
            + "".join(f"; {note}" for note in (format_hosts(hosts), needs) if note),
            self._has_succeeded and change.success,
            effect="view" if self.plan.view else "direct",
            output=blob,
            sandbox=self.plan.sandbox,
            shell=leftovers.shell,
            hosts=hosts,
            facts=(*(() if notice is None else (notice,)), *self._log_notices),
        )
        return change.add_to(outcome)

    async def _list_secret_notes(self) -> tuple[str, ...]:
        """A command that failed may have needed a file that was hidden from it."""
        if self._has_succeeded or not (secrets := await run_in_thread(self._setup.list_hidden_secrets)):
            return ()
        path_list = ", ".join(escape_name(path) for path in secrets[:_SHOWN_SECRETS])
        return (
            f"[empty for this command, because they may hold secrets: {path_list}. If one is needed, call read_file "
            "with its path, which asks the person; do not write it anew]",
        )

    async def _find_wanted_hosts(self, text: str) -> tuple[str, ...]:
        log = f"{self.command.folder}/network"
        return () if self._has_succeeded else await run_in_thread(find_wanted_hosts, text, log, self.plan.network)

    async def _read_reached_hosts(self) -> tuple[str, ...]:
        if isinstance(self.plan.network, bool):  # no proxy, and so no log to read
            return read_reached_hosts("", self.plan.network)
        return await run_in_thread(read_reached_hosts, f"{self.command.folder}/network", self.plan.network)

    @property
    def _has_succeeded(self) -> bool:
        return self.command_exit.ending == "exited" and self.command_exit.code == 0

    # -- interrupted ----------------------------------------------------------------------------------------------
    async def stop(self) -> Outcome | None:
        await self._prevent()
        if not self._project.has_snapshots or not (self.plan.view or self.plan.captured):
            return None
        reach_faultpoint("tool.command_stopped")
        if self.plan.view:
            change = await self._project.discard()
        else:
            background = self._request.background
            change = await self._project.compare("observed" if background else "direct", gated=not background)
        if not change.files and not change.uncaptured:
            return None
        return change.add_to(Outcome("", effect="view" if change.source == "view" else "direct"))

    async def _prevent(self) -> None:
        """No command of this call runs, and none will."""
        trial_keys = (self._request.trial_plan.key,) if self._request.trial_plan is not None else ()
        for key in dict.fromkeys(
            (self.plan.key, self.plan.own, self._request.make_dry_key(self.plan.own), *trial_keys)
        ):
            newest = await self._find_newest(key)
            for number in range(1, min(newest.number + (newest.command is not None), ATTEMPTS) + 1):
                attempt = CommandAttempt(key, number).key
                is_known = key == self.plan.key or newest.command is not None
                # A command that is taken but not found has a supervisor that has not begun it yet.
                if is_known or self._commands.is_key_used(self._request.chat, attempt):
                    await self._commands.prevent(self._request.chat, attempt)

    async def settle(self) -> Settlement:
        """Take up a command that was started here and is not lost; start one that was not. From another machine or
        before a power cut only a durable end counts. On a view without network nothing happened before the commit was
        decided: it may run again."""
        if await self._is_forgotten():
            return Outcome(RECORDED_BEFORE, "carried out before; its result is lost", success=False, effect="direct")
        here = await self._get_place()
        if self.plan.view:
            return await self._settle_view(here)
        command = await self._commands.find(self._request.chat, CallKey(self.plan.own))
        if self.plan.place != here:
            return "run_again" if command is not None and command.durable else "unknown"
        command_exit = await command.wait(0) if command is not None else None
        return "unknown" if command_exit is not None and command_exit.ending == "lost" else "run_again"

    async def _settle_view(self, here: str) -> Settlement:
        start_place = self.plan.place
        if not self._project.has_snapshots or start_place.rpartition(":")[2] != here.rpartition(":")[2]:
            return "unknown"
        if await self._is_decided():
            return "run_again"
        newest = await self._find_newest(self.plan.key)
        if newest.command is None:  # after a power cut, that it was started may have been forgotten
            return "run_again" if start_place == here or not self.plan.network else "unknown"
        if self._request.background or not await newest.is_lost():  # a job that is lost is told to be lost
            return "run_again"
        return "unknown" if self.plan.network or newest.number == ATTEMPTS else "run_again"

    async def _is_forgotten(self) -> bool:
        """True if it has ended and was forgotten, which follows its recorded result: so the log was put back."""
        newest = await self._find_newest(self.plan.key)
        command_exit = await newest.command.wait(0) if newest.command is not None else None
        if command_exit is None or command_exit.ending not in DONE:
            return False
        return all(each.call != newest.key for each in await self._commands.list_commands(self._request.chat))

    # -- attempts: a lost command may be begun anew ---------------------------------------------------------------
    async def _find_newest(self, key: str) -> CommandAttempt:
        """The one that counts: the last that was begun. `command` is None if none was."""
        newest = CommandAttempt(key)
        for number in range(1, ATTEMPTS + 1):
            command = await self._commands.find(self._request.chat, CommandAttempt(key, number).key)
            if command is None:
                break
            newest = CommandAttempt(key, number, command)
        return newest

    async def _choose_attempt(self) -> CommandAttempt:
        """The command to follow, or the key to start one: after a lost one that changed nothing but its view."""
        newest = await self._find_newest(self.plan.key)
        repeatable = self.plan.view and not self.plan.network and not self._request.background
        if not repeatable or newest.number == ATTEMPTS or not await newest.is_lost():
            return newest
        return newest.next

    async def _get_place(self) -> str:
        return await run_in_thread(lambda: self._commands.place)

    async def _is_decided(self) -> bool:
        return self.plan.view and await run_in_thread(self._project.is_decided)

    @property
    def _log_notices(self) -> tuple[ModelNotice, ...]:
        """The notices of a call whose key was used before, in a log that was lost."""
        call = self._request.call
        return () if self.plan.own == call else (ModelNotice("log_put_back", MADE_BEFORE.format(call=call)),)
