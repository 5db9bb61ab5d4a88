"""Small screens over the app: a text to read, a question to answer by one key."""

from collections.abc import Mapping
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.events import Key
from textual.screen import ModalScreen

from treadle.frontends.presentation.rich_text import Drawable, Text
from treadle.frontends.tui.drawing import key_hints
from treadle.frontends.tui.marks import Static


class Reading(ModalScreen[str]):
    """A text to read. Its result is the key by which it was left, if that is one of `keys`."""

    DEFAULT_CSS = """
    Reading { align: center middle; background: $background 60%; }
    Reading > Vertical { width: 95%; max-width: 110; height: auto; max-height: 90%; border: round $accent;
        padding: 0 1; background: $surface; }
    Reading VerticalScroll { height: auto; max-height: 1fr; scrollbar-size-vertical: 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,enter,ctrl+c", "leave('')", show=False, priority=True)]

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
            self.action_leave(event.key)

    def action_leave(self, key: str) -> None:
        self.dismiss(key)


class Confirm(ModalScreen[bool]):
    DEFAULT_CSS = """
    Confirm { align: center middle; background: $background 60%; }
    Confirm > Vertical { width: 90%; max-width: 90; height: auto; border: round $warning; padding: 0 1;
        background: $surface; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", show=False),
        Binding("n,escape", "answer(False)", show=False),
        Binding("ctrl+c", "answer(False)", show=False, priority=True),
    ]

    def __init__(self, text: str, yes: str = "yes", no: str = "no") -> None:
        super().__init__()
        self._text = text
        self._yes = yes
        self._no = no

    def compose(self) -> ComposeResult:
        keys = key_hints((("y", self._yes), ("n", self._no)), max(30, self.app.size.width - 12))
        with Vertical():
            yield Static(Text(self._text))
            yield Static(keys)

    def action_answer(self, is_confirmed: bool) -> None:
        self.dismiss(is_confirmed)
