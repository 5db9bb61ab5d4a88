"""Screens over the app: a list to choose from, a text to read, a question to answer by one key, a line to enter."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from inspect import isawaitable
from typing import Any, ClassVar, Generic, TypeVar, cast

from rich.style import Style
from textual.app import ComposeResult
from textual.await_complete import AwaitComplete
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.events import Key
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList
from textual.widgets.option_list import Option
from textual.worker import Worker, WorkerCancelled

from treadle.base.inert import make_inert_line
from treadle.errors import TreadleError
from treadle.frontends.presentation.rich_text import Drawable, Text
from treadle.frontends.tui.drawing import draw_key_hints
from treadle.frontends.tui.marks import Static

T = TypeVar("T")
_LEAVE_KEYS = ("escape", "ctrl+c")
_MOVES = {"up": "cursor_up", "down": "cursor_down", "pageup": "page_up", "pagedown": "page_down"}


class Layer(ModalScreen[T]):
    """A screen over the app. Its keys take effect in the order in which they were typed: a focused widget that queues
    keys passes each one to `on_key` first. A key has no effect if the screen is left, or below another one, by then."""

    def dismiss(self, result: T | None = None) -> AwaitComplete:
        """Leave this screen. Textual would take away the screen on top, whichever that is."""
        self.workers.cancel_node(self)  # a key may wait for one of them
        return super().dismiss(result) if self.is_active else AwaitComplete()

    async def take_key(self, key: str) -> bool:
        """True if the key is one of this screen's own; then it has taken effect."""
        if key in _LEAVE_KEYS:
            self.dismiss()
        return key in _LEAVE_KEYS

    async def on_key(self, event: Key) -> None:
        event.stop()  # the app would use it for the screen below
        if not self.is_active or await self.take_key(event.key) or await self.app._check_bindings(event.key):
            event.prevent_default()


class LineInput(Input):
    async def _on_key(self, event: Key) -> None:
        if not event.is_printable:
            await cast(Layer[Any], self.screen).on_key(event)


class RowList(OptionList):
    async def _on_key(self, event: Key) -> None:
        await cast(Layer[Any], self.screen).on_key(event)


class Entry(Generic[T]):
    """A line of the list. `value` None: a heading, or words, which may take several lines."""

    def __init__(self, label: str | Text, value: T | None) -> None:
        self.label = label if isinstance(label, Text) else Text(label, no_wrap=True, overflow="ellipsis")
        if isinstance(self.label.style, str):  # it would be read as CSS, whose cyan is another than the terminal's
            self.label.style = Style.parse(self.label.style)
        self.value = value


Found = Callable[[str], Sequence[Entry[T]] | Awaitable[Sequence[Entry[T]]]]  # the entries that match a query


class Picker(Layer[T | None]):
    """A list over the whole screen. `act` is the action of one of `keys` on the chosen entry: None closes the list; a
    text is shown, as is a TreadleError, and the list is rebuilt. An action goes on when the list is left meanwhile."""

    DEFAULT_CSS = """
    Picker { align: center middle; background: $background 60%; }
    Picker > Vertical { width: 95%; max-width: 160; height: 90%; border: round $accent;
        padding: 0 1; background: $surface; }
    Picker #rows { height: 1fr; border: none; background: $surface; scrollbar-size-vertical: 1; }
    Picker #rows > .option-list--option-disabled { color: $text-muted; }
    Picker #preview { display: none; height: 1fr; width: 1fr; padding: 0 1; border-left: solid $panel; }
    Picker.wide #preview { display: block; }
    Picker #query { border: none; height: 1; padding: 0; background: $surface; }
    Picker #keys { height: auto; color: $text-muted; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding(",".join(_LEAVE_KEYS), "dismiss", show=False, priority=True)]

    def __init__(
        self,
        title: str,
        find_entries: Found[T],
        *,
        keys: dict[str, str] | None = None,
        act: Callable[[str, T], Awaitable[str | None]] | None = None,
        preview: Callable[[T], Awaitable[Drawable]] | None = None,
        searches: bool = True,
        query: str = "",
    ) -> None:
        super().__init__()
        self._title, self._keys, self._query = title, keys or {}, query
        self._found, self._act, self._preview = find_entries, act, preview
        self._searches = searches
        self._entries: list[Entry[T]] = []
        self._listed_query: str | None = None  # the words whose entries are listed
        self._loading: Worker[Any] | None = None
        self._is_free = asyncio.Event()  # not set while an action is under way with no screen over the list
        self._is_free.set()

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Static(Text(self._title, "bold"), id="heading")
            if self._searches:
                yield LineInput(self._query, placeholder="type to search", id="query", compact=True)
            with Horizontal():
                yield RowList(id="rows")
                with VerticalScroll(id="preview"):
                    yield Static(id="shown")
            keys = {"enter": "choose", **self._keys, "esc": "back"}
            names = [key.replace("ctrl+", "Ctrl-").replace("enter", "Enter").replace("esc", "Esc") for key in keys]
            hints = draw_key_hints(zip(names, keys.values(), strict=True), max(30, self.app.size.width - 8))
            yield Static(hints, id="keys")

    def on_mount(self) -> None:
        self.on_resize()
        for widget in list(self.query("#query, #rows"))[:1]:  # none, if the app is left meanwhile
            widget.focus()
        self._start_load()

    def on_resize(self) -> None:
        self.set_class(self._preview is not None and self.size.width >= 100, "wide")

    def _get_query(self) -> str:
        return next((line.value for line in self.query(LineInput)), self._query)

    async def _load(self, query: str) -> None:
        try:
            found_entries = self._found(query)
            entries = list(await found_entries if isawaitable(found_entries) else found_entries)
        except TreadleError as error:
            entries = [Entry(Text(make_inert_line(str(error)), "red"), None)]
        if not self.query("#rows"):  # it was left meanwhile
            return
        rows = self.query_one(OptionList)
        old_highlight = rows.highlighted if query == self._listed_query else None
        self._entries, self._listed_query = entries, query
        rows.clear_options()
        rows.add_options([Option(entry.label, disabled=entry.value is None) for entry in self._entries])
        if self._entries:
            first = next((at for at, entry in enumerate(self._entries) if entry.value is not None), 0)
            rows.highlighted = first if old_highlight is None else min(old_highlight, len(self._entries) - 1)
        else:
            rows.add_option(Option(Text("nothing here", "dim"), disabled=True))
            self._put(Text())

    def get_highlighted(self) -> T | None:
        at = self.query_one(OptionList).highlighted
        return self._entries[at].value if at is not None and at < len(self._entries) else None

    def _start_load(self) -> None:
        """Load in a worker, which a later one of its group ends. Its coroutine is made when it begins."""
        query = self._get_query()
        self._loading = self.run_worker(cast(Any, partial(self._load, query)), query, group="load", exclusive=True)

    def on_input_changed(self) -> None:
        if self._loading is None or self._loading.name != self._get_query():
            self._start_load()

    def on_option_list_option_highlighted(self) -> None:
        value = self.get_highlighted()
        if self._preview is not None and value is not None and self.has_class("wide"):
            self.run_worker(cast(Any, partial(self._show, value)), group="preview", exclusive=True)

    async def _show(self, value: T) -> None:
        assert self._preview is not None
        try:
            self._put(await self._preview(value))
        except TreadleError as error:
            self._put(Text(str(error), "dim"))

    def _put(self, drawable: Drawable) -> None:
        for place in self.query("#shown").results(Static):  # none, if the list was left meanwhile
            place.update(drawable)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool:
        """Esc waits for the keys before it, but not for work that is already under way."""
        return action != "dismiss" or not self._is_free.is_set() or self._get_query() != self._listed_query

    def on_screen_suspend(self) -> None:
        self._is_free.set()

    async def take_key(self, key: str) -> bool:
        """Keys wait for the action before them; moves and actions also for the entries of the typed words."""
        await self._is_free.wait()
        if key not in ("enter", *_MOVES, *self._keys):
            return not self.is_active or await super().take_key(key)
        if self._get_query() != self._listed_query:
            self.on_input_changed()
            with suppress(WorkerCancelled):
                await cast(Worker[Any], self._loading).wait()
        if not self.is_active or self._get_query() != self._listed_query:
            return True
        if key in _MOVES:
            getattr(self.query_one(OptionList), f"action_{_MOVES[key]}")()
        else:
            self._use_entry(key)
        return True

    def on_option_list_option_selected(self) -> None:  # by the mouse
        self._use_entry("enter")

    def _use_entry(self, key: str) -> None:
        value = self.get_highlighted()
        if value is not None and (self._act is None or key not in self._keys):
            self.dismiss(value)
        elif value is not None and self._is_free.is_set():
            self._is_free.clear()
            self.app.run_worker(cast(Any, partial(self._carry_out, key, value)))

    async def _carry_out(self, key: str, value: T) -> None:
        assert self._act is not None
        try:
            message = await self._act(key, value)
        except TreadleError as error:
            message = make_inert_line(str(error))
        finally:
            self._is_free.set()
        if message:
            self.app.notify(message)
        if message is None:
            self.dismiss()
        elif self.is_attached:
            self._start_load()


class Reading(Layer[str]):
    """A text to read. Its result is the key by which it was left, if that is one of `keys`."""

    DEFAULT_CSS = """
    Reading { align: center middle; background: $background 60%; }
    Reading > Vertical { width: 95%; max-width: 110; height: auto; max-height: 90%; border: round $accent;
        padding: 0 1; background: $surface; }
    Reading VerticalScroll { height: auto; max-height: 1fr; scrollbar-size-vertical: 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("q,enter", "dismiss", show=False)]

    def __init__(self, title: str, text: Drawable, keys: Mapping[str, str] | None = None) -> None:
        super().__init__()
        self._title = title
        self._text = text
        self._keys = keys or {}

    def compose(self) -> ComposeResult:
        with Vertical() as box:
            words = "".join(f"{key} {does}, " for key, does in self._keys.items())
            box.border_subtitle = f"{words}Esc back" if words else "Esc leaves"
            yield Static(Text(self._title, "bold"))
            with VerticalScroll():
                yield Static(self._text)

    async def take_key(self, key: str) -> bool:
        if key in self._keys:
            self.dismiss(key)
        return key in self._keys or await super().take_key(key)


class Confirm(Layer[bool]):
    DEFAULT_CSS = """
    Confirm { align: center middle; background: $background 60%; }
    Confirm > Vertical { width: 90%; max-width: 90; height: auto; border: round $warning; padding: 0 1;
        background: $surface; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "dismiss(True)", show=False),
        Binding("n", "dismiss(False)", show=False),
    ]

    def __init__(self, text: str, yes: str = "yes", no: str = "no") -> None:
        super().__init__()
        self._text, self._yes, self._no = text, yes, no

    def compose(self) -> ComposeResult:
        keys = draw_key_hints((("y", self._yes), ("n", self._no)), max(30, self.app.size.width - 12))
        with Vertical():
            yield Static(Text(self._text))
            yield Static(keys)


class TextPrompt(Layer[str | None]):
    DEFAULT_CSS = """
    TextPrompt { align: center middle; background: $background 60%; }
    TextPrompt > Vertical { width: 90%; max-width: 90; height: auto; border: round $accent; padding: 0 1;
        background: $surface; }
    TextPrompt Input { border: none; height: 1; padding: 0; background: $surface; }
    """

    def __init__(self, question: str, *, secret: bool = False) -> None:
        super().__init__()
        self._question = question
        self._secret = secret

    def compose(self) -> ComposeResult:
        with Vertical() as box:
            box.border_subtitle = "Enter confirms · Esc goes back"
            yield Static(Text(self._question))
            yield LineInput(password=self._secret, compact=True)

    async def take_key(self, key: str) -> bool:
        if key == "enter":
            self.dismiss(self.query_one(LineInput).value.strip())
        return key == "enter" or await super().take_key(key)
