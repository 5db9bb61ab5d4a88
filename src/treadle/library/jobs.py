"""Jobs: the background commands of chats (S-14), `chat.jobs()` and `agent.jobs()`. The log says which a chat has; the
supervisors of this home say what a job writes and how it ends, and only they can reach it.

A job may end when no process looks. The next one that looks closes it: it records how the job ended (W-10). The changes
on the job's view stay pending until the next run commits them when it begins, if they pass without a question, or until
a call of the model or a person commits or discards them. Of a job without a view, the tree is compared and the
difference recorded."""

import asyncio
import hashlib
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec.structs import replace

from treadle.adapters.sandbox.supervisor.commands import SupervisedCommands
from treadle.adapters.tools.builtin.base import ToolContext
from treadle.base.file_system import reach_faultpoint
from treadle.base.logs import log_warning
from treadle.base.types import CallKey, ChatId, make_id
from treadle.chat.state import ChatState, OpenJob, list_known_files
from treadle.engine.deps import Deps
from treadle.engine.outcome import build_workspace_events
from treadle.errors import ConfigError, InvalidInput, JobElsewhere, NotFound, ToolError
from treadle.ports.commands import Command, CommandExit, KnownCommand
from treadle.ports.policy import Verdict
from treadle.ports.snapshots import Effect
from treadle.ports.toolset import Invocation, Outcome, Rehearsal
from treadle.protocol import commands as c
from treadle.protocol.events import FilesChanged
from treadle.protocol.views import JobChanges, JobOutput, JobView

if TYPE_CHECKING:
    from treadle.adapters.tools.builtin.command.project import JobLayer, ProjectChange

TAIL = 16_000
MOST = 64_000  # Bytes of output in one answer.
_CLOSER = "closed"  # Tells what the closer of a job records from what a call of the model does.


class Job:
    """One job. `view` is what was known when it was looked for; the methods ask again."""

    def __init__(self, registry: "JobRegistry", view: JobView, command: Command | None) -> None:
        self.view, self._registry, self._command = view, registry, command

    async def tail(self, offset: int = -TAIL, limit: int = MOST) -> JobOutput:
        """The output from byte `offset` on, in whole lines; negative: from the end. Continue from `next`."""
        command = self._require_command()
        await asyncio.to_thread(command.touch)
        return await asyncio.to_thread(_read_output, command, offset, min(max(limit, 1), MOST), self._registry.redact)

    async def send(self, text: str = "", *, enter: bool = True, end: bool = False, token: str = "") -> None:
        """Write to its input, with a line end if `enter`; `end` closes it; a `token` counts once. ToolError: ended."""
        if enter and (text or not end):
            text += "\n"
        data = text.encode(errors="surrogateescape")
        token_digest = hashlib.sha256((token or make_id("i")).encode()).hexdigest()[:24]
        await self._require_command().write(data, token=f"person-{token_digest}", end=end)

    async def stop(self, by: str = "person") -> JobView:
        """End it with everything it started. The changes on its view are then pending."""
        await self._require_command().stop()
        await self._registry.close_ended(self.view.chat, by)
        return await self.look()

    async def changes(self) -> JobChanges:
        """Its changes that are not committed yet. Empty while it runs, because they change all the time."""
        command, effect, diff = self._require_command(), Effect(()), ""
        if (result := await command.wait(0)) is not None:
            effect, diff = await self._registry.preview_changes(self.view.chat, self.view.job, command, result)
        redacted = self._registry.redact(diff)
        return JobChanges(job=self.view, files=effect.files, conflicts=effect.conflicts, diff=redacted)

    async def discard(self) -> JobView:
        """Discard its changes that are not committed. InvalidInput while it runs."""
        if await self._require_command().wait(0) is None:
            raise InvalidInput(f"Job {self.view.job} still runs; stop it first.")
        await self._registry.discard(self.view.chat, self.view.job)
        return await self.look()

    async def look(self) -> JobView:
        """As it is now."""
        self.view = (await self._registry.find(self.view.chat, self.view.job)).view
        return self.view

    def _require_command(self) -> Command:
        if self._command is None:
            location = f"on {self.view.host}" if self.view.host else "elsewhere"
            raise JobElsewhere(f"Job {self.view.job} runs {location}, and can only be reached from there.")
        return self._command


class JobRegistry:
    def __init__(self, deps: Deps, context: ToolContext, commands: SupervisedCommands) -> None:
        self._deps, self._context, self._commands = deps, context, commands
        self.redact = deps.redact

    async def list_jobs(self, chat: ChatId) -> list[Job]:
        """The jobs of a chat, oldest first: those that run, and those that have ended and are still kept."""
        await self.close_ended(chat)
        state = await self._deps.log.load(chat)
        elsewhere = {job.job: job for job in (*state.jobs, *state.pending_jobs)}
        open_jobs = {job.job for job in state.jobs}
        jobs: list[Job] = []
        for known_command in await self._commands.list_commands(chat):
            command = await self._commands.find(chat, known_command.call) if known_command.background else None
            if command is not None:
                elsewhere.pop(known_command.call, None)
                jobs.append(Job(self, await self._make_view(chat, known_command, command), command))
        if any(job.view.status != "running" and job.view.job in open_jobs for job in jobs):
            await self.close_ended(chat)  # it ended since: what is said to have ended is recorded so
            state = await self._deps.log.load(chat)
        pending = {job.job: job.pending for job in reversed(state.pending_jobs)}
        for job in jobs:
            job.view = replace(job.view, pending=pending.get(job.view.job, 0))
        for away in elsewhere.values():
            view = JobView(chat, away.job, away.command, "elsewhere", 0, away.began_ms, host=away.host)
            jobs.append(Job(self, replace(view, pending=away.pending), None))
        return sorted(jobs, key=lambda job: job.view.began_ms)

    async def find(self, chat: ChatId, handle: str) -> Job:
        for job in await self.list_jobs(chat):
            if job.view.job == handle:
                return job
        raise NotFound(f"There is no job {handle[:100]!r} in chat {chat}.")

    async def list_all_jobs(self) -> list[Job]:
        return [job for chat in await self._list_chats_with_jobs() for job in await self.list_jobs(chat)]

    async def has_jobs_in(self, world: str) -> bool:
        """True if a background command of a chat in this world runs."""
        for chat in await self._list_chats_with_jobs():
            running = any(record.background and record.running for record in await self._commands.list_commands(chat))
            if running and (await self._deps.log.load(chat)).options.world == world:
                return True
        return False

    async def stop_all(self, chat: ChatId, by: str) -> None:
        for known_command in await self._commands.list_commands(chat):
            if known_command.background and known_command.running:
                await self._commands.prevent(chat, known_command.call)
        await self.close_ended(chat, by)

    async def forget_commands(self, chat: ChatId) -> None:
        for record in await self._commands.list_commands(chat):
            await self._commands.forget(chat, record.call)

    async def sweep(self, *, everything: bool = False) -> None:
        """Close ended jobs, and end those of archived chats: of the chats that this process knows, or of all."""
        for chat in await self._list_chats_with_jobs() if everything else self._deps.log.list_chats_with_jobs():
            try:
                state = await self._deps.log.load(chat)
            except NotFound:  # deleted by another process
                self._deps.log.forget(chat)
                continue
            if state.options.archived:
                await self.stop_all(chat, "archive")
            else:
                await self.close_ended(chat)

    async def close_ended(self, chat: ChatId, by: str = "") -> None:
        """Record the end of every job of this chat that has ended here, and what changed meanwhile."""
        state = await self._deps.log.load(chat)
        if not state.jobs:
            return
        here = _parse_home(await asyncio.to_thread(lambda: self._commands.place))
        for job in (each for each in state.jobs if _parse_home(each.place) == here):
            command = await self._commands.find(chat, CallKey(job.job))
            command_exit = CommandExit("lost") if command is None else await command.wait(0)
            if command_exit is not None:
                await self._close(state, job, command, command_exit, by)

    async def settle_pending(self, chat: ChatId) -> None:
        """Commit the pending changes of ended jobs that pass without a question, discard those that a person refused.
        The caller holds the lease of the chat, and the chat has no open calls."""
        state = await self._deps.log.load(chat)
        for job in state.pending_jobs:
            if (ended_job := await self._find_ended(chat, job)) is None:
                continue
            command, result = ended_job
            layer = self._make_layer(state, job, command)
            try:
                if job.refused and await layer.is_rehearsed_by(job.refused):
                    await self._settle(state, job, await layer.drop(), "person")
                    continue
                rehearsal = await layer.rehearse("", result)  # None: it is decided, and only has to be recorded
                if rehearsal is not None and (
                    not await self._is_commit_allowed(state, job, rehearsal) or await layer.has_conflicts()
                ):
                    continue
                reach_faultpoint("job.before_commit")
                change = await layer.commit("", result)
            except (ToolError, ConfigError) as error:
                log_warning("changes of job %s stay pending: %s", job.job, error)
                continue
            reach_faultpoint("job.committed")
            if change.success:
                await self._settle(state, job, change, "run")

    async def _is_commit_allowed(self, state: ChatState, job: OpenJob, rehearsal: Rehearsal) -> bool:
        from treadle.adapters.tools.builtin.command.background import CheckCommand

        if rehearsal.empty:
            return True
        spec, options = CheckCommand.spec, replace(state.options, interactive=False)
        call = Invocation(state.chat, CallKey(job.job), spec.name, {"handle": job.job}, options=options)
        verdict = await self._deps.policy.judge(spec, call, options, rehearsal, Verdict("review"))
        return verdict.decision == "allow"

    async def preview_changes(
        self, chat: ChatId, handle: str, command: Command, result: CommandExit
    ) -> tuple[Effect, str]:
        return await self._make_layer(await self._deps.log.load(chat), OpenJob(handle), command).preview_commit(result)

    async def discard(self, chat: ChatId, handle: str) -> None:
        state = await self._deps.log.load(chat)
        for job in state.pending_jobs:
            if job.job == handle and (ended_job := await self._find_ended(chat, job)) is not None:
                await self._settle(state, job, await self._make_layer(state, job, ended_job[0]).drop(), "person")

    async def _settle(self, state: ChatState, job: OpenJob, change: "ProjectChange", by: str) -> None:
        files = await self._make_change_event(job, change)
        command = c.CloseJob(job.job, "exited", by=by, files_changed=files, settlement=change.settlement)
        await self._deps.log.execute(state.chat, command)

    async def _find_ended(self, chat: ChatId, job: OpenJob) -> tuple[Command, CommandExit] | None:
        """An ended job of this home; None if it is elsewhere, or forgotten."""
        if _parse_home(job.place) != _parse_home(await asyncio.to_thread(lambda: self._commands.place)):
            return None
        command = await self._commands.find(chat, CallKey(job.job))
        result = None if command is None else await command.wait(0)
        return None if command is None or result is None else (command, result)

    def _make_layer(self, state: ChatState, job: OpenJob, command: Command) -> "JobLayer":
        from treadle.adapters.tools.builtin.command.project import JobLayer  # most chats have no jobs

        return JobLayer(self._context, state.chat, job.job, command, state.options.project, state.options)

    async def _close(
        self, state: ChatState, job: OpenJob, command: Command | None, command_exit: CommandExit, by: str
    ) -> None:
        """A call of the model that found it ended tells it itself, if its run is still there to do so."""
        mine = command is not None and await asyncio.to_thread(command.is_first_token, _CLOSER)
        if command is not None and not mine and state.run is not None:
            return
        stopped_by = by if command_exit.ending == "stopped" else ""
        close_command = c.CloseJob(job.job, command_exit.ending, command_exit.code, stopped_by)
        if command is not None and (layer := self._make_layer(state, job, command)).exists:
            await layer.drop_unknown(command_exit)
            close_command = replace(close_command, pending=await layer.count_pending(command_exit))
        elif mine:
            from treadle.adapters.tools.builtin.command.project import CommandProject  # most chats have no jobs

            name, options = f"{state.chat}/{job.job}", state.options
            project = CommandProject(self._context, name, options.project, options)
            change = await project.compare("observed", list_known_files(state))
            files_changed = await self._make_change_event(job, change)
            concerns = tuple(map(self.redact, change.concerns))
            close_command = replace(close_command, files_changed=files_changed, concerns=concerns)
        await self._deps.log.execute(state.chat, close_command)

    async def _make_change_event(self, job: OpenJob, change: "ProjectChange") -> FilesChanged | None:
        events = await build_workspace_events(CallKey(job.job), change.add_to(Outcome("")), self._deps)
        return next((event for event in events if isinstance(event, FilesChanged)), None)

    async def _list_chats_with_jobs(self) -> list[ChatId]:
        chats = []
        for chat in await asyncio.to_thread(self._commands.list_chats):
            if any(known_command.background for known_command in await self._commands.list_commands(chat)):
                try:
                    await self._deps.store.get(chat)
                except NotFound:  # of another database that shared this home
                    continue
                chats.append(chat)
        return chats

    async def _make_view(self, chat: ChatId, known_command: KnownCommand, command: Command) -> JobView:
        command_exit = await command.wait(0)
        return JobView(
            chat, known_command.call, self.redact(known_command.title),
            "running" if command_exit is None else command_exit.ending,
            0 if command_exit is None else command_exit.code, known_command.began_ms,
            0 if command_exit is None else known_command.ended_ms, (await asyncio.to_thread(command.read, 0, 0)).size,
            os.uname().nodename,
        )  # fmt: skip


def _parse_home(place: str) -> str:
    return place.rpartition(":")[2]


def _read_output(command: Command, offset: int, limit: int, redact: Callable[[str], str]) -> JobOutput:
    """A page of output, from the beginning of a line if it is counted from the end, and to the end of one."""
    from treadle.adapters.tools.builtin.command.output import clean, keep_whole_characters

    page = command.read(offset, limit)
    begin, data = page.offset, page.data
    if offset < 0 < begin and (boundary := data.find(b"\n") + 1):
        begin, data = begin + boundary, data[boundary:]
    if begin + len(data) < page.size and (boundary := data.rfind(b"\n") + 1):
        data = data[:boundary]
    return JobOutput(redact(clean(keep_whole_characters(data))), begin, begin + len(data), page.size)
