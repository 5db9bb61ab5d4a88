"""A home with chats that changed files, at any time in the past."""

import os
import time
from pathlib import Path

import msgspec

from treadle.adapters.stores.memory import MemoryStore
from treadle.adapters.workspace.history.capture import Captures
from treadle.adapters.workspace.history.content_store import ContentStore
from treadle.adapters.workspace.history.journal import Journals
from treadle.adapters.workspace.root import Root
from treadle.base.types import ChatId
from treadle.library.housekeeping.retention import DAY_S
from treadle.protocol import wire
from treadle.protocol.events import Envelope, Event, FilesChanged
from treadle.protocol.files import DiffStat, FileState, make_file_change
from treadle.protocol.views import ChatSummary


class Home:
    def __init__(self, place: Path) -> None:
        self.path = place / "home"
        self.path.mkdir()
        self.top = place / "project"
        self.top.mkdir()
        self.folder = self.path / "snapshots"
        self.images = ContentStore(self.folder)
        self.journals = Journals(self.folder / "journals")
        self.captures = Captures(Root(str(self.top)), self.images, self.folder)
        self.store = MemoryStore()

    def image(self, data: bytes, days: float = 2.0) -> str:
        digest = self.images.put(data)
        self.age(digest, days)
        return digest

    def age(self, digest: str, days: float) -> None:
        past_s = time.time() - days * DAY_S
        os.utime(self.folder / "objects" / digest[:2] / digest, (past_s, past_s))

    def age_all(self, days: float = 2.0) -> None:
        for image in self.images.iterate_objects():
            self.age(image.digest, days)

    async def chat(self, name: str, *old_contents: bytes, days: float = 0.0, **more: object) -> ChatId:
        """A chat that overwrote files with these bytes, so many days ago."""
        files = tuple(
            make_file_change(f"f{number}", FileState("file", 0o644, self.image(data), len(data)), None, DiffStat())
            for number, data in enumerate(old_contents)
        )
        return await self.log(name, FilesChanged(files), days=days, **more)

    async def log(self, name: str, *events: Event, days: float = 0.0, **more: object) -> ChatId:
        """A chat whose log is these events."""
        chat = ChatId(name)
        past_ms = int((time.time() - days * DAY_S) * 1000)
        records = [wire.encode(Envelope(seq, chat, past_ms, event)) for seq, event in enumerate(events, 1)]
        summary = ChatSummary(chat, head=len(records), created_ms=past_ms, updated_ms=past_ms)
        await self.store.create(msgspec.structs.replace(summary, **more), records)
        return chat

    def read_images(self) -> set[bytes]:
        return {self.images.read(image.digest) for image in self.images.iterate_objects()}
