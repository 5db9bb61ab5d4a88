"""The app: its layout, the chat it follows, and what is drawn when. What people do is carried out in `conduct`."""

import asyncio
import os
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import ClassVar

import msgspec
from rich.console import Group
from rich.text import Text
from textual import events
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.timer import Timer
from textual.widgets import OptionList, Static

from treadle.errors import TreadleError
from treadle.inert import inert, inert_line
from treadle.tui.blocks import Note
from treadle.tui.card import Card, Choice
from treadle.tui.composer import Composer
from treadle.tui.conducting import Conducting
from treadle.tui.connection import ChatLink, Connection
from treadle.tui.conversation import Conversation
from treadle.tui.history import History
from treadle.tui.marks import marks_for
from treadle.tui.side import Side
from treadle.tui.transcript import Transcript

FLUSH_S = 0.032
SHARE = 3.0
"""Drawing may take one part of the time, and leave so many to keys and to the run."""
TICK_S = 0.25
LOOK_S = 2.0
LEAVE_S = 3.0
TWICE_S = 0.6
NARROW = 100
WELCOME = "Say what is to be done · / commands · @ files · ! shell · F1 help"


class Start(msgspec.Struct, frozen=True):
    """How the app begins."""

    root: str
    model: str = ""
    prompt: str = ""
    chat: str = ""
    """A chat to go on with: its id, or `last`."""
    picks: bool = False
    """Whether a chat is to be chosen from the list first."""
    first_words: str = ""
    """Shown above an empty conversation."""


class Left(msgspec.Struct, frozen=True):
    """What the app was left with."""

    chat: str = ""
    busy: bool = False
    stays: bool = False
    place: str = ""


class TreadleApp(App[Left]):
    CSS_PATH = "style.tcss"
    TITLE = "Treadle"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+c", "leave", show=False, priority=True),
        Binding("escape", "escape", show=False),
        Binding("ctrl+o", "unfold", show=False, priority=True),
        Binding("ctrl+b", "side", show=False, priority=True),
        Binding("ctrl+g", "editor", show=False, priority=True),
        Binding("ctrl+r", "review", show=False),
        Binding("shift+tab", "mode", show=False, priority=True),
        Binding("f1", "help", show=False),
        Binding("pageup", "scroll(-1)", show=False, priority=True),
        Binding("pagedown", "scroll(1)", show=False, priority=True),
        Binding("ctrl+end", "end", show=False, priority=True),
    ]

    def __init__(
        self,
        connect: Callable[[], Awaitable[Connection]],
        conductor: "Callable[[TreadleApp], Conducting]",
        start: Start,
        *,
        home: Path | None = None,
        theme: str = "",
    ) -> None:
        super().__init__()
        self.start = start
        self.marks = marks_for(getattr(sys.__stdout__, "encoding", "utf-8"))
        self.history = History(home)
        self.home = home
        self._connect = connect
        self._conductor = conductor
        self._theme_name = theme
        self.connection: Connection | None = None
        self.link: ChatLink | None = None
        self.conversation = Conversation()
        self.conduct: Conducting | None = None
        self._following: asyncio.Task[None] | None = None
        self._flushing: Timer | None = None
        self.last_key = 0.0
        self._asked_to_leave = 0.0
        self._escaped = 0.0
        self._frame = 0
        self._drew_s = 0.0
        self._folded: bool | None = None
        """Whether the side is folded by hand; None: by the width."""
        self._files_at = -1
        self._written: dict[str, tuple[str, object]] = {}

    # -- layout -------------------------------------------------------------------------------------------------------

    def compose(self) -> ComposeResult:
        with Horizontal(id="main"):
            with Vertical(id="left"):
                yield Transcript(self.marks)
                yield Card(self.marks, lambda: self.last_key)
                yield Static(id="status")
                yield OptionList(id="offers")
                with Horizontal(id="entry"):
                    yield Static(f"{self.marks.prompt} ", id="prompt")
                    yield Composer(self.history)
                yield Static(id="footer")
            yield Side(self.marks)

    def on_mount(self) -> None:
        chosen = self._theme_name or os.environ.get("TREADLE_THEME", "")
        self.theme = chosen if chosen in self.available_themes else "textual-dark"
        self.composer.focus()
        if self.start.first_words:
            self.conversation.add_local(Note(text=self.start.first_words.strip(), colour="cyan"))
        self.transcript.show(self.conversation)
        self.fold_side()
        self.say_status("starting …")
        self.set_interval(TICK_S, self._tick)
        self.set_interval(LOOK_S, self._look)
        self.call_after_refresh(lambda: self.run_worker(self._begin(), exit_on_error=True))

    @property
    def composer(self) -> Composer:
        return self.query_one(Composer)

    @property
    def transcript(self) -> Transcript:
        return self.query_one(Transcript)

    @property
    def card(self) -> Card:
        return self.query_one(Card)

    @property
    def side(self) -> Side:
        return self.query_one(Side)

    def on_resize(self) -> None:
        self.fold_side()

    def fold_side(self) -> None:
        folded = self.size.width < NARROW if self._folded is None else self._folded
        self.side.set_class(folded, "folded")
        self.set_class(self.size.height < 16, "low")

    # -- the chat -----------------------------------------------------------------------------------------------------

    async def _begin(self) -> None:
        """The screen is there; now what makes it work."""
        try:
            self.connection = await self._connect()
        except TreadleError as error:
            self.say_status(inert_line(str(error)), "red")
            return
        self.conduct = self._conductor(self)
        self.side.place = self.connection.place
        self.say_status("")
        self.draw_facts()
        await self.guarded(self.conduct.begin())

    async def guarded(self, work: Awaitable[None]) -> None:
        """What Treadle refuses is told; it ends nothing."""
        try:
            await work
        except TreadleError as error:
            self.tell(str(error))

    def tell(self, text: str, *, grave: bool = True) -> None:
        self.notify(inert(text), severity="warning" if grave else "information", markup=False, timeout=8)

    def attach(self, link: ChatLink, *, new: bool = False) -> None:
        """Follow a chat from its beginning. A `new` one stands below what the screen has shown so far."""
        if self._following is not None:
            self._following.cancel()
        self.link = link
        before = self.conversation.blocks if new else []
        self.conversation = Conversation()
        for block in before:
            self.conversation.add_local(block)
        self._files_at = -1
        self.side.files, self.side.jobs = (), ()
        self.transcript.show(self.conversation)
        self._following = asyncio.create_task(self._follow(link), name=f"follow {link.id}")

    def detach(self) -> None:
        """Nothing is followed: the next message begins a chat."""
        if self._following is not None:
            self._following.cancel()
        self.link = None
        self.conversation = Conversation()
        self.side.files, self.side.jobs = (), ()
        self.transcript.show(self.conversation)
        self.draw()

    async def _follow(self, link: ChatLink) -> None:
        try:
            async for batch in link.news():
                for envelope in batch:
                    self.conversation.apply(envelope)
                if self._flushing is None:
                    self._flushing = self.set_timer(max(FLUSH_S, SHARE * self._drew_s), self.draw)
        except TreadleError as error:
            self.say_status(f"lost the chat: {inert_line(str(error))}", "red")

    # -- drawing ------------------------------------------------------------------------------------------------------

    def draw(self) -> None:
        self._flushing = None
        if not self.is_running or not self.screen_stack:
            return
        began = time.perf_counter()
        self.transcript.update_blocks()
        self._drew_s = time.perf_counter() - began
        self.draw_facts()
        actions = [
            action
            for action in self.conversation.view.actions
            if action.of_person and not (self.conduct is not None and self.conduct.settles(action))
        ]
        before = self.card.action
        self.card.ask(actions[0] if actions else None, max(0, len(actions) - 1))
        if self.conduct is not None and before is not None and (not actions or actions[0].action != before.action):
            self.conduct.answered(before)
        if self.card.action is None and self.card.has_focus:
            self.composer.focus()

    def draw_facts(self) -> None:
        view = self.conversation.view
        if self.link is None and self.connection is not None:
            from treadle.chat.fold import change_options

            chosen = self.conduct.chosen if self.conduct is not None else {}
            view = msgspec.structs.replace(view, options=change_options(self.connection.initial, chosen))
        self.side.show(view)
        options = view.options
        parts = [inert_line(options.model or self.start.model or "no model", 40), options.mode]
        if view.window:
            parts.append(f"{view.tokens / view.window:.0%} full")
        if cost := view.cost or view.usage.usd:
            parts.append(f"${cost:.4f}")
        if self.side.has_class("folded"):
            if self.side.files:
                parts.append(f"{len(self.side.files)} changed")
            if view.jobs:
                parts.append(f"{len(view.jobs)} in the background")
        if view.queue:
            parts.append(f"{len(view.queue)} queued")
        parts.append(_tail(inert_line(options.root or self.start.root), 40))
        self._write("#footer", Text(" · ".join(part for part in parts if part), no_wrap=True))
        self._draw_status()

    def _draw_status(self) -> None:
        view = self.conversation.view
        if self.conduct is None:
            return
        if (purpose := self.conduct.purpose_words()) and not view.actions:
            self.say_status(purpose, "yellow")
        elif self.conduct.cut_off:
            self.say_status("this run was cut off: Enter goes on with it, Esc ends it", "yellow")
        elif view.busy:
            mark = self.marks.spinner[self._frame % len(self.marks.spinner)] if not view.actions else self.marks.asks
            seconds = max(0, round(time.time() - view.began_ms / 1000)) if view.began_ms else 0
            activity = "waiting for you" if view.actions else view.activity or "working"
            hint = "Enter queues, Ctrl-S steers, Esc stops" if self.size.width >= 70 else "Esc stops"
            self.say_status(f"{mark} {inert_line(activity, 60)} {seconds} s · {purpose or hint}", "yellow")
        elif not self.conversation.blocks:
            self.say_status(WELCOME)
        else:
            self.say_status("")

    def say_status(self, text: str, style: str = "dim") -> None:
        self._write("#status", Text(text, style, no_wrap=True, overflow="ellipsis"))

    def _write(self, place: str, text: Text) -> None:
        """A line that is as high as it was: nothing else has to move."""
        if self._written.get(place) != (text.plain, text.style):
            self._written[place] = (text.plain, text.style)
            self.query_one(place, Static).update(Group(text), layout=False)

    def _tick(self) -> None:
        self._frame += 1
        if self.conversation.view.busy:
            self._draw_status()
            if self._frame % 4 == 0:
                self.transcript.tick()

    async def _look(self) -> None:
        """What no event tells while it happens: the last lines of background commands, the files that are left."""
        link, view = self.link, self.conversation.view
        if link is None:
            return
        try:
            if view.jobs or any(job.status == "running" for job in self.side.jobs):
                self.side.jobs = await link.jobs()
            if self._files_at != self.conversation.seq and not view.busy:
                self._files_at = self.conversation.seq
                self.side.files = await link.changes()
        except TreadleError:
            pass
        self.draw_facts()

    # -- keys ---------------------------------------------------------------------------------------------------------

    async def on_event(self, event: events.Event) -> None:
        if isinstance(event, events.Key | events.Paste):
            self.last_key = time.monotonic()
        await super().on_event(event)

    async def on_composer_submitted(self, message: Composer.Submitted) -> None:
        if self.conduct is None:
            self.composer.put(message.text)
            return
        self.run_worker(self.guarded(self.conduct.submitted(message)))

    def on_composer_completing(self, message: Composer.Completing) -> None:
        if self.conduct is not None:
            self.conduct.completing(message)

    def on_choice(self, choice: Choice) -> None:
        if self.conduct is not None:
            self.run_worker(self.guarded(self.conduct.chose(choice)))

    def action_leave(self) -> None:
        """Ctrl-C: what is written goes first; twice leaves, and says what becomes of the run."""
        if self.composer.text.strip() and self.composer.has_focus:
            self.composer.clear_all()
            return
        now = time.monotonic()
        if now - self._asked_to_leave < LEAVE_S:
            self.leave()
            return
        self._asked_to_leave = now
        self.notify(f"Ctrl-C again quits. {self._what_becomes()}", timeout=LEAVE_S, markup=False)

    def _what_becomes(self) -> str:
        if not self.conversation.view.busy:
            return ""
        if self.connection is not None and self.connection.stays:
            return f"The run goes on at {self.connection.place}."
        return "The run stops where it is, and can be resumed; Esc ends it."

    def action_leave_if_empty(self) -> None:
        if not self.composer.text:
            self.action_leave()

    def leave(self) -> None:
        if self._following is not None:
            self._following.cancel()
        connection = self.connection
        busy = self.conversation.view.busy and self.link is not None
        stays = connection is not None and connection.stays
        place = connection.place if connection is not None else ""
        self.exit(Left(self.link.id if self.link is not None else "", busy, stays, place))

    async def action_escape(self) -> None:
        if self.conduct is None:
            return
        if self.conduct.put_down():
            return
        if self.conversation.view.busy and self.link is not None:
            self.say_status("stopping …", "yellow")
            await self.guarded(self.link.interrupt())
            return
        now = time.monotonic()
        if now - self._escaped < TWICE_S and not self.composer.text:
            self._escaped = 0.0
            self.run_worker(self.guarded(self.conduct.command("rewind", "")))
        else:
            self._escaped = now

    def action_unfold(self) -> None:
        self.transcript.toggle()

    def action_side(self) -> None:
        self._folded = not self.side.has_class("folded")
        self.fold_side()

    def action_scroll(self, way: int) -> None:
        page = max(1, self.transcript.size.height - 2)
        self.transcript.scroll_relative(y=way * page, animate=False)

    def action_end(self) -> None:
        self.transcript.go_to_end()

    def action_editor(self) -> None:
        from treadle.tui.editor import edited

        with self.suspend():
            text = edited(self.composer.text)
        self.refresh()
        if text is not None:
            self.composer.put(text.rstrip("\n"))

    def action_review(self) -> None:
        self._do("review")

    def action_picture(self) -> None:
        self._do("paste")

    def action_help(self) -> None:
        self._do("help")

    def action_mode(self) -> None:
        self._do("mode", "next")

    def _do(self, command: str, rest: str = "") -> None:
        if self.conduct is not None:
            self.run_worker(self.guarded(self.conduct.command(command, rest)))


def _tail(text: str, width: int) -> str:
    """The end of a path says more than its beginning."""
    return text if len(text) <= width else f"…{text[1 - width :]}"
