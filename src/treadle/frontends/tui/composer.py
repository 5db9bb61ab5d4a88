"""Where people write: several lines, history, completion of files and commands, large pastes as chips."""

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar, Literal, NamedTuple, cast

from textual._ansi_sequences import ANSI_SEQUENCES_KEYS
from textual.binding import Binding, BindingType
from textual.events import Key, Paste
from textual.keys import Keys
from textual.message import Message
from textual.widgets import TextArea

from treadle.base.inert import make_inert
from treadle.frontends.tui.desktop import find_picture

# Alt-Enter, as terminals send it. Textual reads it as Enter.
cast(dict[str, object], ANSI_SEQUENCES_KEYS).update({"\x1b\r": (Keys.ControlJ,), "\x1b\n": (Keys.ControlJ,)})
_NEW_LINE = ("shift+enter", "alt+enter", "ctrl+enter", "ctrl+j", "shift+\r", "alt+\r", "ctrl+\r")
SEND_KEYS = ("enter", "ctrl+s")  # the second steers the run that is under way
KEPT = 1_000
FILE_NAME = "history.jsonl"
LARGE_LINES = 8
LARGE = 800
_WORD = re.compile(r"(?:^|\s)@([^\s@]*)$")
_CHIP = re.compile(r"\[(?:pasted|output|image) #(\d+)[^\]\n]*\]")


class History:
    """The history of typed messages, across chats: one JSON string a line in Treadle's home, for its owner alone."""

    def __init__(self, home: Path | None) -> None:
        self._path = None if home is None else home / FILE_NAME
        self._entries: list[str] = []
        self._draft = ""
        with suppress(OSError, UnicodeDecodeError):
            lines = self._path.read_text(encoding="utf-8").splitlines() if self._path is not None else []
            for line in lines[-KEPT:]:
                with suppress(ValueError):
                    self._entries += [entry] if isinstance(entry := json.loads(line), str) else []
        self._at = len(self._entries)

    def add(self, text: str) -> None:
        if text.strip() and (not self._entries or self._entries[-1] != text):
            self._entries.append(text)
            with suppress(OSError):  # a home that cannot be written costs the history, and nothing else
                if self._path is not None:
                    descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
                    with open(descriptor, "a", encoding="utf-8") as file:
                        file.write(json.dumps(text) + "\n")
        self._at, self._draft = len(self._entries), ""

    def list_newest(self) -> list[str]:
        return list(dict.fromkeys(reversed(self._entries)))

    def recall_previous(self, present: str) -> str | None:
        """The entry before the one that is shown; None at the first."""
        if self._at == 0:
            return None
        if self._at == len(self._entries):
            self._draft = present
        self._at -= 1
        return self._entries[self._at]

    def recall_next(self) -> str | None:
        """The entry behind it, at last what was being written; None when that is shown already."""
        if self._at >= len(self._entries):
            return None
        self._at += 1
        return self._draft if self._at == len(self._entries) else self._entries[self._at]


class Chip(NamedTuple):
    """The content behind a chip: a text, or the path of a picture."""

    label: str
    text: str
    image: str = ""


class Draft(NamedTuple):
    """A text of the composer with what its chips stand for."""

    text: str = ""
    chips: Mapping[int, Chip] = MappingProxyType({})


class Composer(TextArea):
    DEFAULT_CSS = """
    Composer {
        height: auto; max-height: 12; min-height: 1; padding: 0 1; border: none;
        scrollbar-size-vertical: 1; background: transparent;
        &:focus { border: none; }
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+d", "app.leave_if_empty", show=False),
        Binding("ctrl+underscore,ctrl+minus", "undo", show=False),
    ]

    class Submitted(NamedTuple):
        text: str
        images: Sequence[str]
        draft: Draft
        steers: bool = False

    @dataclass
    class Attaching(Message):
        path: str

    @dataclass
    class Completing(Message):
        """The possible completions changed."""

        kind: Literal["command", "file", ""]
        typed: str

    def __init__(self, history: History, submit: Callable[[Submitted], None] = lambda message: None) -> None:
        super().__init__(
            id="composer", soft_wrap=True, show_line_numbers=False, tab_behavior="focus", highlight_cursor_line=False
        )
        self.cursor_blink = False  # a blinking cursor is painted twice a second for as long as the app is open
        self.typed, self._send = history, submit  # called at once: the keys behind Enter may already wait here
        self._chips: dict[int, Chip] = {}
        # Is given keys first while something is offered; True: it took the key.
        self.completes: Callable[[str], bool] = lambda key: False

    async def _on_key(self, event: Key) -> None:
        row, last_row = self.cursor_location[0], self.document.line_count - 1
        run_binding = self.app._check_bindings
        match event.key:
            case "up" | "down" | "tab" | "enter" | "escape" as key if self.completes(key):
                pass
            case "enter" if self.text.endswith("\\") and self.cursor_location == self.document.end:
                self.action_delete_left()
                self.insert("\n")
            case key if key in SEND_KEYS:
                self._submit(steers=event.key == "ctrl+s")
            case key if key in _NEW_LINE:
                self.insert("\n")
            case "up" if row == 0 and (text := self.typed.recall_previous(self.text)) is not None:
                self.put(text)
            case "down" if row == last_row and (text := self.typed.recall_next()) is not None:
                self.put(text)
            # Run bindings at once: Textual passes the key up to the app first, and text typed behind it overtakes it.
            case key if event.is_printable or not (await run_binding(key, priority=True) or await run_binding(key)):
                return
        event.stop()
        event.prevent_default()

    def put(self, text: str) -> None:
        self.text = text
        self.move_cursor(self.document.end)

    def _submit(self, *, steers: bool) -> None:
        if self.text.strip():
            draft = self.draft
            text, images = self.expand_chips(draft.text)
            self.typed.add(text[:20_000] if self._chips else draft.text)
            self.clear_all()
            self._send(self.Submitted(text, images, draft, steers))

    @property
    def draft(self) -> Draft:
        return Draft(self.text, dict(self._chips))

    def give_back(self, draft: Draft) -> None:
        """Put a draft back, before a text that was typed meanwhile. Chips whose numbers are taken get new ones."""
        typed, labels = self.text, dict[str, str]()
        for number, chip in draft.chips.items():
            free = number if number not in self._chips else max(self._chips) + 1
            label = labels[chip.label] = chip.label.replace(f"#{number}:", f"#{free}:", 1)
            self._chips[free] = chip._replace(label=label)
        text = _CHIP.sub(lambda match: labels.get(match[0], match[0]), draft.text)
        self.put("\n".join(part for part in (text, typed) if part))

    def clear_all(self) -> None:
        self._chips.clear()
        self.text = ""

    async def _on_paste(self, event: Paste) -> None:
        text = make_inert(event.text.replace("\r\n", "\n").replace("\r", "\n"))
        event.stop()
        event.prevent_default()
        if path := find_picture(text):
            self.post_message(self.Attaching(path))
        elif len(text) > LARGE or text.count("\n") > LARGE_LINES:
            self.add_chip("pasted", f"{text.count(chr(10)) + 1} lines", text)
        else:
            self.insert(text)

    def action_paste(self) -> None:
        """Ctrl-V: the text that was copied in the app, else the picture of the clipboard."""
        if self.app.clipboard:
            super().action_paste()
        else:
            self.call_later(self.app.run_action, "do('paste')")

    def add_chip(self, kind: str, label: str, text: str, image: str = "") -> None:
        number = max(self._chips, default=0) + 1
        chip_label = f"[{kind} #{number}: {make_inert(label)[:40]}]".replace("\n", " ")
        self._chips[number] = Chip(chip_label, text, image)
        self.insert(f"{chip_label} ")

    def expand_chips(self, displayed_text: str) -> tuple[str, list[str]]:
        """The text with its chips unfolded, and the pictures among them."""
        images: list[str] = []

        def unfold(match: re.Match[str]) -> str:
            chip = self._chips.get(int(match[1]))
            if chip is None or chip.label != match[0]:
                return match[0]
            if chip.image:
                images.append(chip.image)
                return match[0]
            return f"\n{chip.text}\n"

        return _CHIP.sub(unfold, displayed_text).strip(), images

    def on_text_area_changed(self) -> None:
        row, column = self.cursor_location
        prefix = self.document.get_line(row)[:column]
        match = _WORD.search(prefix)
        if row == 0 and prefix.startswith("/") and " " not in prefix:
            self.post_message(self.Completing("command", prefix[1:]))
        else:
            self.post_message(self.Completing("file", match[1]) if match else self.Completing("", ""))

    def complete(self, kind: str, completion: str) -> None:
        row, column = self.cursor_location
        prefix = self.document.get_line(row)[:column]
        begin = 0 if kind == "command" else prefix.rfind("@")
        text = f"/{completion} " if kind == "command" else f"@{completion}" + " " * (not completion.endswith("/"))
        self.replace(text, (row, begin), (row, column))
        self.move_cursor((row, begin + len(text)))
