"""The project as the command of a call changes it (W-08, W-10): on a copy-on-write view, whose effect is committed when
the command has ended; or directly, with the tree compared before and after. One decision per call, by its name."""

import os
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal

import msgspec

from treadle.adapters.tools.builtin.base import ToolContext, complete_change, run_in_thread
from treadle.base.file_system import is_below, list_path_steps, replace_file
from treadle.base.types import ChatId
from treadle.chat.change_rules import explain_left_out
from treadle.diff.changes import format_changes, sort_out, sum_stats
from treadle.errors import StoreError, ToolError
from treadle.ports.commands import Command, CommandExit
from treadle.ports.snapshots import Effect, Snapshots
from treadle.ports.toolset import Outcome, Rehearsal
from treadle.ports.workspace import escape_name
from treadle.protocol.files import FileChange, FileConflict, FileState, Source, Uncaptured, decode_path, encode_path
from treadle.protocol.options import ChatOptions, Project

_SHOWN = 40
_MOST_LAYERS = 300
_MOST_IGNORED = 3_000
_BYTECODE = "__pycache__"  # Folders of this name get no layer: Python does without
_WHAT = "What the command changed"
_FROZEN_FOLDER = "parts"
_REHEARSED = "rehearsed"  # the file beside the layer that names the call which last judged all its changes
_KEPT_ENDINGS = ("exited", "timed_out", "idle", "stopped")  # not if it used up its limits or is lost
GIVEN_UP = "[what it had changed and was not committed before is discarded]"
NOT_KEPT = "[nothing of what it had changed and was not committed before is kept]"


class ProjectChange(msgspec.Struct, frozen=True):
    lines: tuple[str, ...] = ()
    success: bool = True
    files: tuple[FileChange, ...] = ()
    source: Source = "direct"
    uncaptured: tuple[Uncaptured, ...] = ()
    conflicts: tuple[FileConflict, ...] = ()
    git: str = ""
    concerns: tuple[str, ...] = ()  # what a person would have been asked, had the changes been known (W-10)

    @property
    def settlement(self) -> Literal["committed", "refused", "discarded"]:
        return "refused" if self.conflicts else "committed" if self.files else "discarded"

    def add_to(self, outcome: Outcome) -> Outcome:
        stat = sum_stats(self.files)
        return msgspec.structs.replace(
            outcome,
            files=self.files,
            source=self.source,
            uncaptured=self.uncaptured,
            conflicts=self.conflicts,
            git=self.git,
            diff_stat=stat if stat.added or stat.removed else None,
        )


def make_project_change(effect: Effect, source: Source) -> ProjectChange:
    if effect.conflicts:  # it was decided that nothing is committed
        return ProjectChange(success=False, source=source, conflicts=effect.conflicts)
    lines = format_changes(effect.files, _format_path, _SHOWN)
    if lines:
        lines.insert(0, "[changed in the project]")
    if source == "view":
        lines += [f"[not committed: {_format_path(each.path)}: {each.reason}]" for each in effect.uncaptured[:_SHOWN]]
    return ProjectChange(tuple(lines), True, effect.files, source, effect.uncaptured, git=effect.git)


def make_folder_changes(paths: Sequence[str]) -> tuple[FileChange, ...]:
    return tuple(FileChange(encode_path(path), "created", after=FileState("directory", 0o755)) for path in paths)


class WritableFolders(msgspec.Struct, frozen=True):
    layers: tuple[str, ...]
    new: tuple[str, ...]  # Those that have to be made first, with the folders that they lie in
    read_only: int  # How many ignored folders the command may not write to, because there are too many


class CommandProject:
    """`name`: the chat and the call; `changed`: what the run has changed. Without snapshots all answers are empty."""

    not_made = "the command ran, but nothing of what it changed was committed"
    mend = "look at them, and run it again if it is still wanted"
    discards_failed = True  # True if an effect that cannot be committed now never will be

    def __init__(
        self, context: ToolContext, name: str, project: Project, options: ChatOptions, changed: Collection[str] = ()
    ) -> None:
        self._context, self._name = context, name
        self._project, self._options, self._changed = project, options, frozenset(changed)
        self._snapshots = context.snapshots_of(*project) if context.snapshots_of is not None and project.root else None

    @property
    def has_snapshots(self) -> bool:
        return self._snapshots is not None

    @property
    def snapshots(self) -> Snapshots:
        assert self._snapshots is not None
        return self._snapshots

    async def tidy(self) -> None:
        """Remove files that the sandbox put into projects for commands that were killed with their supervisor."""
        if self._context.sandbox_of is not None:
            sandbox_of, demand = self._context.sandbox_of, self._options.sandbox
            await run_in_thread(lambda: sandbox_of(demand).tidy())

    def is_decided(self) -> bool:
        """Blocks for a moment."""
        return self._snapshots is not None and self._snapshots.is_decided(self._name)

    def is_apply_decided(self) -> bool:
        """True if it is decided that the effect is committed. Blocks for a moment."""
        return self._snapshots is not None and self._snapshots.is_apply_decided(self._name)

    async def capture(self) -> None:
        if self._snapshots is not None:
            await run_in_thread(self._snapshots.capture, self._name)

    async def release(self) -> None:
        if self._snapshots is not None:
            with suppress(ToolError):
                await run_in_thread(self._snapshots.release, self._name)

    async def preview_commit(self, view: str) -> tuple[Effect, str, tuple[str, ...]]:
        """The changes that a commit of this view would make, their diff, and the `unrecoverable` paths among them."""
        effect = await self.compute_effect(view)
        return (
            effect,
            await run_in_thread(self.snapshots.render_diff, view, effect),
            await self.find_unrecoverable(effect),
        )

    async def compute_effect(self, view: str) -> Effect:
        return await run_in_thread(self.snapshots.read_effect, view, self._changed)

    async def find_unrecoverable(self, effect: Effect) -> tuple[str, ...]:
        """Paths whose bytes this effect would remove for good, without those that this run changed itself."""
        lost_paths = await run_in_thread(self._context.unrecoverable, self._project, effect.files)
        return tuple(path for path in lost_paths if path not in self._changed)

    async def compare(
        self, source: Source = "direct", known_digests: Mapping[str, str] | None = None, *, gated: bool = False
    ) -> ProjectChange:
        """The changes since before the command, without those in `known_digests`. `gated`: undo uncommitted ones."""
        if self._snapshots is None:
            return ProjectChange(source=source)
        await self.tidy()
        try:
            try:
                effect = await run_in_thread(self._snapshots.compare, self._name)
            except ToolError:  # the files may have changed during the comparison
                effect = await run_in_thread(self._snapshots.compare, self._name)
            lacking = frozenset(effect.uncaptured)
            if gated:
                effect = await run_in_thread(self._snapshots.withdraw, f"{self._name}.never", effect)
        except ToolError as error:
            return ProjectChange((f"[what it changed in the project could not be found out: {error}]",), source=source)
        known = known_digests or {}
        digests = {file.path: file.after.digest for file in effect.files if file.after is not None}
        seen = {path for path, digest in digests.items() if digest and known.get(path) == digest}
        effect = msgspec.structs.replace(effect, files=tuple(file for file in effect.files if file.path not in seen))
        change = make_project_change(effect, source)
        raised = tuple(await run_in_thread(self._context.after_the_fact, self._project.root, effect, self._options))
        notes = [f"[this would have been asked for: {reason}. An undo takes it back.]" for reason in raised]
        undone = [each for each in effect.uncaptured if each not in lacking]
        notes += [f"[undone: {_format_path(each.path)}: {each.reason}]" for each in undone[:_SHOWN]]
        return msgspec.structs.replace(change, lines=(*change.lines, *notes), concerns=raised)

    async def commit(self, view: str) -> ProjectChange:
        snapshots, name = self.snapshots, self._name
        try:
            effect = await complete_change(
                lambda: snapshots.commit(name, view, self._changed), lambda: snapshots.is_apply_decided(name), _WHAT
            )
        except ToolError as error:
            if await run_in_thread(self.is_decided):  # decided earlier, by another process
                raise StoreError(str(error)) from error
            if self.discards_failed:
                with suppress(ToolError):
                    await run_in_thread(snapshots.discard, name)
            return ProjectChange((f"[{self.not_made}: {error}]",), success=False, source="view")
        if not effect.conflicts:
            return make_project_change(effect, "view")
        try:
            diff = await run_in_thread(snapshots.render_diff, view, effect)
        except ToolError:
            conflicts = effect.conflicts[:_SHOWN]
            diff = "\n".join(f"[conflict: {_format_path(each.path)}: {each.reason}]" for each in conflicts)
        explanation = (
            f"[{self.not_made}, because others changed the same files meanwhile: {self.mend}. "
            "What it would have changed:]"
        )
        return ProjectChange((explanation, diff), success=False, source="view", conflicts=effect.conflicts)

    def choose_writable_folders(self, declared: Sequence[str]) -> WritableFolders:
        """For a live command. ToolError for a declared folder that is neither new nor ignored. Blocks for a moment."""
        ignored = self.snapshots.list_ignored_folders(_MOST_IGNORED)
        layer_candidates = [path for path in ignored if path.rpartition("/")[2] != _BYTECODE]
        layers = layer_candidates[:_MOST_LAYERS]
        new_folders: list[str] = []
        for declared_path in declared:
            path = os.path.normpath(declared_path)
            if os.path.isabs(path) or path.split("/")[0] in ("", ".", "..", ".git"):
                raise ToolError(f"writes: {escape_name(declared_path)} is no folder inside the project.")
            missing = self._find_missing_folders(declared_path, list_path_steps(path))
            if any(is_below(path, layer) for layer in layers):
                continue
            if not missing and not any(is_below(path, folder) for folder in ignored):
                raise ToolError(
                    f"writes: {escape_name(declared_path)} is a folder of the project that .gitignore does not name. "
                    "Declare a new or an ignored one, "
                    "or leave live out: then the command may write anywhere on its view."
                )
            new_folders += [step for step in missing if step not in new_folders]
            layers.append(path)
        read_only = [path for path in layer_candidates[_MOST_LAYERS:] if path not in layers]
        return WritableFolders(tuple(layers), tuple(new_folders), len(read_only))

    def _find_missing_folders(self, declared_path: str, steps: Sequence[str]) -> list[str]:
        """The steps to a declared folder that do not exist. ToolError if one is no folder, or may not be made."""
        missing: list[str] = []
        for step in steps:
            state = None if missing else self.snapshots.read_state(step)
            if state is None:
                missing.append(step)
            elif state.kind != "directory":
                raise ToolError(f"writes: {escape_name(declared_path)} leads through something that is no folder.")
        for reason in explain_left_out(
            make_folder_changes(missing), lambda path: self.snapshots.read_state(path) is not None
        ).values():
            raise ToolError(f"writes: {escape_name(declared_path)} cannot be made: {reason}.")
        return missing

    async def make_folders(self, paths: Sequence[str]) -> None:
        """Make new folders in the project, as one change; those that exist by now stay."""
        effect = await run_in_thread(self.snapshots.change, f"{self._name}.folders", make_folder_changes(paths), {})
        if effect.conflicts:
            raise ToolError(f"The folders for the command could not be made: {effect.conflicts[0].reason}.")

    async def dismiss(self, view: str, reason: str) -> ProjectChange:
        effect = await self.compute_effect(view)
        await self.discard()
        lines = format_changes(effect.files, _format_path, _SHOWN)
        if not lines:
            return ProjectChange(source="view")
        missed = bool(sort_out(effect.files).reported_files)  # the loss of a cache is no failure
        return ProjectChange((f"[{reason}. It would have changed:]", *lines), not missed, source="view")

    async def discard(self) -> ProjectChange:
        """Make sure that nothing is committed. An earlier decision stays."""
        snapshots, name = self.snapshots, self._name
        effect = await complete_change(lambda: snapshots.discard(name), lambda: snapshots.is_apply_decided(name), _WHAT)
        return ProjectChange(source="view") if effect is None else make_project_change(effect, "view")


def _format_path(path: str) -> str:
    return escape_name(decode_path(path))


class _JobProject(CommandProject):
    not_made = "nothing of what the background command changed was committed"
    discards_failed = False


class JobLayer:
    """The copy-on-write layer of a background command (W-10): the changes of the command that are not committed yet.

    A commit of a running command takes a frozen copy of the layer, under the name of the call that asks for it; the
    next one takes what changed since. The last commit takes the layer itself, when the command has ended, under the
    name of the command. That is one decision for good. Of a command whose end is not known, the last commit takes
    nothing. `handle` is the command's. `changed_paths` is what the run has changed itself."""

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
        self._context, self._chat, self._command = context, chat, command
        self._place = project, options, changed_paths
        self.view = f"{command.folder}/view"
        self._last = self._make_project(handle)

    @property
    def exists(self) -> bool:
        """True if the command runs on a view, and its folder is still there."""
        return self._last.has_snapshots and os.path.isdir(f"{self.view}/upper")

    async def is_open(self, result: CommandExit) -> bool:
        return self.exists and self._is_known(result) and not await run_in_thread(self._last.is_decided)

    async def count_pending(self, result: CommandExit) -> int:
        """How many files a commit of the ended command would change; one at least if that cannot be found out."""
        if not await self.is_open(result):
            return 0
        try:
            return len((await self._last.compute_effect(self.view)).files)
        except ToolError:
            return 1

    async def has_conflicts(self) -> bool:
        return bool((await self._last.compute_effect(self.view)).conflicts)

    async def preview_commit(self, result: CommandExit) -> tuple[Effect, str]:
        return (await self._last.preview_commit(self.view))[:2] if await self.is_open(result) else (Effect(()), "")

    async def rehearse(self, call: str, result: CommandExit | None) -> Rehearsal | None:
        """The effect of a commit by this call; None if there is nothing to commit."""
        if not (self.exists if result is None else await self.is_open(result)):
            return None
        view = await self._freeze(call) if result is None else self.view
        if result is not None and call:
            await run_in_thread(replace_file, f"{view}/{_REHEARSED}", call.encode())
        effect, diff, unrecoverable = await (
            self._last if result is not None else self._make_project(call)
        ).preview_commit(view)
        line, shell = self._command.line, self._command.begins_in
        return Rehearsal(
            diff, effect.files, effect.uncaptured, unrecoverable, command=line, history=effect.history, shell=shell
        )

    async def is_rehearsed_by(self, call: str) -> bool:
        """True if this call was the last that was judged by all changes of the ended command."""
        try:
            return await run_in_thread(Path(self.view, _REHEARSED).read_text) == call
        except OSError:
            return False

    async def is_given_up(self, result: CommandExit) -> bool:
        """True if it is decided that the changes of the ended command are not committed."""
        is_known = self.exists and self._is_known(result)
        return is_known and await run_in_thread(lambda: self._last.is_decided() and not self._last.is_apply_decided())

    async def commit(self, call: str, result: CommandExit | None) -> ProjectChange:
        """Commit the effect that `rehearse` returned for this call; after a crash it completes the commit."""
        if result is not None:
            return await self._last.commit(self.view) if self._is_known(result) else await self.drop()
        return await self._commit_part(call, await self._freeze(call))

    async def _commit_part(self, call: str, view: str) -> ProjectChange:
        change = await self._make_project(call).commit(view)
        if change.success:
            await run_in_thread(self._last.snapshots.note_committed, self.view, view)
        return change

    async def call_off(self, call: str, *, all_of_it: bool) -> ProjectChange | None:
        """The call was interrupted: complete and tell the commit that it had begun; None if it had begun none."""
        project = self._last if all_of_it else self._make_project(call)
        if not await run_in_thread(project.is_apply_decided):
            if not all_of_it:
                await project.discard()
            return None
        frozen_view = f"{self.view}/{_FROZEN_FOLDER}/{call}"
        return await (project.commit(self.view) if all_of_it else self._commit_part(call, frozen_view))

    async def drop_unknown(self, result: CommandExit) -> bool:
        """Discard the changes if it is not known how far the command came; True if it discarded them."""
        is_unknown = self.exists and not self._is_known(result)
        if is_unknown:
            await self.drop()
        return is_unknown

    async def drop(self, reason: str = "") -> ProjectChange:
        """Discard the changes of the ended command for good. An earlier decision stays."""
        return await (self._last.dismiss(self.view, reason) if reason else self._last.discard())

    def _is_known(self, result: CommandExit) -> bool:
        return result.ending in _KEPT_ENDINGS and (self._command.present or self._command.durable)

    async def _freeze(self, call: str) -> str:
        into = f"{self.view}/{_FROZEN_FOLDER}/{call}"
        await run_in_thread(self._last.snapshots.freeze, self.view, into, self._place[-1])
        return into

    def _make_project(self, name: str) -> CommandProject:
        return _JobProject(self._context, f"{self._chat}/{name}", *self._place)
