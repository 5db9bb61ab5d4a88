"""Jobs: the background commands of chats (S-14), `chat.jobs()` and `agent.jobs()`. The log says which a chat has; the
supervisors of this home say what a job writes and how it ends, and only they can reach it.

A job ends when it likes, and nobody may be there: whoever looks next closes it, which records how it ended and what
changed in the project meanwhile (W-10).
"""

import asyncio
import hashlib
import os
from collections.abc import Callable

from treadle.chat.state import ChatState, OpenJob, known_files
from treadle.engine.deps import Deps
from treadle.engine.outcome import workspace_events
from treadle.errors import JobElsewhere, NotFound
from treadle.ports.commands import Command, Ended, Known
from treadle.ports.toolset import Outcome
from treadle.protocol import commands as c
from treadle.protocol.events import FilesChanged
from treadle.protocol.views import JobOutput, JobView
from treadle.sandbox.supervisor.commands import SupervisedCommands
from treadle.tools.builtin.context import ToolContext
from treadle.types import CallKey, ChatId, new_id

TAIL = 16_000
MOST = 64_000
"""Bytes of output in one answer."""
_CLOSER = "closed"
"""Tells what the closer of a job records from what a call of the model does."""


class Job:
    """One job. `view` is what was known when it was looked for; the methods ask again."""

    def __init__(self, registry: "JobRegistry", view: JobView, command: Command | None) -> None:
        self.view = view
        self._registry = registry
        self._command = command

    async def tail(self, offset: int = -TAIL, limit: int = MOST) -> JobOutput:
        """What it has written from a byte on, whole lines where there are any; a negative offset counts from the end.
        Go on from `next`."""
        command = self._reachable()
        await asyncio.to_thread(command.touch)
        return await asyncio.to_thread(_output, command, offset, min(max(limit, 1), MOST), self._registry.redact)

    async def send(self, text: str = "", *, enter: bool = True, end: bool = False, token: str = "") -> None:
        """Write to its input, with a line end behind it unless `enter` is false; `end` closes the input. What comes
        with the same `token` again is not written again. ToolError if it has ended."""
        if enter and (text or not end):
            text += "\n"
        data = text.encode(errors="surrogateescape")
        named = hashlib.sha256((token or new_id("i")).encode()).hexdigest()[:24]
        await self._reachable().write(data, token=f"person-{named}", end=end)

    async def stop(self, by: str = "person") -> JobView:
        """End it with everything it started; what it changed is recorded."""
        await self._reachable().stop()
        await self._registry.close_ended(self.view.chat, by)
        return await self.look()

    async def look(self) -> JobView:
        """As it is now."""
        self.view = (await self._registry.find(self.view.chat, self.view.job)).view
        return self.view

    def _reachable(self) -> Command:
        if self._command is None:
            where = f"on {self.view.host}" if self.view.host else "elsewhere"
            raise JobElsewhere(f"Job {self.view.job} runs {where}, and can only be reached from there.")
        return self._command


class JobRegistry:
    """The jobs of all chats, as far as this home knows them."""

    def __init__(self, deps: Deps, context: ToolContext, commands: SupervisedCommands) -> None:
        self._deps = deps
        self._context = context
        self._commands = commands
        self.redact = deps.redact

    async def of(self, chat: ChatId) -> list[Job]:
        """The jobs of a chat, oldest first: those that run, and those that have ended and are still kept."""
        await self.close_ended(chat)
        state = await self._deps.log.load(chat)
        elsewhere = {job.job: job for job in state.jobs}
        open_jobs = set(elsewhere)
        found: list[Job] = []
        for known in await self._commands.known(chat):
            command = await self._commands.find(chat, known.call) if known.background else None
            if command is not None:
                elsewhere.pop(known.call, None)
                found.append(Job(self, await self._view(chat, known, command), command))
        if any(job.view.status != "running" and job.view.job in open_jobs for job in found):
            await self.close_ended(chat)  # it ended since: what is said to have ended is recorded so
        found += [Job(self, _remote(chat, job), None) for job in elsewhere.values()]
        return sorted(found, key=lambda job: job.view.began_ms)

    async def find(self, chat: ChatId, handle: str) -> Job:
        for job in await self.of(chat):
            if job.view.job == handle:
                return job
        raise NotFound(f"There is no job {handle[:100]!r} in chat {chat}.")

    async def all(self) -> list[Job]:
        """The jobs of all chats that have some in this home."""
        return [job for chat in await self._with_jobs() for job in await self.of(chat)]

    async def stop_all(self, chat: ChatId, by: str) -> None:
        """End what runs of a chat in this home."""
        for known in await self._commands.known(chat):
            if known.background and known.running:
                await self._commands.prevent(chat, known.call)
        await self.close_ended(chat, by)

    async def sweep(self, *, everything: bool = False) -> None:
        """Close what has ended, and end the jobs of archived chats: of chats that this process knows to have jobs, or
        of all that have some in this home."""
        for chat in await self._with_jobs() if everything else self._deps.log.with_jobs():
            state = await self._deps.log.load(chat)
            if state.options.archived:
                await self.stop_all(chat, "archive")
            else:
                await self.close_ended(chat)

    async def close_ended(self, chat: ChatId, by: str = "") -> None:
        """Record the end of every job of this chat that has ended here, and what changed meanwhile."""
        state = await self._deps.log.load(chat)
        if not state.jobs:
            return
        here = _home(await asyncio.to_thread(lambda: self._commands.place))
        for job in state.jobs:
            if _home(job.place) != here:
                continue
            command = await self._commands.find(chat, CallKey(job.job))
            ended = Ended("lost") if command is None else await command.wait(0)
            if ended is not None:
                await self._close(state, job, command, ended, by)

    async def _close(self, state: ChatState, job: OpenJob, command: Command | None, ended: Ended, by: str) -> None:
        """A call of the model that found it ended tells it itself, if its run is still there to do so."""
        mine = command is not None and await asyncio.to_thread(command.first, _CLOSER)
        if command is not None and not mine and state.run is not None:
            return
        changed, concerns = await self._changed(state, job) if mine else (None, ())
        who = by if ended.ending == "stopped" else ""
        closed = c.CloseJob(job.job, ended.ending, ended.code, who, concerns, changed)
        await self._deps.log.execute(state.chat, closed)

    async def _changed(self, state: ChatState, job: OpenJob) -> tuple[FilesChanged | None, tuple[str, ...]]:
        """What changed while it ran, and what of that would have been asked for."""
        from treadle.tools.builtin.command.project import CommandProject  # most chats have no jobs

        name, options = f"{state.chat}/{job.job}", state.options
        project = CommandProject(self._context, name, options.project, options)
        change = await project.compare("observed", known_files(state))
        events = await workspace_events(CallKey(job.job), change.added_to(Outcome("")), self._deps)
        changed = next((event for event in events if isinstance(event, FilesChanged)), None)
        return changed, tuple(map(self.redact, change.concerns))

    async def _with_jobs(self) -> list[ChatId]:
        """Chats of the store with background commands in this home."""
        found = []
        for chat in await asyncio.to_thread(self._commands.chats):
            if any(known.background for known in await self._commands.known(chat)):
                try:
                    await self._deps.store.get(chat)
                except NotFound:  # of another database that shared this home
                    continue
                found.append(chat)
        return found

    async def _view(self, chat: ChatId, known: Known, command: Command) -> JobView:
        ended = await command.wait(0)
        return JobView(
            chat,
            known.call,
            self.redact(known.title),
            "running" if ended is None else ended.ending,
            0 if ended is None else ended.code,
            known.began_ms,
            0 if ended is None else known.ended_ms,
            (await asyncio.to_thread(command.read, 0, 0)).size,
            os.uname().nodename,
        )


def _home(place: str) -> str:
    return place.rpartition(":")[2]


def _remote(chat: ChatId, job: OpenJob) -> JobView:
    return JobView(chat, job.job, job.command, "elsewhere", 0, job.began_ms, host=job.host)


def _output(command: Command, offset: int, limit: int, redact: Callable[[str], str]) -> JobOutput:
    """A page of output, from the beginning of a line if it is counted from the end, and to the end of one."""
    from treadle.tools.builtin.command.output import clean, whole_characters

    found = command.read(offset, limit)
    begin, data = found.offset, found.data
    if offset < 0 < begin and (cut := data.find(b"\n") + 1):
        begin, data = begin + cut, data[cut:]
    if begin + len(data) < found.size and (cut := data.rfind(b"\n") + 1):
        data = data[:cut]
    return JobOutput(redact(clean(whole_characters(data))), begin, begin + len(data), found.size)
