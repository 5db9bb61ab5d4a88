"""The copy-on-write layer of a background command (W-10): the changes of the command that are not committed yet.

A commit of a running command takes a frozen copy of the layer, under the name of the call that asks for it; the next
one takes what changed since. The last commit takes the layer itself, when the command has ended, under the name of the
command. That is one decision for good. Of a command whose end is not known, the last commit takes nothing.
"""

import os
from pathlib import Path

from treadle.adapters.tools.builtin.base import in_thread
from treadle.adapters.tools.builtin.command.project import CommandProject, ProjectChange
from treadle.adapters.tools.builtin.context import ToolContext
from treadle.base.file_system import replace_file
from treadle.base.types import ChatId
from treadle.errors import ToolError
from treadle.ports.commands import Command, CommandExit
from treadle.ports.snapshots import Effect
from treadle.ports.toolset import Rehearsal
from treadle.protocol.options import ChatOptions, Project

_FROZEN_FOLDER = "parts"
_REHEARSED = "rehearsed"
"""The file beside the layer that names the call by which all changes of the ended command were last judged."""
_KEPT_ENDINGS = ("exited", "timed_out", "idle", "stopped")
"""The changes of commands that ended so may be committed; not those of one that used up its limits or is lost."""
GIVEN_UP = "[what it had changed and was not committed before is discarded]"
NOT_KEPT = "[nothing of what it had changed and was not committed before is kept]"


class _JobProject(CommandProject):
    not_made = "nothing of what the background command changed was committed"
    discards_failed = False


class JobLayer:
    """`handle` is the command's. `changed` is what the run has changed itself."""

    def __init__(
        self,
        context: ToolContext,
        chat: ChatId,
        handle: str,
        command: Command,
        project: Project,
        options: ChatOptions,
        changed_paths: frozenset[str] = frozenset(),
    ) -> None:
        self._context, self._chat = context, chat
        self._command = command
        self._place = project, options, changed_paths
        self.view = f"{command.folder}/view"
        self._last = self._project(handle)

    @property
    def exists(self) -> bool:
        """True if the command runs on a view, and its folder is still there."""
        return self._last.has_snapshots and os.path.isdir(f"{self.view}/upper")

    async def is_open(self, result: CommandExit) -> bool:
        """True if the changes of the ended command are neither committed nor discarded."""
        return self.exists and self._is_known(result) and not await in_thread(self._last.is_decided)

    async def pending(self, result: CommandExit) -> int:
        """How many files a commit of the ended command would change; one at least if that cannot be found out."""
        if not await self.is_open(result):
            return 0
        try:
            return len((await self._last.effect(self.view)).files)
        except ToolError:
            return 1

    async def conflicts(self) -> bool:
        """True if a change from elsewhere hit the same files as the ended command."""
        return bool((await self._last.effect(self.view)).conflicts)

    async def preview(self, result: CommandExit) -> tuple[Effect, str]:
        """The effect of a commit of the ended command, and its diff."""
        if not await self.is_open(result):
            return Effect(()), ""
        effect, diff, _ = await self._last.preview(self.view)
        return effect, diff

    async def rehearse(self, call: str, result: CommandExit | None) -> Rehearsal | None:
        """The effect of a commit by this call; None if there is nothing to commit."""
        if result is None:
            if not self.exists:
                return None
            view = await self._freeze(call)
        elif await self.is_open(result):
            view = self.view
            if call:
                await in_thread(replace_file, f"{view}/{_REHEARSED}", call.encode())
        else:
            return None
        effect, diff, unrecoverable = await self._project_for(call, result).preview(view)
        return Rehearsal(
            diff,
            effect.files,
            effect.uncaptured,
            unrecoverable,
            command=self._command.line,
            history=effect.history,
            shell=self._command.begins_in,
        )

    async def was_rehearsed_by(self, call: str) -> bool:
        """True if this call was the last that was judged by all changes of the ended command."""
        try:
            return await in_thread(Path(self.view, _REHEARSED).read_text) == call
        except OSError:
            return False

    async def is_given_up(self, result: CommandExit) -> bool:
        """True if it is decided that the changes of the ended command are not committed."""
        if not self.exists or not self._is_known(result):
            return False
        return await in_thread(lambda: self._last.is_decided() and not self._last.is_apply_decided())

    async def commit(self, call: str, result: CommandExit | None) -> ProjectChange:
        """Commit the effect that `rehearse` returned for this call. Called again after a crash, it completes the commit
        and returns the same."""
        if result is not None:
            return await self._last.commit(self.view) if self._is_known(result) else await self.drop()
        view = await self._freeze(call)
        change = await self._project_for(call, result).commit(view)
        if change.success:
            await in_thread(self._last.note_committed, self.view, view)
        return change

    async def call_off(self, call: str, *, all_of_it: bool) -> ProjectChange | None:
        """The call was interrupted: complete and tell the commit that it had begun; None if it had begun none."""
        project = self._last if all_of_it else self._project(call)
        if not await in_thread(project.is_apply_decided):
            if not all_of_it:
                await project.discard()
            return None
        view = self.view if all_of_it else f"{self.view}/{_FROZEN_FOLDER}/{call}"
        change = await project.commit(view)
        if change.success and not all_of_it:
            await in_thread(self._last.note_committed, self.view, view)
        return change

    async def drop_unknown(self, result: CommandExit) -> bool:
        """Discard the changes if it is not known how far the command came; True if it discarded them."""
        if not self.exists or self._is_known(result):
            return False
        await self.drop()
        return True

    async def drop(self, reason: str = "") -> ProjectChange:
        """Discard the changes of the ended command for good. An earlier decision stays."""
        if reason:
            return await self._last.dismiss(self.view, reason)
        return await self._last.discard()

    def _is_known(self, result: CommandExit) -> bool:
        return result.ending in _KEPT_ENDINGS and (self._command.present or self._command.durable)

    async def _freeze(self, call: str) -> str:
        into = f"{self.view}/{_FROZEN_FOLDER}/{call}"
        await in_thread(self._last.freeze, self.view, into)
        return into

    def _project_for(self, call: str, result: CommandExit | None) -> CommandProject:
        return self._last if result is not None else self._project(call)

    def _project(self, name: str) -> CommandProject:
        return _JobProject(self._context, f"{self._chat}/{name}", *self._place)
