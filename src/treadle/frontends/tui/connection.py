"""The interface of the app to the runner of the chats: this process, or a server. Protocols, and the few values that
both use; errors are those of `treadle.errors`, whose sentences are shown."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from treadle.diff.hunks import FileDiff
from treadle.errors import TreadleError
from treadle.protocol.events import Delivery, Envelope, OpenAction
from treadle.protocol.http_answers import RuleView
from treadle.protocol.options import EFFORTS, ChatOptions
from treadle.protocol.permissions import RuleScope
from treadle.protocol.views import ChildView, Status

if TYPE_CHECKING:
    from treadle.client.chats import ClientChat
    from treadle.client.worlds import ClientWorlds
    from treadle.library.chat import Chat
    from treadle.library.model_choice import ModelChoice
    from treadle.library.skills.reading import CustomAgent, OwnCommand
    from treadle.library.worlds.worlds import Worlds


class ChatRow(msgspec.Struct, frozen=True):
    """One line of the list of chats."""

    id: str
    title: str
    status: Status
    root: str
    model: str
    updated_ms: int
    archived: bool = False
    head: int = 0
    """The seq of its last event."""
    parent: str = ""
    """The chat whose call began it."""
    matching_text: str = ""
    """Where the words that were looked for stand in it."""


class ModelRow(msgspec.Struct, frozen=True):
    model: str
    window: int = 0
    unusable_reason: str = ""
    """The requirement that is missing before it can be used."""
    vision: bool = True
    """True if it accepts images."""
    place: str = ""
    """The server on this machine that has it."""
    efforts: Sequence[str] = EFFORTS
    """The levels of reasoning effort that can be chosen for it; empty: it has none."""


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
    """The result of an undo, a redo or a keep of files."""

    files: int
    conflicts: tuple[str, ...] = ()
    error: str = ""


class ChatLink(Protocol):
    """One chat. Methods that are the same for chats of this process and of a server are implemented here."""

    _chat: "Chat | ClientChat"

    @property
    def id(self) -> str:
        return self._chat.id

    def news(self, after_seq: int = 0) -> AsyncIterator[Sequence[Envelope]]:
        """All events recorded behind `after_seq`, then new ones as they happen, until the reader closes."""
        ...

    async def send(self, text: str, delivery: Delivery = "queued", images: Sequence[str] = ()) -> None:
        """`images` are paths of files."""
        ...

    async def run_command(self, line: str) -> None:
        """A command of the person's own, on the same view as the model's, recorded and undoable like one."""
        await self._chat.run_command(line)

    async def interrupt(self) -> None:
        await self._chat.interrupt()

    async def go_on(self) -> bool:
        """Take up a run that no worker drives; False if there is none."""
        ...

    async def approve(
        self, action: OpenAction, *, arguments: Mapping[str, Any] | None = None, offer: int = -1,
        scope: RuleScope = "chat",
    ) -> None: ...  # fmt: skip

    async def deny(self, action: OpenAction, feedback: str = "") -> None:
        await self._chat.deny(action, feedback)

    async def answer(self, action: OpenAction, text: str) -> None:
        await self._chat.answer(action, text)

    async def arguments(self, action: OpenAction) -> Mapping[str, Any]: ...

    async def children(self) -> Sequence[ChildView]:
        """The chats that its calls began, and theirs."""
        ...

    async def asked_below(self) -> Sequence[OpenQuestion]:
        """The questions of those chats."""
        ...

    async def change(self, **options: Any) -> None:
        """Options, `title` among them."""
        ...

    async def delete(self) -> None:
        """Delete the chat for good; refused while it works."""
        ...

    async def compact(self) -> None:
        await self._chat.compact()

    async def edit_queued(self, id: str, text: str) -> None: ...

    async def drop_queued(self, id: str) -> None: ...

    async def promote(self, id: str) -> None: ...

    async def changes(self, *, everything: bool = False) -> Sequence[FileDiff]:
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

    async def back_to(self, message: int, *, conversation: bool, files: bool) -> Outcome: ...

    async def jobs(self) -> Sequence[JobRow]:
        rows = []
        for job in await self._chat.jobs():
            last = ""
            with suppress(TreadleError):
                last = (await job.tail(-500)).text.strip().rpartition("\n")[2]
            pending = f", {job.view.pending} uncommitted" if job.view.pending else ""
            status = f"{job.view.status}{pending}"
            rows.append(JobRow(job.view.job, job.view.command, status, job.view.began_ms, last))
        return rows

    async def stop_job(self, job: str) -> None:
        for each in await self._chat.jobs():
            if each.view.job == job:
                await each.stop()

    async def export(self) -> bytes: ...


class Connection(Protocol):
    """All chats of this home, or of a server."""

    @property
    def worlds(self) -> "Worlds | ClientWorlds":
        """The worlds in which chats work (W-11 to W-13)."""
        ...

    @property
    def place(self) -> str:
        """Where the chats run, in words."""
        ...

    @property
    def stays(self) -> bool:
        """True if a run goes on when the app is left."""
        ...

    @property
    def away(self) -> bool:
        """True if the server cannot be reached at the moment."""
        ...

    @property
    def initial(self) -> ChatOptions:
        """The options of a new chat, as far as they are known here."""
        ...

    async def default_model(self) -> "ModelChoice | None":
        """The model of a chat that names none, and why; None: a person must choose."""
        ...

    async def create(self, **options: Any) -> ChatLink: ...

    async def open(self, id: str) -> ChatLink:
        """By its id, the beginning of it, or `last`; NotFound."""
        ...

    async def fork(self, id: str, seq: int) -> ChatLink: ...

    async def chats(self, query: str = "", *, archived: bool = False, limit: int = 200) -> Sequence[ChatRow]: ...

    async def models(self) -> Sequence[ModelRow]: ...

    @property
    def takes_keys(self) -> bool:
        """True if keys and addresses can be entered here."""
        ...

    async def store_key(self, provider: str, variable: str, key: str) -> str:
        """Keep a key for later runs, unless the provider refuses it; returns the place in words."""
        ...

    async def add_server(self, url: str, key: str) -> int:
        """Keep the address of a server whose models are `custom:NAME`; returns how many it has."""
        ...

    async def own_commands(self, root: str, chat: str = "") -> "Mapping[str, OwnCommand]":
        """Prompts under a name: the user's, the project's trusted ones, and those of MCP servers; of a chat, or for the
        next one."""
        ...

    async def resources(self, root: str, chat: str = "") -> Sequence[str]:
        """The resources that can be attached as `@server:uri`, without the @; likewise."""
        ...

    async def custom_agents(self, root: str) -> "Mapping[str, CustomAgent]":
        """Ways to work under a name, likewise."""
        ...

    async def rules(self, chat: str = "") -> Sequence[RuleView]:
        """The standing rules of projects and of the user, and those of a chat."""
        ...

    async def revoke(self, rule: RuleView) -> None: ...

    async def disclosure(self, model: str) -> str:
        """The notice that the user must see before this model is used; empty if there is none (S-10)."""
        ...

    async def consent(self, model: str) -> None: ...

    async def close(self) -> None: ...
