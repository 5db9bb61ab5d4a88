"""Garbage collection of the data that is stored for undo (`treadle gc`).

The worth of an image is the time of the last change of a chat that refers to it; it is infinite while the chat is at
work. Images whose worth is below a cutoff ("line") are removed. The cutoff lies `Retention.days` in the past, or later
if more bytes are stored than the cap allows. Images used within the last day always stay, because a process may be
about to refer to them. Worlds of sub-agents and of race attempts are removed some time after the calls that created
them have ended (W-11); worlds that people opened are removed only by people."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import asynccontextmanager, suppress
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from treadle._version import __version__
from treadle.adapters.sandbox.supervisor.commands import SupervisedCommands
from treadle.adapters.workspace.history.capture import Capture, Upkeep
from treadle.adapters.workspace.history.content_store import ContentStore, StoredContent, open_after_images
from treadle.adapters.workspace.history.journal import Journals
from treadle.adapters.workspace.history.snapshots import ProjectSnapshots
from treadle.adapters.workspace.root import Root
from treadle.base.file_system import replace_file
from treadle.base.logs import log_warning
from treadle.base.types import ChatId
from treadle.engine.effects import stream_events, stream_references
from treadle.errors import NotFound, ToolError, TreadleError
from treadle.library.housekeeping import retention as limits
from treadle.library.housekeeping.retention import Collected, Retention
from treadle.library.jobs import JobRegistry
from treadle.ports.commands import KnownCommand
from treadle.ports.store import Listed, Store
from treadle.protocol.events import OptionsChanged, SessionCreated
from treadle.protocol.options import ChatOptions
from treadle.protocol.references import iterate_references
from treadle.protocol.subagent_events import make_world_name

if TYPE_CHECKING:
    from treadle.library.worlds.record import World, WorldFolders

TREE_DAYS = 7.0  # So long the tree of a root is remembered that no command was run on.
_CHEAP_S = 0.5


class Mark(msgspec.Struct, frozen=True, array_like=True):
    head: int
    updated_ms: int
    images: frozenset[str]


class _MarksFile(msgspec.Struct, frozen=True):
    version: str  # Of the Treadle that read the logs: another one may see more in them.
    marks: Mapping[str, Mark]


class Marks:
    """The images that each chat refers to, as of its last change. `remembers`: reuse the marks of an earlier pass."""

    def __init__(self, store: Store, home: Path, *, remembers: bool) -> None:
        self._store = store
        self._file = limits.get_undo_folder(home) / "marks"
        self._known: Mapping[str, Mark] = {}
        if remembers:
            with suppress(OSError, msgspec.MsgspecError):
                stored_marks = msgspec.msgpack.decode(self._file.read_bytes(), type=_MarksFile)
                self._known = stored_marks.marks if stored_marks.version == __version__ else {}
        self._seen: dict[str, Mark] = {}
        self._remembers = remembers

    def is_known(self, listed: Listed) -> bool:
        mark, summary = self._known.get(listed.summary.chat), listed.summary
        return mark is not None and (mark.head, mark.updated_ms) == (summary.head, summary.updated_ms)

    async def list_images(self, listed: Listed) -> frozenset[str]:
        summary = listed.summary
        if self.is_known(listed):
            mark = self._known[summary.chat]
        else:
            references = [each async for _, each in stream_references(self._store, summary.chat)]
            images = frozenset(each.digest for each in references if each.kind == "image")
            mark = Mark(summary.head, summary.updated_ms, images)
        self._seen[summary.chat] = mark
        return mark.images

    def write(self, *, all_seen: bool) -> None:
        """Keep what was read; and, unless all chats were asked for that there are, what was known of the others."""
        marks = self._seen if all_seen else {**self._known, **self._seen}
        if self._remembers and marks != self._known:
            replace_file(str(self._file), msgspec.msgpack.encode(_MarksFile(__version__, marks)))


async def find_abandoned_worlds(store: Store, chats: Sequence[Listed], home: Path) -> set[str]:
    """The worlds that were opened for new chats which were never recorded. Those of recorded chats are claimed."""
    if not (home / "worlds").is_dir():
        return set()
    from treadle.library.worlds.record import WorldFolders

    folders = WorldFolders(str(home))
    unclaimed = await asyncio.to_thread(folders.list_unclaimed)
    for listed in chats if unclaimed else ():
        chat = listed.summary.chat
        async for _, event in stream_events(store, chat, {SessionCreated.TYPE, OptionsChanged.TYPE}):
            match event:
                case SessionCreated(options=ChatOptions(world=world)) | OptionsChanged(changes={"world": str(world)}):
                    if world in unclaimed:
                        unclaimed.discard(world)
                        folders.claim(world)
    return unclaimed


def collect_worlds(
    chats: Sequence[Listed], home: Path, line: float, abandoned: Set[str] = frozenset(), *, dry: bool = False
) -> int:
    """Drop the worlds whose chats rest since before `line`, the abandoned ones without changes, and the rest of
    unfinished ones; how many. Used ones stay."""
    if not (home / "worlds").is_dir():  # most users have none, and nothing is to be loaded for them
        return 0
    from treadle.library.worlds.home import WorldGround
    from treadle.library.worlds.record import WorldFolders

    folders, count = WorldFolders(str(home)), 0
    abandoned_worlds = [world for world in folders.iterate_worlds() if world.id in abandoned]
    empty = [world for world in abandoned_worlds if not _is_changed(folders, world, home)]
    for world in (*_find_old_worlds(chats, folders, line), *empty):
        if not dry:
            try:
                with folders.lock_world(world.id, patience_s=0.0):
                    WorldGround(folders, world.id).end()
                    folders.remove(world)
            except ToolError:
                continue
            except NotFound:
                pass  # another process removed it
        count += 1
    if not dry:
        folders.sweep()
    return count


def _is_changed(folders: "WorldFolders", world: "World", home: Path) -> bool:
    """True also if this cannot be found out, as when the project is gone."""
    try:
        snapshots = ProjectSnapshots(Root(world.root, world.root_id), home)
        return bool(snapshots.read_effect(folders.locate_view(world)).files)
    except ToolError:
        return True


def find_world_beginnings(home: Path) -> Iterator[set[str]]:
    """The hashes of what worlds began with, world by world: as long as one is there it may be rebased."""
    if not (home / "worlds").is_dir():
        return
    from treadle.adapters.workspace.history.overlay_upper import Beginnings
    from treadle.library.worlds.record import WorldFolders

    folders = WorldFolders(str(home))
    for world in folders.iterate_worlds():
        view = folders.locate_view(world)
        yield {state.digest for state in Beginnings(view).read_all().values() if state is not None}
        upkeep = Upkeep(Path(view))
        for _, capture in upkeep.iterate_captures():
            yield upkeep.read_kept_hashes(upkeep.get_tree_path(capture)) or set() if capture is not None else set()


def _find_old_worlds(chats: Sequence[Listed], folders: "WorldFolders", line: float) -> "Iterator[World]":
    """Those of worlds before what they are worlds of."""
    worth = {listed.summary.chat: limits.compute_worth(listed) for listed in chats}
    children = [listed.summary for listed in chats if listed.summary.parent]
    began = {make_world_name(each.chat): (each.chat, ChatId(each.parent.partition("/")[0])) for each in children}
    needed_ids: set[str] = set()
    for world in reversed([*folders.iterate_worlds()]):
        child = began.get(world.id)
        if child is None or max(worth.get(chat, 0.0) for chat in child) >= line or world.id in needed_ids:
            needed_ids.add(world.parent)
        else:
            yield world


class Unfinished(Exception):
    """The pass was told to stop before it had seen everything; nothing was removed."""


async def collect(store: Store, home: Path, retention: Retention, *, dry: bool = False) -> Collected:
    """Remove what is not to be kept; with `dry` only say what that is."""
    keeper = _Keeper(store, home, retention, Marks(store, home, remembers=False))
    await keeper.look()
    return replace(await asyncio.to_thread(keeper.remove, dry), commands=await keeper.forget_commands(dry))


async def collect_some(
    store: Store,
    home: Path,
    retention: Retention,
    *,
    seconds: float = limits.EVER,
    going: Callable[[], bool] = lambda: True,
) -> None:
    """Run one pass: read logs, then remove, for at most `seconds` each, while `going`. The next one continues there."""
    limits.get_stamp_path(home).touch()  # so that no other process begins a pass
    marks = await asyncio.to_thread(Marks, store, home, remembers=True)
    keeper = _Keeper(store, home, retention, marks, seconds, going)
    try:
        await keeper.look()
        await asyncio.to_thread(keeper.remove, False)
        await keeper.forget_commands(False)
    except (Unfinished, BlockingIOError):
        limits.write_stamp(home, replace(limits.read_stamp(home), done=False))
    except (OSError, TreadleError):
        with suppress(OSError):  # do not retry a failed pass at once
            limits.write_stamp(home, replace(limits.read_stamp(home), done=True, shard=""))
        raise


async def collect_briefly(store: Store, home: Path, retention: Retention) -> None:
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
        marks: Marks,
        seconds: float = limits.EVER,
        going: Callable[[], bool] | None = None,
    ) -> None:
        self._store, self._home = store, home
        self._folder, self._stamp = limits.get_undo_folder(home), limits.read_stamp(home)
        self._marks, self._seconds, self._going = marks, seconds, going
        self._images, self._upkeep = ContentStore(self._folder), Upkeep(self._folder)
        self._journals = Journals(self._folder / "journals")
        self._commands = SupervisedCommands(home / "commands")
        self._retention, self._now = retention, time.time()
        self._line = self._now - retention.days * limits.DAY_S
        self._worth: dict[str, float] = {}
        self._open: set[str] = set()
        self._running: set[str] = set()
        self._chats: list[Listed] = []
        self._abandoned: set[str] = set()

    async def look(self) -> None:
        self._chats = await self._store.list()
        self._abandoned = await find_abandoned_worlds(self._store, self._chats, self._home)
        all_seen = False
        try:
            await self._look_at_logs()
            all_seen = True
        finally:
            await asyncio.to_thread(self._marks.write, all_seen=all_seen)
        for chat in {_parse_chat(capture) for _, capture in self._upkeep.iterate_captures() if capture is not None}:
            for call in await self._commands.list_running(chat):
                self._running.add(f"{chat}/{call.partition('~')[0]}")
        await asyncio.to_thread(self._look_at_files)

    async def _look_at_logs(self) -> None:
        until = time.monotonic() + self._seconds
        for listed in self._chats:
            if (worth := limits.compute_worth(listed)) == limits.EVER:
                self._open.add(listed.summary.chat)
            if worth < self._line:
                continue
            late = time.monotonic() > until and not self._marks.is_known(listed)
            self._refer(await self._marks.list_images(listed), worth)
            if late:  # but a pass that comes this far has read one more
                raise Unfinished
            self._check_going()

    def remove(self, dry: bool) -> Collected:
        resumes = self._going is not None and bool(self._stamp.shard)
        # The cutoff that keeps the size below the cap is computed once; a resumed pass reads it from the stamp.
        images: list[StoredContent] = []
        for image in () if resumes else self._images.iterate_objects():
            self._check_going()
            images.append(image)
        line = max(self._line, self._stamp.goal) if resumes else self._raise_line(images)
        if not dry and self._folder.is_dir():
            self._write_stamp(line, self._stamp.shard if resumes else "0")  # before anything is missing
        trees = [tree for tree in self._upkeep.list_trees() if tree.last_used_s <= self._compute_tree_line(line)]
        dropped_captures = 0
        for file, capture in self._upkeep.iterate_captures():
            if capture is not None and self._weigh_capture(capture) <= line:
                dropped_captures += 1
                if not dry:
                    self._upkeep.drop_capture(file, capture)
        decisions = 0
        if not dry:
            # Trees first: a process without a stored tree reads all files again, and needs no image removed now.
            self._upkeep.drop_trees(self._compute_tree_line(line), wait=self._going is None)
            self._upkeep.tidy(stage=not any(self._journals.list_unfinished()))
            decisions = self._journals.sweep(max(limits.DAY_S, self._retention.days * limits.DAY_S))
            from treadle.adapters.sandbox.choose import FOLDER
            from treadle.adapters.sandbox.probe import sweep_trials

            sweep_trials(self._home / FOLDER)  # what probes of the sandbox left when they were killed
        world_line = self._now - self._retention.world_days * limits.DAY_S
        worlds = collect_worlds(self._chats, self._home, world_line, self._abandoned, dry=dry)
        keep = {digest for digest, worth in self._worth.items() if worth > line}
        until, is_going = time.monotonic() + self._seconds, self._going
        going = None if is_going is None else lambda: time.monotonic() < until and is_going()
        if not dry:
            open_after_images(self._folder).sweep((), max(limits.DAY_S, self._now - line), going=going)
        since = self._stamp.shard if resumes else ""
        swept = self._images.sweep(keep, limits.DAY_S, dry=dry, since=since, going=going)
        if not dry and self._folder.is_dir():
            self._write_stamp(line, swept.left_at)
        count, size = len(images) - swept.count, sum(image.size for image in images) - swept.size
        removed = (len(trees), dropped_captures, decisions)
        return Collected(swept.count, swept.size, count, size, *removed, worlds=worlds, line=line)

    async def forget_commands(self, dry: bool) -> int:
        """Also of deleted chats. Chats of another database that shares this home are left alone."""
        count = 0
        is_deleted = {each.summary.chat: each.summary.deleted for each in await self._store.list_changes()}
        for chat in await asyncio.to_thread(self._commands.list_chats):
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
            return bool(os.listdir(f"{self._commands.locate_view(chat, command.call)}/upper"))
        return False

    def _look_at_files(self) -> None:
        for journal in self._journals.list_unfinished():
            references = (each for file in journal.files for each in iterate_references(file))
            self._refer((each.digest for each in references), limits.EVER)
        for _, capture in self._upkeep.iterate_captures():
            self._check_going()
            if capture is not None and (worth := self._weigh_capture(capture)) > self._line:
                self._refer(self._upkeep.read_kept_hashes(self._upkeep.get_tree_path(capture)) or (), worth)
        for digests in find_world_beginnings(self._home):
            self._check_going()
            self._refer(digests, limits.EVER)
        for tree in self._upkeep.list_trees():
            self._check_going()
            if tree.last_used_s > self._compute_tree_line(self._line):
                self._refer(self._upkeep.read_kept_hashes(tree.file) or (), tree.last_used_s)

    def _refer(self, digests: Iterable[str], worth: float) -> None:
        for digest in digests:
            self._worth[digest] = max(worth, self._worth.get(digest, 0.0))

    def _check_going(self) -> None:
        if self._going is not None and not self._going():
            raise Unfinished

    def _write_stamp(self, line: float, shard: str) -> None:
        """Never lower the recorded line: removed data stays removed, even if the next cutoff is earlier."""
        limits.write_stamp(self._home, limits.Stamp(max(line, self._stamp.line), not shard, shard, line))

    def _weigh_capture(self, capture: Capture) -> float:
        """The last change of its chat or of itself; infinite while it may be compared: at work, or under a day old."""
        chat, made_s = _parse_chat(capture), capture.made_ms / 1000
        if chat in self._open or capture.name in self._running or made_s > self._now - limits.DAY_S:
            return limits.EVER
        updated = [listed.summary.updated_ms / 1000 for listed in self._chats if listed.summary.chat == chat]
        return max([made_s, *updated])

    def _compute_tree_line(self, line: float) -> float:
        return max(line, self._now - TREE_DAYS * limits.DAY_S)

    def _raise_line(self, images: list[StoredContent]) -> float:
        """The line, as far up as it takes to stay below the cap."""
        line, fresh = self._line, self._now - limits.DAY_S
        sizes = [(self._worth.get(image.digest, 0.0), image.last_used_s > fresh, image.size) for image in images]
        total = sum(size for worth, is_fresh, size in sizes if is_fresh or worth > line)
        movable = [(worth, size) for worth, is_fresh, size in sizes if not is_fresh]
        for worth, size in sorted(pair for pair in movable if line < pair[0] < limits.EVER):
            if total <= self._retention.cap and worth > line:
                break
            line = worth
            total -= size
        return line


def _parse_chat(capture: Capture) -> ChatId:
    return ChatId(capture.name.split("/")[0])


HOUR_S = 3600.0
_LOOK_S = 60.0  # So often it is looked whether an hour has passed, or a pass is left to go on with.
_SELDOM = 60  # Every so many looks at jobs are at those of all chats.
_LEAVE_S = 5.0


@asynccontextmanager
async def run_housekeeping(store: Store, home: Path, retention: Retention, jobs: JobRegistry) -> AsyncIterator[None]:
    """While the block lasts, no more is kept for undoing than may be, and jobs that have ended are closed."""
    ending = asyncio.Event()

    async def collect_if_due(_number: int) -> None:
        if await asyncio.to_thread(limits.is_due, home, HOUR_S):
            await collect_some(store, home, retention, going=lambda: not ending.is_set())

    async def close_jobs(number: int) -> None:
        """Jobs of chats that this process knows, often; those of all chats of the home, seldom."""
        await jobs.sweep(everything=number % _SELDOM == 0)

    tasks = [
        asyncio.create_task(_repeat(collect_if_due, ending, "the undo data was not cleaned up", HOUR_S)),
        asyncio.create_task(_repeat(close_jobs, ending, "background commands were not looked through", _LOOK_S)),
    ]
    try:
        yield
    finally:
        ending.set()
        await asyncio.wait(tasks, timeout=_LEAVE_S)  # a thread that removes must see it; a database may hang
        for task in tasks:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


async def _repeat(
    work: Callable[[int], Awaitable[None]], ending: asyncio.Event, failure: str, pause_after_error_s: float
) -> None:
    for number in count():
        if ending.is_set():
            return
        pause_s = _LOOK_S
        try:
            await work(number)
        except (OSError, TreadleError) as error:
            log_warning("%s: %s", failure, error)
            pause_s = pause_after_error_s
        with suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                await ending.wait()
