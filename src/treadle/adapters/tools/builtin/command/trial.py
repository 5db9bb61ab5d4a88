"""A command that is tried on a view before it is allowed (W-09). An approval commits this very effect: `CommandRun`
takes up the tried command."""

import msgspec
from msgspec.structs import replace

from treadle.adapters.tools.builtin.base import run_in_thread
from treadle.adapters.tools.builtin.command import output
from treadle.adapters.tools.builtin.command.project import make_folder_changes
from treadle.adapters.tools.builtin.command.request import CommandPlan
from treadle.adapters.tools.builtin.command.run import ATTEMPTS, DONE, CommandAttempt, CommandRun
from treadle.base.file_system import reach_faultpoint
from treadle.errors import ToolError
from treadle.ports.commands import CommandExit
from treadle.ports.snapshots import Effect
from treadle.ports.toolset import Rehearsal, Trial
from treadle.ports.workspace import escape_name


class DryRun(msgspec.Struct, frozen=True):
    command_exit: CommandExit
    output: str
    effect: Effect
    diff: str  # The effect for people
    unrecoverable: tuple[str, ...]  # See `treadle.ports.toolset.Rehearsal`
    notes: tuple[str, ...]
    last: str  # How it ended, as the last line of its output
    wants_network: tuple[str, ...] = ()  # The hosts that it failed to reach, as patterns; `all` if they are unknown
    hosts: tuple[str, ...] = ()  # The hosts that it reached


class CommandTrial(CommandRun):
    async def plan_trial(self) -> Trial | None:
        """The plan of a trial on a view; None where no view works. Its key is that of this text."""
        if self._request.background or not self._project.has_snapshots or not await self._setup.can_view():
            return None
        await self._examine()
        await self._claim_name()
        own_key, recorded = self.plan.own, self._fitting_trial
        network = await self._setup.choose_network(rehearsal=True)
        fresh = CommandPlan(view=True, network=network, key=self._request.make_dry_key(own_key), own=own_key)
        self.plan = await self._complete_plan(recorded or fresh)
        attempt = await self._choose_attempt()
        if recorded is not None:
            await self._refuse_repetition(recorded, attempt)
        if attempt.command is not None and await self._is_outdated(attempt):
            attempt = attempt.next
        self.plan = replace(self.plan, attempt=attempt.number)
        return Trial(msgspec.structs.asdict(self.plan), attempt.command is None, bool(self.plan.network))

    async def rehearse_start(self) -> Rehearsal | None:
        """A background command on a view changes only folders made for it; the rest is judged later (W-10)."""
        if not self._project.has_snapshots or not await self._setup.can_view():
            return None
        await self._examine()
        new_folders = (await self._add_layers(self.plan)).made
        return Rehearsal("\n".join(f"A {escape_name(path)}/" for path in new_folders), make_folder_changes(new_folders))

    async def _is_outdated(self, attempt: CommandAttempt) -> bool:
        assert attempt.command is not None
        command_exit = await attempt.command.wait(0)
        if self.plan.network or attempt.number == ATTEMPTS or command_exit is None or command_exit.ending not in DONE:
            return False
        return bool(
            (await self._project.compute_effect(self._commands.locate_view(self._request.chat, attempt.key))).conflicts
        )

    async def run_trial(self) -> DryRun | None:
        """Carry out the command on a view, as it will be committed if it is allowed; None where no view works."""
        if self._request.trial_plan is None:
            if await self.plan_trial() is None:
                return None
        else:
            self.plan = self._request.trial_plan
            await run_in_thread(self._setup.locate)
        attempt = await self._choose_attempt()
        if attempt.number < self.plan.attempt:
            attempt = CommandAttempt(self.plan.key, self.plan.attempt)
        self.command = attempt.command or await self._begin(attempt.key)
        await self._follow()
        reach_faultpoint("tool.command_rehearsed")
        summary, last = self._request.describe_ending(self.command_exit, self.plan)
        if self.command_exit.ending == "failed":
            raise ToolError(f"The command could not be started: {self.command_exit.error}.")
        if self.command_exit.exceeded:
            raise ToolError(last)
        if self.command_exit.ending not in DONE:
            raise ToolError(
                f"The command could not be tried on a copy of the project: {self.command_exit.error or summary}."
            )
        output_view = await run_in_thread(output.build_output_view, self.command, self.command_exit)
        effect, diff, lost_paths = await self._project.preview_commit(
            self._commands.locate_view(self._request.chat, attempt.key)
        )
        wants = await self._find_wanted_hosts(output_view.text)
        hosts = await self._read_reached_hosts()
        return DryRun(
            self.command_exit, output_view.text, effect, diff, lost_paths, self._setup.notes, last, wants, hosts
        )
