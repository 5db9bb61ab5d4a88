"""The changed files of a chat, `chat.files`: list, diff, undo, redo, keep. Reads the log and the snapshots; every
change is a command of the chat, carried out by the worker that drives it (W-02, W-03)."""

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TypedDict, TypeVar, Unpack

import msgspec
from msgspec.structs import replace

from treadle.base.types import ChatId, make_id
from treadle.chat.ledger import find_last_undo, find_unnamed_paths, select_trails
from treadle.diff.changes import merge_changes
from treadle.diff.diff import FileDiff, Texts, build_file_diff
from treadle.engine.deps import Deps, Restorer
from treadle.engine.effects import Ledger, read_ledger
from treadle.engine.restore import NO_SNAPSHOTS
from treadle.errors import InvalidInput, Refused, ToolError, TreadleError
from treadle.library.command_stream import Followed
from treadle.ports.snapshots import Plan
from treadle.protocol import commands as c
from treadle.protocol.events import ChangesKept, Redone, Restored, RestoreRequested, Undone
from treadle.protocol.files import DiffStat, FileChange, make_file_change
from treadle.protocol.options import Project

R = TypeVar("R", bound=Restored)
Paths = Sequence[str]
Hunks = Mapping[str, Sequence[int]]


class UndoOptions(TypedDict, total=False):
    """The options of an undo, beside the selection of changes."""

    hunks: Hunks
    merge: bool
    even_kept: bool


class RunSpan(msgspec.Struct, frozen=True):
    """A stretch of the log: after `since` and not after `upto` (0: until now)."""

    since: int = 0
    upto: int = 0


class Completed(msgspec.Struct, frozen=True):
    """An interrupted request, and its outcome after it was completed."""

    request: RestoreRequested
    outcome_event: Restored

    def is_answer_to(self, command: c.Restore | c.Rewind) -> bool:
        """True if the command repeats the request: then this is its outcome."""
        requests = [replace(each, restore="", by="") for each in (self.request, make_restore_request(command))]
        return requests[0] == requests[1]


class ChatFiles:
    """The files of one chat's project."""

    def __init__(self, chat: Followed, deps: Deps) -> None:
        self._chat, self._deps = chat, deps
        self._known: tuple[int, Ledger] | None = None

    async def runs(self) -> list[RunSpan]:
        """The runs that changed something, or might have, oldest first: each from its message to the next one's."""
        starts = (await self._read_ledger()).checkpoints
        ends = [start - 1 for start in starts[1:]] + [0] * bool(starts)
        return [RunSpan(start, end) for start, end in zip(starts, ends, strict=True)]

    async def last_run(self, *, even_kept: bool = False) -> RunSpan:
        """The newest run of which something is left that was neither undone nor kept; of none, an empty span."""
        ledger = await self._read_ledger()
        for span in reversed(await self.runs()):
            request = RestoreRequested("", "undo", span.since, span.upto, even_kept=even_kept)
            if select_trails(ledger.entries, request) or find_unnamed_paths(ledger.entries, request):
                return span
        return RunSpan(head := (await self._chat.state()).head, head)

    async def changes(
        self, span: RunSpan | None = None, paths: Paths = (), *, even_kept: bool = False
    ) -> tuple[FileChange, ...]:
        """Return the remaining changes of the chat in a span (the whole log if none is given), by path: from the
        original state to the state that the chat left. `preview` compares it with the disk."""
        span = span or RunSpan()
        request = RestoreRequested("", "undo", span.since, span.upto, tuple(paths), even_kept=even_kept)
        return tuple(
            make_file_change(each.path, each.links[0].before, each.links[-1].after, DiffStat(), ignored=each.ignored)
            for each in select_trails((await self._read_ledger()).entries, request)
            if each.links
        )

    async def diff(self, span: RunSpan | None = None, paths: Paths = (), *, even_kept: bool = False) -> list[FileDiff]:
        """The same with what changed in each: hunks, numbered as `undo` and `keep` take them."""
        changes = await self.changes(span, paths, even_kept=even_kept)
        texts = await self._require_restorer().read_texts(await self._get_project(), changes)
        return [build_file_diff(change, both) for change, both in zip(changes, texts, strict=True)]

    async def net(self, steps: Iterable[FileChange]) -> tuple[FileChange, ...]:
        """Steps, oldest first, as one change for each path, with what came and went between its two ends. Where those
        texts are not to be had (the project of another machine), what came and went in each step is added up."""
        steps = tuple(steps)
        changes = merge_changes({}, steps)
        step_counts = Counter(step.path for step in steps)
        repeated = [each for each in changes.values() if step_counts[each.path] > 1 and each.before != each.after]
        again = [replace(each, added=0, removed=0) for each in repeated]
        try:
            texts = await self._require_restorer().read_texts(await self._get_project(), again) if again else []
        except (ToolError, OSError):
            return tuple(changes.values())
        counted = [build_file_diff(change, both).change for change, both in zip(again, texts, strict=True)]
        return tuple((changes | {each.path: each for each in counted}).values())

    async def look(self, change: FileChange) -> FileDiff:
        """One of `changes` with its hunks: for who would not have the texts of all of them at once."""
        return await asyncio.to_thread(build_file_diff, change, await self.texts(change))

    async def texts(self, change: FileChange) -> Texts:
        """Return the text before and after a change, for a side-by-side view. None if it is no longer stored."""
        (both,) = await self._require_restorer().read_texts(await self._get_project(), [change])
        return both

    async def preview(self, span: RunSpan | None = None, paths: Paths = (), **choice: Unpack[UndoOptions]) -> Plan:
        """Return the plan of the same undo, as of now. Changes nothing, but completes an interrupted request."""
        await self.complete()
        request = make_restore_request(await self.undoing(span, paths, **choice))
        return await self._require_restorer().preview(self._chat.id, await self._get_project(), request)

    async def undo(self, span: RunSpan | None = None, paths: Paths = (), **choice: Unpack[UndoOptions]) -> Undone:
        """Undo changes of the last run, or of a span; only these files, or files below these folders; with
        `hunks={path: (1, 3)}` only parts of files. Later changes by others are left alone, or merged (`merge=True`).
        Kept changes stay unless `even_kept=True`."""
        command = await self.undoing(span, paths, **choice)
        if (completed_restore := await self.complete()) is not None and completed_restore.request.kind == "redo":
            command = await self.undoing(span, paths, **choice)  # the last run may be another now
        return await self._carry_out(command, Undone, completed_restore)

    async def redo(self, undo: str = "", *, merge: bool = False) -> Redone:
        """Take an undo back: the last one, or the one of this name."""
        completed_restore = await self.complete()
        if completed_restore is not None and completed_restore.request.kind == "redo":
            undo = undo or completed_restore.request.of
        return await self._carry_out(await self.redoing(undo, merge=merge), Redone, completed_restore)

    async def keep(self, span: RunSpan | None = None, paths: Paths = (), hunks: Hunks | None = None) -> ChangesKept:
        """Accept changes: an undo leaves them alone from now on."""
        return await self._carry_out(self.keeping(span, paths, hunks), ChangesKept, await self.complete())

    async def back_to(
        self, message: int, *, conversation: bool = True, files: bool = True, merge: bool = False
    ) -> Undone | None:
        """Go back to before a message of yours: conversation, files, or both. None: only the conversation went."""
        command = c.Rewind(message, conversation, files, make_id("u"), merge)
        if not files:
            await self._chat.carry_out(command)
            return None
        return await self._carry_out(command, Undone, await self.complete())

    async def find_unfinished_restore(self) -> RestoreRequested | None:
        """Return the request that was begun and not ended, because its worker died; None if there is none."""
        state = await self._chat.state()
        return state.restoring if state.run is None else None

    async def interrupted_call(self) -> str:
        """The tool whose call was cut off before its changes were recorded: files may be changed in part; or empty."""
        calls = [call for call in (await self._chat.state()).calls if call.phase == "started"]
        changing = [call.request.name for call in calls if call.writes or call.plan is not None]
        return changing[0] if changing and not (await self._deps.store.get(self._chat.id)).leased else ""

    async def complete(self) -> Completed | None:
        """Complete an interrupted request: until then the project is neither in the old state nor in the new one. Undo,
        redo, keep and preview do this first. Refused if a call was cut off: its changes are completed when the chat is
        resumed or stopped, and can be undone after that."""
        if tool := await self.interrupted_call():
            raise Refused("busy", describe_interrupted_call(self._chat.id, tool))
        if (request := await self.find_unfinished_restore()) is None:
            return None
        async for envelope in self._chat.follow(None):
            if isinstance(envelope.data, Restored) and envelope.data.restore == request.restore:
                return Completed(request, envelope.data)
        for entry in (await self._read_ledger()).entries:  # another process completed it
            if isinstance(entry.change, Restored) and entry.change.restore == request.restore:
                return Completed(request, entry.change)
        raise TreadleError(f"The {request.kind} that was begun was not completed; look at the chat's log.")

    # -- the same requests as commands, for other callers --------------------------------------------------------------

    async def undoing(self, span: RunSpan | None = None, paths: Paths = (), **choice: Unpack[UndoOptions]) -> c.Restore:
        span = span or await self.last_run(even_kept=choice.get("even_kept", False))
        hunks = {path: tuple(numbers) for path, numbers in choice.get("hunks", {}).items()}
        flags = choice.get("merge", False), choice.get("even_kept", False)
        return c.Restore(make_id("u"), "undo", span.since, span.upto, tuple(paths) or tuple(hunks), hunks, *flags)

    async def redoing(self, undo: str = "", *, merge: bool = False) -> c.Restore:
        if not undo:
            ledger = await self._read_ledger()
            undo = find_last_undo(ledger.entries, ledger.requests)
        if not undo:
            raise InvalidInput("There is no undo in this chat that could be redone.")
        return c.Restore(make_id("u"), "redo", of=undo, merge=merge)

    def keeping(self, span: RunSpan | None = None, paths: Paths = (), hunks: Hunks | None = None) -> c.Restore:
        span = span or RunSpan()
        hunk_numbers = {path: tuple(numbers) for path, numbers in (hunks or {}).items()}
        return c.Restore(make_id("u"), "keep", span.since, span.upto, tuple(paths) or tuple(hunk_numbers), hunk_numbers)

    async def _carry_out(self, command: c.Restore | c.Rewind, kind: type[R], restore: Completed | None) -> R:
        if restore is not None and restore.is_answer_to(command) and isinstance(restore.outcome_event, kind):
            return restore.outcome_event
        async for envelope in self._chat.follow(command):
            if isinstance(envelope.data, kind) and envelope.data.restore == command.restore:
                return envelope.data
        raise TreadleError("The request was taken, and its outcome was not seen; look at the chat's log.")

    async def _read_ledger(self) -> Ledger:
        """Read once for each head of the log."""
        head = (await self._chat.state()).head
        if self._known is None or self._known[0] != head:
            self._known = head, await read_ledger(self._deps.store, self._chat.id)
        return self._known[1]

    def _require_restorer(self) -> Restorer:
        if self._deps.restorer is None:
            raise ToolError(NO_SNAPSHOTS)
        return self._deps.restorer

    async def _get_project(self) -> Project:
        return (await self._chat.state()).options.project


def describe_interrupted_call(chat: ChatId, tool: str) -> str:
    return (
        f"chat {chat} was cut off in the middle of {tool}: its changes may be made in part, and they are not recorded "
        f"yet. Complete them first: treadle resume {chat} goes on with the work, treadle stop {chat} ends the run."
    )


def make_restore_request(command: c.Restore | c.Rewind) -> RestoreRequested:
    """Return the request about the files that is recorded when the command is carried out."""
    if isinstance(command, c.Restore):
        return RestoreRequested(**msgspec.structs.asdict(command))
    return RestoreRequested(command.restore, "undo", since=command.message, merge=command.merge, by=command.by)
