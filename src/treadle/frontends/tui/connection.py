"""What `embedded` (chats of this process) and `remote` (chats of a server) have in common: a chat on a screen, and the
rows of lists. Errors are those of `treadle.errors`, whose sentences are shown."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from treadle.diff.changes import format_changes
from treadle.diff.diff import FileDiff
from treadle.errors import TreadleError
from treadle.protocol.chat_api import ChatApi
from treadle.protocol.events import Delivery, Envelope, OpenAction, Restored
from treadle.protocol.files import decode_path
from treadle.protocol.options import EFFORTS
from treadle.protocol.views import Status

if TYPE_CHECKING:
    from treadle.client.chats import Restoration
    from treadle.ports.snapshots import Plan


class ChatRow(msgspec.Struct, frozen=True):
    id: str
    title: str
    status: Status
    root: str
    model: str
    updated_ms: int
    archived: bool = False
    head: int = 0  # the seq of its last event
    parent: str = ""  # the chat whose call began it
    matching_text: str = ""  # where the words that were looked for stand in it


class ModelRow(msgspec.Struct, frozen=True):
    model: str
    window: int = 0
    unusable_reason: str = ""  # the requirement that is missing before it can be used
    vision: bool = True  # true if it accepts images
    place: str = ""  # the server on this machine that has it
    efforts: Sequence[str] = EFFORTS  # the levels of reasoning effort that can be chosen for it; empty: it has none


class OpenQuestion(msgspec.Struct, frozen=True):
    """A question to a person: by the chat that is shown, or by one that its calls began (`below`)."""

    action: OpenAction
    chat: str
    title: str = ""
    below: bool = False

    @property
    def key(self) -> tuple[str, str]:
        return self.chat, self.action.action


class JobRow(msgspec.Struct, frozen=True):
    job: str
    command: str
    status: str
    began_ms: int
    last_line: str = ""


class Outcome(msgspec.Struct, frozen=True):
    files: int
    conflicts: tuple[str, ...] = ()
    error: str = ""


def preview_lines(plan: "Plan | Restoration") -> list[str]:
    return [*format_changes(plan.files, decode_path), *(f"! {each.path}: {each.reason}" for each in plan.conflicts)]


def make_outcome(result: "Restored | Restoration", files: int) -> Outcome:
    conflicts = tuple(f"{decode_path(each.path)}: {each.reason}" for each in result.conflicts)
    return Outcome(result.total or files, conflicts, result.error)


class ChatLink(Protocol):
    """One chat on a screen: `chat` takes the commands of a person, the methods are what only a screen needs."""

    chat: ChatApi

    @property
    def id(self) -> str:
        return self.chat.id

    def stream_events(self, after_seq: int = 0) -> AsyncIterator[Sequence[Envelope]]:
        """All events recorded behind `after_seq`, then new ones as they happen, until the reader closes."""
        ...

    async def send(self, text: str, delivery: Delivery = "queued", images: Sequence[str] = ()) -> None:
        """Send what a person typed. `images` are paths of files."""
        ...

    async def go_on(self) -> bool:
        """Take up a run that no worker drives; False if there is none."""
        ...

    async def list_questions_below(self) -> Sequence[OpenQuestion]:
        """The questions of the chats that its calls began, and of theirs."""
        ...

    async def change(self, **options: Any) -> None:
        """Options, `title` among them."""
        await self.chat.change(**options)

    async def list_file_diffs(self, *, everything: bool = False) -> Sequence[FileDiff]:
        """Of the last run of which something is left; or of all."""
        ...

    async def undo(
        self, paths: Sequence[str] = (), hunks: Mapping[str, Sequence[int]] | None = None, *, everything: bool = False
    ) -> Outcome: ...

    async def redo(self) -> Outcome: ...

    async def keep(self, paths: Sequence[str] = (), hunks: Mapping[str, Sequence[int]] | None = None) -> Outcome: ...

    async def preview_back(self, message: int) -> Sequence[str]:
        """The effect on files of going back to before this message, in lines."""
        ...

    async def go_back_to(self, message: int, *, conversation: bool, files: bool) -> Outcome: ...

    async def list_job_rows(self) -> Sequence[JobRow]:
        rows = []
        for job in await self.chat.jobs():
            last = ""
            with suppress(TreadleError):
                last = (await job.tail(-500)).text.strip().rpartition("\n")[2]
            pending = f", {job.view.pending} uncommitted" if job.view.pending else ""
            rows.append(JobRow(job.view.job, job.view.command, f"{job.view.status}{pending}", job.view.began_ms, last))
        return rows

    async def export(self) -> bytes:
        return await self.chat.export()
