"""The app: its first frame, keys, and leaving. The frame needs no chat, so that it is there at once; its content
(`showing`) and the person's actions (`controller`) are loaded behind it."""

import asyncio
import os
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, cast

from textual import events
from textual._compositor import CompositorUpdate
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.geometry import Offset
from textual.screen import Screen
from textual.timer import Timer

from treadle.base.inert import make_inert, make_inert_line
from treadle.errors import TreadleError
from treadle.frontends.presentation.rich_text import Drawable, Group, Text
from treadle.frontends.tui.composer import SEND_KEYS, Composer, History
from treadle.frontends.tui.desktop import copy_to_desktop
from treadle.frontends.tui.marks import LIGHT, Colourless, InertFilter, Plain, Static, choose_marks
from treadle.frontends.tui.painting import Painter

if TYPE_CHECKING:
    from treadle.frontends.presentation.conversation import Conversation
    from treadle.frontends.tui.card import Card, Choice
    from treadle.frontends.tui.connection import ChatLink, OpenQuestion
    from treadle.frontends.tui.drawing import Side
    from treadle.frontends.tui.embedded import Embedded
    from treadle.frontends.tui.remote import Remote
    from treadle.frontends.tui.transcript import Transcript
    from treadle.protocol.options import ChatOptions

    Connection = Embedded | Remote  # all chats of this home, or of a server

LEAVE_S = 3.0
TWICE_S = 0.6
NARROW = 100  # columns below which the panel at the side is folded
LOW = 16  # rows below which the footer and frames give way to the conversation
_KEYS = {"escape": "escape", "ctrl+r": "do('history')", "f1": "do('help')", "f2": "do('review')"}
_PRIORITY_KEYS = {
    "ctrl+c": "leave", "ctrl+o": "unfold", "ctrl+b": "side", "ctrl+g": "editor", "ctrl+z": "suspend_process",
    "shift+tab": "do('mode', 'next')", "ctrl+l": "redraw", "pageup": "scroll(-1)", "pagedown": "scroll(1)",
    "ctrl+end": "end",
}  # fmt: skip


class Start(NamedTuple):
    root: str
    model: str = ""
    prompt: str = ""
    chat: str = ""  # a chat to go on with: its id, or `last`
    picks: bool = False  # true if the person chooses a chat from the list first
    first_words: str = ""  # shown above an empty conversation
    make_demo: Callable[[], tuple[str, str]] | None = None
    """Makes the project of the demonstration; returns its root and its model."""


class AppExit(NamedTuple):
    chat: str = ""
    busy: bool = False
    stays: bool = False
    place: str = ""


class Showing(Protocol):
    """The chat that is followed, and what is drawn of it when; see `showing.ChatDisplay`. Loaded behind the first
    frame, like the next."""

    conversation: "Conversation"
    link: "ChatLink | None"
    transcript: "Transcript"
    card: "Card"
    side: "Side"

    @property
    def options(self) -> "ChatOptions": ...
    async def mount(self) -> None: ...
    def attach(self, link: "ChatLink", *, new: bool = False) -> None: ...
    def detach(self) -> None: ...
    def leave(self) -> None: ...
    async def look_below(self) -> None: ...
    def draw(self) -> None: ...
    def draw_facts(self) -> None: ...


class Controlling(Protocol):
    """Carries out the person's actions; see `controller.Controller`."""

    next_chat_options: dict[str, Any]

    @property
    def cut_off(self) -> bool: ...
    async def begin(self) -> None: ...
    def submit_message(self, message: Composer.Submitted) -> None: ...
    async def handle_choice(self, choice: "Choice") -> None: ...
    async def run_slash_command(self, name: str, arguments: str) -> None: ...
    async def attach(self, path: str) -> None: ...
    def offer_completions(self, message: Composer.Completing) -> None: ...
    def settle_if_typed(self, question: "OpenQuestion") -> bool: ...
    def handle_card_closed(self, question: "OpenQuestion") -> None: ...
    def take_up_draft(self) -> None: ...
    def put_down(self) -> bool: ...
    def describe_purpose(self) -> str: ...


class TreadleApp(App[AppExit]):
    CSS_PATH = "style.tcss"
    TITLE = "Treadle"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(key, action, show=False) for key, action in _KEYS.items()),
        *(Binding(key, action, show=False, priority=True) for key, action in _PRIORITY_KEYS.items()),
    ]

    def __init__(
        self,
        connect: "Callable[[], Awaitable[Connection]]",
        show: "Callable[[TreadleApp], Showing]",
        make_controller: "Callable[[TreadleApp], Controlling]",
        start: Start,
        *,
        home: Path | None = None,
        theme: str = "",
    ) -> None:
        super().__init__()
        self.ansi_theme_light = LIGHT
        self.start = start
        self.marks = choose_marks(getattr(sys.__stdout__, "encoding", "utf-8"))
        self.history = History(home)
        self.home = home
        self._connect = connect
        self._show = show
        self._make_controller = make_controller
        self._theme_name = theme
        self.connection: Connection | None = None
        self.controller: Controlling | None = None
        self._showing: Showing | None = None
        self.last_key = 0.0
        self._asked_to_leave = 0.0
        self._escaped = 0.0
        self._folded: bool | None = None
        """True if the side is folded by hand, False if it is unfolded by hand; None: the width decides."""
        self._is_narrow = self._is_low = False
        self._filters.append(InertFilter())
        if not self.marks.unicode:
            self._filters.append(Plain())
        if self.no_color:
            self._filters.append(Colourless())
        self._written: dict[str, tuple[str, object]] = {}
        self._painter = Painter()
        self.last_screenful: list[str] = []  # the end of the conversation, as it is written when the app is left

    # -- layout -------------------------------------------------------------------------------------------------------

    def compose(self) -> ComposeResult:
        with Horizontal(id="main"):
            with Vertical(id="left"):
                yield Vertical(id="stage")
                yield Static(id="status")
                with Horizontal(id="entry"):
                    yield Static(Text(f"{self.marks.prompt} "), id="prompt")
                    yield Composer(self.history, self._submit_message)
                yield Static(id="footer")
            with VerticalScroll(id="side", can_focus=False):
                yield Static(id="facts")

    def _display(self, screen: "Screen[Any]", renderable: Any) -> None:
        driver = self._driver
        is_written = self._running and not (self._closed or self._batch_count or self.is_headless)
        if isinstance(renderable, CompositorUpdate) and is_written and driver is not None and not driver.is_inline:
            renderable = self._painter.compute_difference(renderable, self.size, self.console)
        super()._display(screen, renderable)

    def write_above(self, lines: Sequence[str]) -> None:
        """In line: write lines above the app, where they become part of the terminal's scrollback."""
        if self._driver is None or not lines:
            return
        _, y = self._previous_cursor_position
        back = (f"\x1b[{y}A" if y else "") + "\r"
        self._driver.write(f"{back}\x1b[J" + "\r\n".join(lines) + "\r\n")
        self._previous_cursor_position = Offset(0, 0)
        self.refresh()

    def set_timer(self, *arguments: Any, **settings: Any) -> Timer:
        """Textual takes a timer that is due before it begins to wait, on a machine that stalls, for one that is over.
        It would neither draw nor adopt a new size of the terminal again."""
        timer = super().set_timer(*arguments, **settings)
        timer._skip = False
        return timer

    def action_redraw(self) -> None:
        self._painter.forget()
        self.screen.refresh(layout=True)

    def on_mount(self) -> None:
        self.app_resume_signal.subscribe(self, lambda _app: self.action_redraw())
        theme_name = self._theme_name or os.environ.get("TREADLE_THEME", "")
        self.theme = theme_name if theme_name in self.available_themes else "textual-dark"
        self.composer.focus()
        self._is_narrow, self._is_low = self.size.width < NARROW, self.size.height < LOW
        if self.is_inline:
            self._folded = True
        self.fold_side()
        self.say_status("starting …")
        self.call_after_refresh(lambda: self.run_worker(cast(Any, self._begin), exit_on_error=True))

    async def _begin(self) -> None:
        self._showing = self._show(self)
        await self._showing.mount()
        try:
            self.connection = await self._connect()
        except TreadleError as error:
            self.say_status(str(error), "red")
            return
        self.controller = self._make_controller(self)
        self.showing.draw_facts()
        await self.await_guarded(self.controller.begin())

    @property
    def composer(self) -> Composer:
        return self.query_one(Composer)

    @property
    def showing(self) -> "Showing":
        assert self._showing is not None, "not before the first frame"
        return self._showing

    @property
    def conversation(self) -> "Conversation":
        return self.showing.conversation

    @property
    def link(self) -> "ChatLink | None":
        return self.showing.link

    @property
    def transcript(self) -> "Transcript":
        return self.showing.transcript

    @property
    def card(self) -> "Card":
        return self.showing.card

    def on_resize(self, event: events.Resize) -> None:
        self._painter.forget()
        if (event.size.width < NARROW) != self._is_narrow:
            self._is_narrow = not self._is_narrow
            self._folded = True if self.is_inline else None  # the choice by hand was made for the other width
        self._is_low = event.size.height < LOW  # `size` is still the one before
        self.fold_side()
        if self._showing is not None:  # lines that are cut to the width
            self.call_after_refresh(self._showing.draw_facts)

    @property
    def folded(self) -> bool:
        return self._is_narrow if self._folded is None else self._folded

    def fold_side(self) -> None:
        self.query_one("#side").set_class(self.folded, "folded")
        self.set_class(self._is_low, "low")

    # -- words --------------------------------------------------------------------------------------------------------

    async def await_guarded(self, work: Awaitable[object]) -> None:
        """Show a TreadleError of `work` as a notice; the app goes on."""
        try:
            await work
        except TreadleError as error:
            self.tell(str(error))

    def run_guarded(self, work: Callable[..., Awaitable[object]], *arguments: object, **settings: Any) -> None:
        """Do `work` in a worker, with its errors as notices. A worker that ends before it began makes no coroutine."""

        async def do_guarded() -> None:
            await self.await_guarded(work(*arguments))

        self.run_worker(cast(Any, do_guarded), **settings)

    def tell(self, text: str, *, grave: bool = True) -> None:
        self.notify(text, severity="warning" if grave else "information", timeout=8)

    def notify(self, message: str, *, title: str = "", markup: bool = False, **settings: Any) -> None:
        super().notify(make_inert(message), title=make_inert_line(title), markup=markup, **settings)

    def say_status(self, text: str, style: str = "dim") -> None:
        self.write("#status", Text(make_inert_line(text), style, no_wrap=True, overflow="ellipsis"))

    def write(self, place: str, drawable: Drawable, *, grows: bool = False) -> None:
        """Without `grows` it is a line that is as high as it was: nothing else has to move."""
        if isinstance(drawable, Text):
            if self._written.get(place) == (drawable.plain, drawable.style):
                return
            self._written[place] = (drawable.plain, drawable.style)
        self.query_one(place, Static).update(Group(drawable), layout=grows)

    # -- keys ---------------------------------------------------------------------------------------------------------

    async def on_event(self, event: events.Event) -> None:
        if isinstance(event, events.Key | events.Paste) and not event.is_forwarded:
            self.last_key = time.monotonic()
            focused = self.screen.focused  # `has_focus` of a widget follows later: this key would be lost
            if isinstance(event, events.Key) and isinstance(focused, Composer):
                focused._forward_event(event)  # also priority keys: they wait for the text before them
                return
            if self._showing is not None and len(self.screen_stack) == 1 and focused is not self.composer:
                if isinstance(event, events.Key) and focused is self.card and self.card.take_key(event):
                    return
                has_text = bool(self.composer.text.strip())
                if isinstance(event, events.Paste) or event.is_printable or (has_text and event.key in SEND_KEYS):
                    self._begin_message()
        await super().on_event(event)

    def _begin_message(self) -> None:
        """Text that is typed or pasted anywhere goes to the composer, a key that the card held before it; so does the
        key that sends a text that is there."""
        held_key = self.card.yield_to_message()
        if self.controller is not None:
            self.controller.take_up_draft()
        self.screen.set_focus(self.composer)
        if held_key is not None:
            self.composer._forward_event(held_key)

    def _submit_message(self, message: Composer.Submitted) -> None:
        if self.controller is None:
            self.composer.give_back(message.draft)
        else:
            self.controller.submit_message(message)

    def on_composer_attaching(self, message: Composer.Attaching) -> None:
        if self.controller is not None:
            self.run_guarded(self.controller.attach, message.path)

    def on_composer_completing(self, message: Composer.Completing) -> None:
        if self.controller is not None:
            self.controller.offer_completions(message)

    def on_choice(self, choice: "Choice") -> None:
        if self.controller is not None:
            self.run_guarded(self.controller.handle_choice, choice)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool:
        """Keys of the conversation have no effect while a screen is over it."""
        return len(self.screen_stack) == 1 or action not in ("scroll", "do", "unfold", "side", "editor", "end")

    def action_leave(self) -> None:
        """Ctrl-C stops the run; without one it clears what is written. The second press quits."""
        now, busy = time.monotonic(), self._showing is not None and self.conversation.view.busy
        if now - self._asked_to_leave < LEAVE_S:
            self.leave()
        elif self.composer.text.strip() and self.composer.has_focus and not busy:
            self.composer.clear_all()
        else:
            self._asked_to_leave = now
            self.notify("Ctrl-C again quits.", timeout=LEAVE_S)
            if busy:
                self._stop_run()

    def _stop_run(self) -> None:
        if self.link is not None:
            self.say_status("stopping …", "yellow")
            self.run_guarded(self.link.chat.interrupt)

    def action_leave_if_empty(self) -> None:
        """Ctrl-D quits when all is sent, unless a key is pressed before that; a run on a server goes on."""
        if not self.composer.text:
            self.run_guarded(self._leave_when_sent, self.last_key)

    async def _leave_when_sent(self, pressed_at: float) -> None:
        sending = [each.wait() for each in self.workers if each.group == "sending"]
        with suppress(TimeoutError):
            await asyncio.wait_for(asyncio.gather(*sending, return_exceptions=True), LEAVE_S)
        if not self.composer.text and self.last_key == pressed_at:  # the text would be one that could not be sent
            self.leave()

    def leave(self) -> None:
        self.history.add(self.composer.text)
        showing, connection = self._showing, self.connection
        if showing is None or showing.link is None or connection is None:
            self.exit(AppExit())
            return
        showing.leave()
        most = 10_000 if self.is_inline else max(1, self.size.height - 4)
        self.last_screenful = showing.transcript.render_last_lines(most)
        self.exit(AppExit(showing.link.id, showing.conversation.view.busy, connection.stays, connection.place))

    def action_escape(self) -> None:
        if self.controller is None or self.controller.put_down():
            return
        if self.conversation.view.busy and self.link is not None:
            self._stop_run()
            return
        now = time.monotonic()
        if now - self._escaped < TWICE_S and not self.composer.text:
            self._escaped = 0.0
            self.run_guarded(self.controller.run_slash_command, "edit", "")
        else:
            self._escaped = now

    def action_unfold(self) -> None:
        if self._showing is not None:
            self.transcript.toggle()

    def action_side(self) -> None:
        self._folded = not self.folded
        self.fold_side()

    def action_scroll(self, way: int) -> None:
        if self._showing is not None:
            self.transcript.scroll_relative(y=way * max(1, self.transcript.size.height - 2), animate=False)

    def action_end(self) -> None:
        if self._showing is not None:
            self.transcript.go_to_end()

    def action_editor(self) -> None:
        from treadle.frontends.tui.desktop import edit_text

        with self.suspend():
            text = edit_text(self.composer.text)
        self.refresh()
        if text is not None:
            self.composer.put(text.rstrip("\n"))

    def on_text_selected(self) -> None:
        """Copy text that is selected with the mouse when the button is released."""
        if text := self.screen.get_selected_text():
            from treadle.diff.changes import count  # the first frame does not wait for it

            self.copy_to_clipboard(text)
            self.notify(f"copied: {count(len(text), 'character')}", timeout=2)

    def copy_to_clipboard(self, text: str) -> None:
        """By the terminal (OSC 52), and by the desktop's own program where there is one."""
        super().copy_to_clipboard(make_inert(text))
        self.run_guarded(copy_to_desktop, make_inert(text), group="copy", exclusive=True)

    def action_do(self, command: str, arguments: str = "") -> None:
        if self.controller is not None:
            self.run_guarded(self.controller.run_slash_command, command, arguments)
