"""What is kept so that changes can be undone, and for how long: collecting what nobody needs any more (`treadle gc`).

What an image is worth is when a chat that refers to it last changed; without bound while the chat is at work. What is
worth less than a line goes. The line lies some days back, or, if more is kept than may be, as far up as it takes. What
was used within a day stays in any case: a process may be about to refer to it.
"""

import asyncio
import time
from collections.abc import Iterable
from pathlib import Path

from msgspec.structs import replace

from treadle.engine.effects import all_references
from treadle.errors import TreadleError
from treadle.housekeeping.retention import (
    DAY_S,
    EVER,
    Collected,
    Retention,
    folder_of,
    stamp_of,
    worth_of,
    write_stamp,
)
from treadle.ports.store import Listed, Store
from treadle.protocol.references import references
from treadle.sandbox.supervisor.commands import SupervisedCommands
from treadle.types import ChatId
from treadle.workspace.capture import Capture
from treadle.workspace.images import Image, Images
from treadle.workspace.journal import Journals
from treadle.workspace.leavings import LEFT, Leavings
from treadle.workspace.upkeep import Upkeep

TREE_DAYS = 7.0
"""So long the tree of a root is remembered that no command was run on."""
_CHEAP_S = 1.0
_CHEAP_IMAGES = 20_000


class TooMuch(Exception):
    """There is more to look through than there is time."""


async def collect(
    store: Store, home: Path, retention: Retention, *, dry: bool = False, seconds: float = EVER
) -> Collected:
    """Remove what is not to be kept; with `dry` only say what that is. TooMuch, with nothing removed, if it takes more
    than so many seconds to find out."""
    keeper = _Keeper(store, home, retention, time.time(), time.monotonic() + seconds)
    await keeper.look()
    found = await asyncio.to_thread(keeper.remove, dry)
    return replace(found, commands=await keeper.forget_commands(dry))


async def now_and_then(store: Store, home: Path, retention: Retention) -> None:
    """If it can be done in about a second; else it is left to `treadle gc`, which also tells what goes wrong."""
    try:
        stamp_of(home).touch()  # whatever comes of it, it is not tried again today
        await collect(store, home, retention, seconds=_CHEAP_S)
    except (TooMuch, OSError, TreadleError):
        return


class _Keeper:
    """One collection: first look, then remove."""

    def __init__(self, store: Store, home: Path, retention: Retention, now: float, until: float) -> None:
        self._store = store
        self._folder = folder_of(home)
        self._stamp = stamp_of(home)
        self._images = Images(self._folder)
        self._upkeep = Upkeep(self._folder)
        self._journals = Journals(self._folder / "journals")
        self._commands = SupervisedCommands(home / "commands")
        self._retention = retention
        self._now = now
        self._until = until
        self._line = now - retention.days * DAY_S
        self._worth: dict[str, float] = {}
        self._open: set[str] = set()
        self._running: set[str] = set()
        self._chats: list[Listed] = []

    async def look(self) -> None:
        self._chats = await self._store.list()
        for listed in self._chats:
            worth = worth_of(listed)
            if worth == EVER:
                self._open.add(listed.summary.chat)
            if worth < self._line:
                continue
            self._in_time()
            async for _, found in all_references(self._store, listed.summary.chat):
                if found.kind == "image":
                    self._refer([found.digest], worth)
        for chat in {_chat(capture) for _, capture in self._upkeep.captures() if capture is not None}:
            for call in await self._commands.running(chat):
                self._running.add(f"{chat}/{call.partition('~')[0]}")
        await asyncio.to_thread(self._look_at_files)

    def remove(self, dry: bool) -> Collected:
        images = list(self._images.all())
        line = self._raised(images)
        keep = {image.digest for image in images if self._worth.get(image.digest, 0.0) > line}
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
            self._upkeep.drop_trees(self._tree_line(line))
            self._upkeep.tidy(stage=not any(self._journals.unfinished()))
            decisions = self._journals.sweep(max(DAY_S, self._retention.days * DAY_S))
            Leavings(self._folder / LEFT).sweep(max(DAY_S, self._now - line))
        swept = self._images.sweep(keep, DAY_S, dry=dry)
        total = sum(image.size for image in images)
        found = Collected(
            swept.count,
            swept.size,
            len(images) - swept.count,
            total - swept.size,
            len(trees),
            gone,
            decisions,
            line=line,
        )
        if not dry and self._folder.is_dir():
            write_stamp(self._stamp, found)
        return found

    async def forget_commands(self, dry: bool) -> int:
        count = 0
        for listed in self._chats:
            chat = listed.summary.chat
            if chat in self._open:
                continue
            for known in await self._commands.known(chat):
                if not known.running and known.ended_ms and known.ended_ms / 1000 < self._line:
                    count += 1
                    if not dry:
                        await self._commands.forget(chat, known.call)
        return count

    # -- looking --------------------------------------------------------------------------------------------------

    def _look_at_files(self) -> None:
        for journal in self._journals.unfinished():
            self._refer((found.digest for file in journal.files for found in references(file)), EVER)
        for _, capture in self._upkeep.captures():
            self._in_time()
            if capture is not None and (worth := self._capture_worth(capture)) > self._line:
                self._refer(self._upkeep.relied_on(self._upkeep.tree_of(capture)) or (), worth)
        for tree in self._upkeep.trees():
            self._in_time()
            if tree.used > self._tree_line(self._line):
                self._refer(self._upkeep.relied_on(tree.file) or (), tree.used)

    def _refer(self, found: Iterable[str], worth: float) -> None:
        for digest in found:
            self._worth[digest] = max(worth, self._worth.get(digest, 0.0))

    def _in_time(self) -> None:
        if time.monotonic() > self._until:
            raise TooMuch

    def _capture_worth(self, capture: Capture) -> float:
        """Without bound as long as somebody may still compare with it: a chat at work, a process in the background."""
        chat, made = _chat(capture), capture.made_ms / 1000
        if chat in self._open or capture.name in self._running or made > self._now - DAY_S:
            return EVER
        updated = [listed.summary.updated_ms / 1000 for listed in self._chats if listed.summary.chat == chat]
        return max([made, *updated])

    def _tree_line(self, line: float) -> float:
        return max(line, self._now - TREE_DAYS * DAY_S)

    def _raised(self, images: list[Image]) -> float:
        """The line, as far up as it takes to stay below the cap."""
        if self._until < EVER and (len(images) > _CHEAP_IMAGES or self._images.in_use()):
            raise TooMuch
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
