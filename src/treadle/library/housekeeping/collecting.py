"""Garbage collection of the data that is stored for undo (`treadle gc`).

The worth of an image is the time of the last change of a chat that refers to it; it is infinite while the chat is at
work. Images whose worth is below a cutoff ("line") are removed. The cutoff lies `Retention.days` in the past, or later
if more bytes are stored than the cap allows. Images used within the last day always stay, because a process may be
about to refer to them.
"""

import asyncio
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from msgspec.structs import replace

from treadle.adapters.sandbox.supervisor.commands import SupervisedCommands
from treadle.adapters.workspace.history.capture import Capture, Upkeep
from treadle.adapters.workspace.history.content_store import ContentStore, StoredContent, after_images
from treadle.adapters.workspace.history.journal import Journals
from treadle.base.types import ChatId
from treadle.errors import TreadleError
from treadle.library.housekeeping.marks import Marks
from treadle.library.housekeeping.retention import (
    DAY_S,
    EVER,
    Collected,
    Retention,
    Stamp,
    folder_of,
    read_stamp,
    stamp_of,
    worth_of,
    write_stamp,
)
from treadle.library.housekeeping.worlds import begun_from, collect_worlds
from treadle.ports.commands import KnownCommand
from treadle.ports.store import Listed, Store
from treadle.protocol.references import references

TREE_DAYS = 7.0
"""So long the tree of a root is remembered that no command was run on."""
_CHEAP_S = 0.5


class Unfinished(Exception):
    """The pass was told to stop before it had seen everything; nothing was removed."""


async def collect(store: Store, home: Path, retention: Retention, *, dry: bool = False) -> Collected:
    """Remove what is not to be kept; with `dry` only say what that is."""
    keeper = _Keeper(store, home, retention, time.time(), Marks(store, home, remembers=False))
    await keeper.look()
    collected = await asyncio.to_thread(keeper.remove, dry)
    return replace(collected, commands=await keeper.forget_commands(dry))


async def collect_some(
    store: Store, home: Path, retention: Retention, *, seconds: float = EVER, going: Callable[[], bool] = lambda: True
) -> None:
    """Run one pass: read logs for at most `seconds`, then remove for at most `seconds`, while `going` returns true. The
    next pass continues where this one stopped. Does not wait for processes that are storing data."""
    stamp_of(home).touch()  # so that no other process begins a pass
    marks = await asyncio.to_thread(Marks, store, home, remembers=True)
    keeper = _Keeper(store, home, retention, time.time(), marks, seconds, going)
    try:
        await keeper.look()
        await asyncio.to_thread(keeper.remove, False)
        await keeper.forget_commands(False)
    except (Unfinished, BlockingIOError):
        write_stamp(home, replace(read_stamp(home), done=False))
    except (OSError, TreadleError):
        with suppress(OSError):  # do not retry a failed pass at once
            write_stamp(home, replace(read_stamp(home), done=True, shard=""))
        raise


async def now_and_then(store: Store, home: Path, retention: Retention) -> None:
    """Run a pass of about a second. Errors are suppressed here; `treadle gc` reports them."""
    with suppress(OSError, TreadleError):
        await collect_some(store, home, retention, seconds=_CHEAP_S)


class _Keeper:
    """One collection: first look, then remove. A pass that is `going` only for a while leaves the rest to the next."""

    def __init__(
        self,
        store: Store,
        home: Path,
        retention: Retention,
        now: float,
        marks: Marks,
        seconds: float = EVER,
        going: Callable[[], bool] | None = None,
    ) -> None:
        self._store = store
        self._home = home
        self._folder = folder_of(home)
        self._stamp = read_stamp(home)
        self._marks = marks
        self._seconds = seconds
        self._going = going
        self._images = ContentStore(self._folder)
        self._upkeep = Upkeep(self._folder)
        self._journals = Journals(self._folder / "journals")
        self._commands = SupervisedCommands(home / "commands")
        self._retention = retention
        self._now = now
        self._line = now - retention.days * DAY_S
        self._worth: dict[str, float] = {}
        self._open: set[str] = set()
        self._running: set[str] = set()
        self._chats: list[Listed] = []

    async def look(self) -> None:
        self._chats = await self._store.list()
        all_seen = False
        try:
            await self._look_at_logs()
            all_seen = True
        finally:
            await asyncio.to_thread(self._marks.write, all_seen=all_seen)
        for chat in {_chat(capture) for _, capture in self._upkeep.captures() if capture is not None}:
            for call in await self._commands.running(chat):
                self._running.add(f"{chat}/{call.partition('~')[0]}")
        await asyncio.to_thread(self._look_at_files)

    async def _look_at_logs(self) -> None:
        until = time.monotonic() + self._seconds
        for listed in self._chats:
            worth = worth_of(listed)
            if worth == EVER:
                self._open.add(listed.summary.chat)
            if worth < self._line:
                continue
            late = time.monotonic() > until and not self._marks.knows(listed)
            self._refer(await self._marks.of(listed), worth)
            if late:  # but a pass that comes this far has read one more
                raise Unfinished
            self._check_going()

    def remove(self, dry: bool) -> Collected:
        resumes = self._going is not None and bool(self._stamp.shard)
        # The cutoff that keeps the size below the cap is computed once; a resumed pass reads it from the stamp.
        images = [] if resumes else list(self._all_images())
        line = max(self._line, self._stamp.goal) if resumes else self._raised(images)
        if not dry and self._folder.is_dir():
            self._write_stamp(line, self._stamp.shard if resumes else "0")  # before anything is missing
        trees = [tree for tree in self._upkeep.trees() if tree.last_used_s <= self._tree_line(line)]
        dropped_captures = 0
        for file, capture in self._upkeep.captures():
            if capture is not None and self._capture_worth(capture) <= line:
                dropped_captures += 1
                if not dry:
                    self._upkeep.drop_capture(file, capture)
        decisions = 0
        if not dry:
            # Trees first: a process without a stored tree reads all files again, and needs no image removed now.
            self._upkeep.drop_trees(self._tree_line(line), wait=self._going is None)
            self._upkeep.tidy(stage=not any(self._journals.unfinished()))
            decisions = self._journals.sweep(max(DAY_S, self._retention.days * DAY_S))
            _sweep_trials(self._home)
        worlds = collect_worlds(self._chats, self._home, self._now - self._retention.world_days * DAY_S, dry=dry)
        keep = {digest for digest, worth in self._worth.items() if worth > line}
        since, going = self._stamp.shard if resumes else "", self._paced() if self._going is not None else None
        if not dry:
            after_images(self._folder).sweep((), max(DAY_S, self._now - line), going=going)
        swept = self._images.sweep(keep, DAY_S, dry=dry, since=since, going=going)
        total = sum(image.size for image in images)
        collected = Collected(
            swept.count,
            swept.size,
            len(images) - swept.count,
            total - swept.size,
            len(trees),
            dropped_captures,
            decisions,
            worlds=worlds,
            line=line,
        )
        if not dry and self._folder.is_dir():
            self._write_stamp(line, swept.left_at)
        return collected

    async def forget_commands(self, dry: bool) -> int:
        """Also of deleted chats. Chats of another database that shares this home are left alone."""
        count = 0
        is_deleted = {each.summary.chat: each.summary.deleted for each in await self._store.changes()}
        for chat in await asyncio.to_thread(self._commands.chats):
            self._check_going()
            if chat in self._open or chat not in is_deleted:
                continue
            for command in await self._commands.list_commands(chat):
                if not command.running and command.ended_ms and command.ended_ms / 1000 < self._line:
                    if not is_deleted[chat] and await asyncio.to_thread(self._has_pending_changes, chat, command):
                        continue
                    count += 1
                    if not dry:
                        await self._commands.forget(chat, command.call)
        return count

    def _has_pending_changes(self, chat: ChatId, command: KnownCommand) -> bool:
        """True if an ended background command has changes on its view, neither committed nor discarded (W-10)."""
        if not command.background or self._journals.read(f"{chat}/{command.call}") is not None:
            return False
        with suppress(OSError):
            return bool(os.listdir(f"{self._commands.view(chat, command.call)}/upper"))
        return False

    # -- looking --------------------------------------------------------------------------------------------------

    def _look_at_files(self) -> None:
        for journal in self._journals.unfinished():
            self._refer((reference.digest for file in journal.files for reference in references(file)), EVER)
        for _, capture in self._upkeep.captures():
            self._check_going()
            if capture is not None and (worth := self._capture_worth(capture)) > self._line:
                self._refer(self._upkeep.relied_on(self._upkeep.tree_of(capture)) or (), worth)
        for digests in begun_from(self._home):
            self._check_going()
            self._refer(digests, EVER)
        for tree in self._upkeep.trees():
            self._check_going()
            if tree.last_used_s > self._tree_line(self._line):
                self._refer(self._upkeep.relied_on(tree.file) or (), tree.last_used_s)

    def _refer(self, digests: Iterable[str], worth: float) -> None:
        for digest in digests:
            self._worth[digest] = max(worth, self._worth.get(digest, 0.0))

    def _all_images(self) -> Iterator[StoredContent]:
        for image in self._images.all():
            self._check_going()
            yield image

    def _check_going(self) -> None:
        if self._going is not None and not self._going():
            raise Unfinished

    def _paced(self) -> Callable[[], bool]:
        until, going = time.monotonic() + self._seconds, self._going
        return lambda: time.monotonic() < until and (going is None or going())

    def _write_stamp(self, line: float, shard: str) -> None:
        """Never lower the recorded line: removed data stays removed, even if the next cutoff is earlier."""
        write_stamp(self._home, Stamp(max(line, self._stamp.line), not shard, shard, line))

    def _capture_worth(self, capture: Capture) -> float:
        """Return the time of the last change of its chat, or of the capture itself. Infinite while a comparison with
        the capture is possible: the chat is at work, a background command runs, or the capture is less than a day
        old."""
        chat, made_s = _chat(capture), capture.made_ms / 1000
        if chat in self._open or capture.name in self._running or made_s > self._now - DAY_S:
            return EVER
        updated = [listed.summary.updated_ms / 1000 for listed in self._chats if listed.summary.chat == chat]
        return max([made_s, *updated])

    def _tree_line(self, line: float) -> float:
        return max(line, self._now - TREE_DAYS * DAY_S)

    def _raised(self, images: list[StoredContent]) -> float:
        """The line, as far up as it takes to stay below the cap."""
        line = self._line
        fresh = self._now - DAY_S
        total = sum(
            image.size for image in images if image.last_used_s > fresh or self._worth.get(image.digest, 0.0) > line
        )
        movable = [(self._worth.get(image.digest, 0.0), image.size) for image in images if image.last_used_s <= fresh]
        for worth, size in sorted(pair for pair in movable if line < pair[0] < EVER):
            if total <= self._retention.cap and worth > line:
                break
            line = worth
            total -= size
        return line


def _chat(capture: Capture) -> ChatId:
    return ChatId(capture.name.split("/")[0])


def _sweep_trials(home: Path) -> None:
    """Remove what probes of the sandbox left when they were killed."""
    from treadle.adapters.sandbox.choose import FOLDER
    from treadle.adapters.sandbox.probe import sweep_trials

    sweep_trials(home / FOLDER)
