"""The context of commands and lists: the app, the connection, the chat; and the purposes of the composer."""

import asyncio
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from treadle.base.inert import make_inert_line
from treadle.diff.changes import count
from treadle.errors import InvalidInput, TreadleError
from treadle.frontends.presentation.conversation import Note
from treadle.frontends.tui.app import TreadleApp
from treadle.frontends.tui.composer import Draft
from treadle.frontends.tui.connection import ChatLink, OpenQuestion, Outcome
from treadle.frontends.tui.drawing import Look
from treadle.frontends.tui.screens import Confirm, Picker

if TYPE_CHECKING:
    from treadle.frontends.tui.app import Connection


class Purpose(msgspec.Struct, frozen=True):
    kind: Literal["feedback", "edit", "queued", "rename", "again"]
    words: str
    question: OpenQuestion | None = None
    arguments: Mapping[str, Any] = {}
    target: str = ""


class CommandContext:
    def __init__(self, app: TreadleApp) -> None:
        self.app = app
        self.next_chat_options: dict[str, Any] = {}  # options for the next chat
        self._purpose: Purpose | None = None
        self._draft = Draft()
        self._sending = asyncio.Lock()
        """Held until a message is sent: a second one makes no second chat and does not overtake the first, whose files
        may take a while to read."""
        self._cut_at = -1  # the last event of the log when the chat's run was found to have no worker

    @property
    def connection(self) -> "Connection":
        assert self.app.connection is not None
        return self.app.connection

    def require_link(self) -> ChatLink:
        """The chat; InvalidInput if there is none yet."""
        if self.app.link is None:
            raise InvalidInput("there is no chat yet; say something first")
        return self.app.link

    @property
    def root(self) -> str:
        return self.app.conversation.view.options.root or self.app.start.root

    async def open(self, link: ChatLink) -> None:
        self.app.showing.attach(link)
        rows = await self.connection.list_chat_rows(limit=500)
        heads = [row.head for row in rows if row.id == link.id and row.status == "pending"]
        self._cut_at = heads[0] if heads and not self.connection.stays else -1

    def ask_for(self, purpose: Purpose, text: str = "") -> None:
        """Use the composer for this, until Enter or Esc."""
        if self._purpose is None:
            self.take_up_draft()
            self._draft = self.app.composer.draft
        self._purpose = purpose
        self.app.composer.put(text)
        self.app.screen.set_focus(self.app.composer)  # at once: the next key is for the composer
        self.app.showing.draw_facts()

    def put_draft_aside(self) -> None:
        """Empty the composer, so that the card takes keys."""
        if self._purpose is None and self.app.composer.text:
            self._draft = self.app.composer.draft
            self.app.composer.clear_all()

    def take_up_draft(self) -> None:
        """Put the message back that `put_draft_aside` took away."""
        if self._purpose is None and self._draft.text:
            self.app.composer.give_back(self._draft)
            self._draft = Draft()

    async def say(self, text: str, images: Any, *, steers: bool = False, draft: Draft | None = None) -> None:
        """Send a message; without a chat it begins one. The user knows who gets to see it (S-10). A message that could
        not be sent goes back to the composer, before anything that was typed meanwhile."""
        app = self.app
        try:
            async with self._sending:
                if not await self._ensure_chat():
                    app.composer.give_back(draft or Draft(text))
                    return
                self._cut_at = -1
                await self.require_link().send(text, "steering" if steers else "queued", images)
            app.transcript.go_to_end()
        except TreadleError as error:
            app.composer.give_back(draft or Draft(text))
            app.conversation.add_local(Note(text=str(error), colour="red", mark="error"))
            app.showing.draw()

    async def find_current_model(self) -> str:
        """The model of the chat, or of the next one; empty if none is known."""
        if model := self.app.showing.options.model or self.app.start.model:
            return model
        choice = await self.connection.find_default_model()
        return "" if choice is None else choice.model

    async def attach(self, path: str, label: str = "") -> None:
        """Make a picture part of the message. InvalidInput: the model cannot see it."""
        model = await self.find_current_model()
        rows = {row.model: row for row in await self.connection.list_model_rows()}
        if model in rows and not rows[model].vision:
            usable_first = sorted(rows.values(), key=lambda row: bool(row.unusable_reason))
            vision_models = ", ".join([row.model for row in usable_first if row.vision][:6])
            seeing = f"these can: {vision_models}; choose one with /model" if vision_models else "none here can"
            raise InvalidInput(f"{make_inert_line(model, 80)} cannot see images, so it was not attached; {seeing}")
        self.app.composer.add_chip("image", label or path.rpartition("/")[2], "", path)
        self.app.composer.focus()

    async def _ensure_chat(self) -> bool:
        """Begin a chat if there is none; False if the user did not agree to its model. The caller holds `_sending`."""
        if self.app.link is not None:
            return True
        model = self.next_chat_options.get("model") or self.app.start.model
        if not model:
            if (choice := await self.connection.find_default_model()) is None:
                raise InvalidInput("no model is chosen yet; choose one with /model")
            model = choice.model
        if not await self.ensure_consent(model):
            return False
        link = await self.connection.create(**{"model": model, **self.next_chat_options})
        self.app.showing.attach(link, new=True)
        return True

    def tell_outcome(self, word: str, outcome: Outcome) -> None:
        self.app.tell(describe_outcome(word, outcome), grave=bool(outcome.error or outcome.conflicts))

    async def choose(self, picker: Picker[str]) -> str:
        """The value that the person chose; empty if they left."""
        return await self.app.push_screen_wait(picker) or ""

    async def ensure_consent(self, model: str) -> bool:
        """True if the user knows which provider gets to see the project, and agrees."""
        if not (disclosure := await self.connection.get_disclosure(model)):
            return True
        question = f"{disclosure[0].upper()}{disclosure[1:]}."
        if not await self.app.push_screen_wait(Confirm(question, "go on, and do not ask again", "do not")):
            return False
        await self.connection.record_consent(model)
        return True


def describe_outcome(word: str, outcome: Outcome) -> str:
    if outcome.error:
        return f"not {word}: {make_inert_line(outcome.error, 300)}"
    if not (outcome.files or outcome.conflicts):
        return f"there is nothing to be {word}"
    conflicts_text = "".join(f"\nnot changed: {make_inert_line(each, 200)}" for each in outcome.conflicts[:5])
    return f"{word}: {count(outcome.files, 'change')}{conflicts_text}"


def make_look(context: CommandContext, width: int) -> Look:
    app = context.app
    return Look(width, time.time_ns() // 1_000_000, dark=app.current_theme.dark, marks=app.marks)
