"""What is kept so that changes can be undone, and for how long: collecting what nobody needs any more (`treadle gc`).

What an image is worth is when a chat that refers to it last changed; without bound while the chat is at work. What is
worth less than a line goes. The line lies some days back, or, if more is kept than may be, as far up as it takes. What
was used within a day stays in any case: a process may be about to refer to it.
"""

import asyncio
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from msgspec.structs import replace

from treadle.errors import TreadleError
from treadle.housekeeping.marks import Marks
from treadle.housekeeping.retention import (
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
from treadle.housekeeping.worlds import begun_from, collect_worlds
from treadle.ports.commands import Known
from treadle.ports.store import Listed, Store
from treadle.protocol.references import references
from treadle.sandbox.supervisor.commands import SupervisedCommands
from treadle.types import ChatId
from treadle.workspace.history.capture import Capture, Upkeep
from treadle.workspace.history.content_store import ContentStore, StoredContent, after_images
from treadle.workspace.history.journal import Journals

TREE_DAYS = 7.0
"""So long the tree of a root is remembered that no command was run on."""
_CHEAP_S = 0.5


class Unfinished(Exception):
    """The pass was told to stop before it had seen everything; nothing was removed."""


async def collect(store: Store, home: Path, retention: Retention, *, dry: bool = False) -> Collected:
    """Remove what is not to be kept; with `dry` only say what that is."""
    keeper = _Keeper(store, home, retention, time.time(), Marks(store, home, remembers=False))
    await keeper.look()
    found = await asyncio.to_thread(keeper.remove, dry)
    return replace(found, commands=await keeper.forget_commands(dry))


async def collect_some(
    store: Store, home: Path, retention: Retention, *, seconds: float = EVER, going: Callable[[], bool] = lambda: True
) -> None:
    """One pass: read logs for so many seconds at most, and remove for as long, as long as it is `going`. The next pass
    goes on where it stopped. Waits for nobody who keeps something."""
    stamp_of(home).touch()  # so that no other process begins one, too
    marks = await asyncio.to_thread(Marks, store, home, remembers=True)
    keeper = _Keeper(store, home, retention, time.time(), marks, seconds, going)
    try:
        await keeper.look()
        await asyncio.to_thread(keeper.remove, False)
        await keeper.forget_commands(False)
    except (Unfinished, BlockingIOError):
        write_stamp(home, replace(read_stamp(home), done=False))
    except (OSError, TreadleError):
        with suppress(OSError):  # what cannot be done is not tried again at once
            write_stamp(home, replace(read_stamp(home), done=True, shard=""))
        raise


async def now_and_then(store: Store, home: Path, retention: Retention) -> None:
    """A pass of about a second. What goes wrong is told by `treadle gc`."""
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
        # Which line it takes to stay below the cap is asked once; whoever resumes has it.
        images = [] if resumes else list(self._all_images())
        line = max(self._line, self._stamp.goal) if resumes else self._raised(images)
        if not dry and self._folder.is_dir():
            self._write_stamp(line, self._stamp.shard if resumes else "0")  # before anything is missing
        trees = [tree for tree in self._upkeep.trees() if tree.used <= self._tree_line(line)]
        gone = 0
        for file, capture in self._upkeep.captures():
            if capture is not None and self._capture_worth(capture) <= line:
                gone += 1
                if not dry:
                    self._upkeep.drop_capture(file, capture)
        decisions = 0
        if not dry:
            # Trees first: whoever has none reads everything anew, and relies on nothing that goes now.
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
        found = Collected(
            swept.count,
            swept.size,
            len(images) - swept.count,
            total - swept.size,
            len(trees),
            gone,
            decisions,
            worlds=worlds,
            line=line,
        )
        if not dry and self._folder.is_dir():
            self._write_stamp(line, swept.left_at)
        return found

    async def forget_commands(self, dry: bool) -> int:
        """Also of deleted chats. Chats of another database that shares this home are left alone."""
        count = 0
        is_deleted = {each.summary.chat: each.summary.deleted for each in await self._store.changes()}
        for chat in await asyncio.to_thread(self._commands.chats):
            self._check_going()
            if chat in self._open or chat not in is_deleted:
                continue
            for known in await self._commands.known(chat):
                if not known.running and known.ended_ms and known.ended_ms / 1000 < self._line:
                    if not is_deleted[chat] and await asyncio.to_thread(self._has_pending_changes, chat, known):
                        continue
                    count += 1
                    if not dry:
                        await self._commands.forget(chat, known.call)
        return count

    def _has_pending_changes(self, chat: ChatId, command: Known) -> bool:
        """True if an ended background command has changes on its view, neither committed nor discarded (W-10)."""
        if not command.background or self._journals.read(f"{chat}/{command.call}") is not None:
            return False
        with suppress(OSError):
            return bool(os.listdir(f"{self._commands.view(chat, command.call)}/upper"))
        return False

    # -- looking --------------------------------------------------------------------------------------------------

    def _look_at_files(self) -> None:
        for journal in self._journals.unfinished():
            self._refer((found.digest for file in journal.files for found in references(file)), EVER)
        for _, capture in self._upkeep.captures():
            self._check_going()
            if capture is not None and (worth := self._capture_worth(capture)) > self._line:
                self._refer(self._upkeep.relied_on(self._upkeep.tree_of(capture)) or (), worth)
        for digests in begun_from(self._home):
            self._check_going()
            self._refer(digests, EVER)
        for tree in self._upkeep.trees():
            self._check_going()
            if tree.used > self._tree_line(self._line):
                self._refer(self._upkeep.relied_on(tree.file) or (), tree.used)

    def _refer(self, found: Iterable[str], worth: float) -> None:
        for digest in found:
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
        """What is gone stays gone, also when the next line lies further back."""
        write_stamp(self._home, Stamp(max(line, self._stamp.line), not shard, shard, line))

    def _capture_worth(self, capture: Capture) -> float:
        """Without bound as long as somebody may still compare with it: a chat at work, a process in the background."""
        chat, made = _chat(capture), capture.made_ms / 1000
        if chat in self._open or capture.name in self._running or made > self._now - DAY_S:
            return EVER
        updated = [listed.summary.updated_ms / 1000 for listed in self._chats if listed.summary.chat == chat]
        return max([made, *updated])

    def _tree_line(self, line: float) -> float:
        return max(line, self._now - TREE_DAYS * DAY_S)

    def _raised(self, images: list[StoredContent]) -> float:
        """The line, as far up as it takes to stay below the cap."""
        line = self._line
        fresh = self._now - DAY_S
        total = sum(image.size for image in images if image.used > fresh or self._worth.get(image.digest, 0.0) > line)
        movable = [(self._worth.get(image.digest, 0.0), image.size) for image in images if image.used <= fresh]
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
    from treadle.sandbox.choose import FOLDER
    from treadle.sandbox.probe import sweep_trials

    sweep_trials(home / FOLDER)
