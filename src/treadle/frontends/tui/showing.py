"""The chat that the app follows, and what is drawn of it when. Loaded behind the first frame."""

import asyncio
import gc
import time
from collections.abc import Sequence
from contextlib import suppress

from msgspec.structs import replace
from textual.containers import Vertical
from textual.timer import Timer
from textual.widgets import OptionList

from treadle.adapters.workspace.file_names import read_branch
from treadle.base.inert import make_inert_line
from treadle.chat.fold import change_options
from treadle.errors import TreadleError
from treadle.frontends.presentation.conversation import Conversation, Note
from treadle.frontends.presentation.overview import Overview
from treadle.frontends.presentation.rich_text import Text
from treadle.frontends.presentation.styled import format_model_name, shorten_to_tail
from treadle.frontends.tui.app import TreadleApp
from treadle.frontends.tui.card import Card
from treadle.frontends.tui.connection import ChatLink, OpenQuestion
from treadle.frontends.tui.drawing import Side
from treadle.frontends.tui.transcript import Transcript
from treadle.protocol.options import ChatOptions

FLUSH_S = 0.032
SHARE = 3.0  # drawing may take one part of the time, and leave so many to keys and to the run
TICK_S = 0.25
TICKS_PER_S = 4
LOOK_S = 2.0
TIDY_S = 20.0
QUIET_S = 1.0
HINT = "Enter queues, Ctrl-S steers, Esc stops"
WELCOME = "What should I work on? · / commands · @ files · ! shell · F1 help"


class ChatDisplay:
    def __init__(self, app: TreadleApp) -> None:
        self._app = app
        self.conversation = Conversation()
        self.link: ChatLink | None = None
        self.transcript = Transcript(app.marks)
        self.card = Card(app.marks, lambda: app.last_key, lambda: not app.composer.text)
        self.side = Side(app.marks, lambda facts: app.write("#facts", facts, grows=True))
        self._following: asyncio.Task[None] | None = None
        self._flushing: Timer | None = None
        self._drew_s = 0.0
        self._frame = 0
        self._ticking: Timer | None = None  # moves the spinner and the timers, while a run is under way
        self._files_at = -1
        self._lost = ""  # why the chat cannot be followed, if so
        self._below: Sequence[OpenQuestion] = ()
        self._below_lock = asyncio.Lock()

    async def mount(self) -> None:
        """Take the places that the first frame left open."""
        app = self._app
        await app.query_one("#stage", Vertical).mount(self.transcript)
        left_pane = app.query_one("#left", Vertical)
        await left_pane.mount(self.card, after="#stage")
        await left_pane.mount(OptionList(id="offers"), before="#entry")
        if words := app.start.first_words.strip():
            self.conversation.add_local(Note(text=words, colour="cyan"))
        self.transcript.show(self.conversation)
        self._ticking = app.set_interval(TICK_S, self._tick, pause=True)
        app.set_interval(LOOK_S, self._look_up_facts)
        app.set_interval(TIDY_S, self._tidy)

    def attach(self, link: ChatLink, *, new: bool = False) -> None:
        """Follow a chat from its beginning. A `new` one stands below what the screen has shown so far."""
        self.leave()
        old_blocks = self.conversation.blocks if new else []
        self._lost = ""
        self._show(Conversation())
        for block in old_blocks:
            self.conversation.add_local(block)
        self.link = link
        self._following = asyncio.create_task(self._follow(link), name=f"follow {link.id}")

    def detach(self) -> None:
        self.leave()
        self.link = None
        self._show(Conversation())
        self.draw()

    def leave(self) -> None:
        if self._following is not None:
            self._following.cancel()

    def _show(self, conversation: Conversation) -> None:
        self.conversation = conversation
        self._files_at = -1
        self._below = ()
        self.side.files, self.side.jobs, self.side.children = (), (), ()
        self.transcript.show(conversation)

    async def _follow(self, link: ChatLink) -> None:
        while True:
            try:
                async for batch in link.stream_events(self.conversation.seq):
                    self._lost = ""
                    for envelope in batch:
                        self.conversation.apply(envelope)
                    if self._flushing is None:
                        self._flushing = self._app.set_timer(max(FLUSH_S, SHARE * self._drew_s), self.draw)
            except TreadleError as error:
                self._lost = f"lost the chat: {make_inert_line(str(error))}"
            await asyncio.sleep(LOOK_S)

    async def _look_up_facts(self) -> None:
        """Look up facts that no event reports: the last lines of background commands, the remaining changed files."""
        link, view = self.link, self.conversation.view
        if self._app.connection is not None and not self._app.connection.stays:
            root = view.options.root or self._app.start.root
            self.side.branch = await asyncio.to_thread(read_branch, root)
        if link is None:
            self.draw_facts()
            return
        with suppress(TreadleError):
            if view.jobs or any(job.status == "running" for job in self.side.jobs):
                self.side.jobs = await link.list_job_rows()
            if self._files_at != self.conversation.seq and not view.busy:
                self._files_at = self.conversation.seq
                self.side.files = await link.list_file_diffs()
        self.draw_facts()

    async def look_below(self) -> None:
        """See anew what the chats ask that calls of this one began."""
        link, child_ids = self.link, self.conversation.view.children
        if link is None or self._below_lock.locked():
            return
        async with self._below_lock:
            try:
                rows = await link.chat.children() if child_ids else ()
                questions = await link.list_questions_below() if any(row.waits for row in rows) else ()
            except TreadleError:
                return
        if link is self.link:
            self.side.children = tuple(row for row in rows if row.chat in child_ids or not row.ended)
            self._below = questions
            self.draw()

    def draw(self) -> None:
        self._flushing = None
        app = self._app
        if not app.is_running or not app.screen_stack:
            return
        began = time.perf_counter()
        self.transcript.update_blocks()
        if app.is_inline:
            app.write_above(self.transcript.release())
        self._drew_s = time.perf_counter() - began
        self.draw_facts()
        self._draw_card()
        if self._ticking is not None:
            (self._ticking.resume if self.conversation.view.busy else self._ticking.pause)()
        if self.card.action is None and self.card.is_focused:
            self.card.screen.set_focus(app.composer)  # at once: a hidden card with the focus would swallow Enter

    def _draw_card(self) -> None:
        controller, old_question = self._app.controller, self.card.asked
        chat = self.link.id if self.link is not None else ""
        actions = [action for action in self.conversation.view.actions if action.of_person and chat]
        own_questions = [OpenQuestion(action, chat) for action in actions]
        own_questions = [each for each in own_questions if controller is None or not controller.settle_if_typed(each)]
        asked_key = old_question.key if old_question is not None else None  # it stays: a key may be on its way to it
        questions = sorted([*own_questions, *self._below], key=lambda each: each.key != asked_key)
        self.card.ask(questions[0] if questions else None, max(0, len(questions) - 1))
        is_closed = old_question is not None and (not questions or questions[0].key != old_question.key)
        if controller is not None and old_question is not None and is_closed:
            controller.handle_card_closed(old_question)

    @property
    def options(self) -> ChatOptions:
        """Those of the chat, or of the next one."""
        app = self._app
        if self.link is not None or app.connection is None:
            return self.conversation.view.options
        changes = app.controller.next_chat_options if app.controller is not None else {}
        return change_options(app.connection.initial, changes)

    def draw_facts(self) -> None:
        app, view = self._app, replace(self.conversation.view, options=self.options)
        self.side.place = app.connection.place if app.connection is not None else ""
        self.side.show(view)
        app.write("#footer", Text(self._format_footer(view), no_wrap=True))
        self._draw_status()

    def _format_footer(self, view: Overview) -> str:
        app, options = self._app, view.options
        model = format_model_name(options.model or app.start.model or "no model", 40)
        cost = view.cost or view.usage.usd
        parts = (
            f"{model} ({options.reasoning_effort})" if options.reasoning_effort else model,
            options.mode,
            f"{view.tokens / view.window:.0%} full" if view.window else "",
            f"${cost:.4f}" if cost else "",
            f"{len(self.side.files)} changed" if app.folded and self.side.files else "",
            f"{len(view.jobs)} in the background" if app.folded and view.jobs else "",
            f"{len(view.queue)} queued" if view.queue else "",
        )
        footer = " · ".join(part for part in parts if part)
        room = app.query_one("#footer").size.width - len(footer) - 5
        if room <= 8:
            return footer
        return f"{footer} · {shorten_to_tail(make_inert_line(options.root or app.start.root), min(room, 40))}"

    def _tidy(self) -> None:
        """Collect garbage among all objects while no key is pressed: it takes longer than a key should wait."""
        if gc.get_freeze_count() and time.monotonic() - self._app.last_key > QUIET_S:
            gc.collect()

    def _draw_status(self) -> None:
        app, view = self._app, self.conversation.view
        if app.controller is None:
            return
        if app.connection is not None and app.connection.away:
            app.say_status(f"{make_inert_line(app.connection.place)} cannot be reached; it is tried again", "red")
        elif self._lost:
            app.say_status(self._lost, "red")
        elif (purpose := app.controller.describe_purpose()) and not view.actions:
            app.say_status(purpose, "yellow")
        elif app.controller.cut_off:
            app.say_status("this run was cut off: Enter goes on with it, Esc ends it", "yellow")
        elif view.busy:
            waits = bool(view.actions or self._below)
            mark = app.marks.asks if waits else app.marks.spinner[self._frame % len(app.marks.spinner)]
            seconds = max(0, round(time.time() - view.began_ms / 1000)) if view.began_ms else 0
            activity = "waiting for you" if waits else view.activity or "working"
            status = f"{mark} {make_inert_line(activity, 60)} {seconds} s · "
            room = app.query_one("#status").size.width - 2 - len(status)
            hint = HINT if len(HINT) <= room and not waits else "Esc stops"
            app.say_status(f"{status}{purpose or hint}", "yellow")
        elif not self.conversation.blocks:
            app.say_status(WELCOME)
        else:
            app.say_status("")

    def _tick(self) -> None:
        self._frame += 1
        self._draw_status()
        if self._frame % TICKS_PER_S == 0:
            self.transcript.update_blocks()
            if self.conversation.view.children or self._below or self.side.children:
                self._app.run_guarded(self.look_below, group="below")
