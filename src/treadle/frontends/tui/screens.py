"""Screens over the app: a list to choose from, a text to read, a question to answer by one key, a line to enter."""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from inspect import isawaitable
from typing import Any, ClassVar, Generic, TypeVar, cast

from rich.style import Style
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.events import Key
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList
from textual.widgets.option_list import Option

from treadle.base.inert import make_inert_line
from treadle.errors import TreadleError
from treadle.frontends.presentation.rich_text import Drawable, Text
from treadle.frontends.tui.drawing import draw_key_hints
from treadle.frontends.tui.marks import Static

T = TypeVar("T")
_MOVES = {"up": "cursor_up", "down": "cursor_down", "pageup": "page_up", "pagedown": "page_down"}


class LineInput(Input):
    """Edits in the order in which keys were typed, as `Composer` does; `screen_keys` are left to the screen."""

    def __init__(self, screen_keys: Collection[str], *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, compact=True, **settings)
        self._screen_keys = screen_keys

    async def _on_key(self, event: Key) -> None:
        if not (event.is_printable or event.key in self._screen_keys) and await self.app._check_bindings(event.key):
            event.stop()
            event.prevent_default()


class Entry(Generic[T]):
    """A line of the list. `value` None: a heading, or words, which may take several lines."""

    def __init__(self, label: str | Text, value: T | None) -> None:
        self.label = label if isinstance(label, Text) else Text(label, no_wrap=True, overflow="ellipsis")
        if isinstance(self.label.style, str):  # it would be read as CSS, whose cyan is another than the terminal's
            self.label.style = Style.parse(self.label.style)
        self.value = value


Found = Callable[[str], Sequence[Entry[T]] | Awaitable[Sequence[Entry[T]]]]  # the entries that match a query


class Picker(ModalScreen[T | None]):
    """A list over the whole screen. `act` is the action of one of `keys` on the chosen entry: None closes the list; a
    text is shown, as is a TreadleError, and the list is rebuilt."""

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
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss", show=False),
        Binding("ctrl+c", "dismiss", show=False, priority=True),
    ]

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

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Static(Text(self._title, "bold"), id="heading")
            if self._searches:
                yield LineInput({*_MOVES, *self._keys}, self._query, placeholder="type to search", id="query")
            with Horizontal():
                yield OptionList(id="rows")
                with VerticalScroll(id="preview"):
                    yield Static(id="shown")
            keys = {"enter": "choose", **self._keys, "esc": "back"}
            names = [key.replace("ctrl+", "Ctrl-").replace("enter", "Enter").replace("esc", "Esc") for key in keys]
            hints = draw_key_hints(zip(names, keys.values(), strict=True), max(30, self.app.size.width - 8))
            yield Static(hints, id="keys")

    async def on_mount(self) -> None:
        self.on_resize()
        (self.query_one("#query", Input) if self._searches else self.query_one(OptionList)).focus()
        await self.load()

    def on_resize(self) -> None:
        self.set_class(self._preview is not None and self.size.width >= 100, "wide")

    async def load(self) -> None:
        query = self.query_one("#query", Input).value if self._searches else ""
        rows = self.query_one(OptionList)
        old_highlight = rows.highlighted if query == self._query else None
        try:
            found_entries = self._found(query)
            entries = list(await found_entries if isawaitable(found_entries) else found_entries)
        except TreadleError as error:
            entries = [Entry(Text(make_inert_line(str(error)), "red"), None)]
        if not self.is_attached:  # it was left meanwhile
            return
        self._entries, self._query = entries, query
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

    def _start_work(self, work: Callable[..., Awaitable[object]], *arguments: object, group: str = "default") -> None:
        """Do `work` in a worker, which a later one of the same group ends. Its coroutine is made when it begins."""
        self.run_worker(cast(Any, partial(work, *arguments)), exclusive=group != "default", group=group)

    def on_input_changed(self) -> None:
        self._start_work(self.load, group="load")

    def on_option_list_option_highlighted(self) -> None:
        value = self.get_highlighted()
        if self._preview is not None and value is not None and self.has_class("wide"):
            self._start_work(self._show, value, group="preview")

    async def _show(self, value: T) -> None:
        assert self._preview is not None
        try:
            self._put(await self._preview(value))
        except TreadleError as error:
            self._put(Text(str(error), "dim"))

    def _put(self, drawable: Drawable) -> None:
        for place in self.query("#shown").results(Static):  # none, if the list was left meanwhile
            place.update(drawable)

    def on_option_list_option_selected(self) -> None:
        self._start_work(self._do, "enter")

    on_input_submitted = on_option_list_option_selected

    async def on_key(self, event: Key) -> None:
        rows = self.query_one(OptionList)
        match event.key:
            case "up" | "down" | "pageup" | "pagedown" if not rows.has_focus:
                event.stop()
                getattr(rows, f"action_{_MOVES[event.key]}")()
            case key if key != "enter" and key in self._keys:
                event.stop()
                event.prevent_default()
                await self._do(key)

    async def _do(self, key: str) -> None:
        """Act on the highlighted entry of what is typed now, which may not be listed yet."""
        if self._searches and self.query_one("#query", Input).value != self._query:
            await self.load()
        if (value := self.get_highlighted()) is None:
            return
        if self._act is None or key not in self._keys:
            self.dismiss(value)
            return
        try:
            message = await self._act(key, value)
        except TreadleError as error:
            message = make_inert_line(str(error))
        if message is None:
            self.dismiss(None)
            return
        if message:
            self.app.notify(message)
        await self.load()


class Reading(ModalScreen[str]):
    """A text to read. Its result is the key by which it was left, if that is one of `keys`."""

    DEFAULT_CSS = """
    Reading { align: center middle; background: $background 60%; }
    Reading > Vertical { width: 95%; max-width: 110; height: auto; max-height: 90%; border: round $accent;
        padding: 0 1; background: $surface; }
    Reading VerticalScroll { height: auto; max-height: 1fr; scrollbar-size-vertical: 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,enter,ctrl+c", "dismiss('')", show=False, priority=True)]

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

    def on_key(self, event: Key) -> None:
        if event.key in self._keys:
            event.stop()
            self.dismiss(event.key)


class Confirm(ModalScreen[bool]):
    DEFAULT_CSS = """
    Confirm { align: center middle; background: $background 60%; }
    Confirm > Vertical { width: 90%; max-width: 90; height: auto; border: round $warning; padding: 0 1;
        background: $surface; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "dismiss(True)", show=False),
        Binding("n,escape", "dismiss(False)", show=False),
        Binding("ctrl+c", "dismiss(False)", show=False, priority=True),
    ]

    def __init__(self, text: str, yes: str = "yes", no: str = "no") -> None:
        super().__init__()
        self._text, self._yes, self._no = text, yes, no

    def compose(self) -> ComposeResult:
        keys = draw_key_hints((("y", self._yes), ("n", self._no)), max(30, self.app.size.width - 12))
        with Vertical():
            yield Static(Text(self._text))
            yield Static(keys)


class TextPrompt(ModalScreen[str | None]):
    DEFAULT_CSS = """
    TextPrompt { align: center middle; background: $background 60%; }
    TextPrompt > Vertical { width: 90%; max-width: 90; height: auto; border: round $accent; padding: 0 1;
        background: $surface; }
    TextPrompt Input { border: none; height: 1; padding: 0; background: $surface; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss", show=False),
        Binding("ctrl+c", "dismiss", show=False, priority=True),
    ]

    def __init__(self, question: str, *, secret: bool = False) -> None:
        super().__init__()
        self._question = question
        self._secret = secret

    def compose(self) -> ComposeResult:
        with Vertical() as box:
            box.border_subtitle = "Enter confirms · Esc goes back"
            yield Static(Text(self._question))
            yield LineInput((), password=self._secret)

    def on_input_submitted(self, message: Input.Submitted) -> None:
        self.dismiss(message.value.strip())
