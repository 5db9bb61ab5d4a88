"""Output to the terminal: the answer and the calls to standard output, everything else to standard error; colours only
where someone sees them. All text is made inert here; colours are given beside it, as spans (S-22)."""

import io
import os
import shutil
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TextIO
from unicodedata import east_asian_width

from treadle.base.inert import (
    ERASE_LINE,
    InertText,
    join_inert,
    make_inert,
    make_inert_json,
    make_inert_line,
    paint,
    write_inert,
)
from treadle.frontends.presentation.styled import Colour, Line, Span

StyledText = str | Line  # text in one look, or spans that have their own

_CODES: dict[Colour, str] = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}
_ASCII = str.maketrans(
    {"●": "*", "✗": "x", "✓": "v", "·": "-", "…": "...", "\N{MINUS SIGN}": "-", "│": "|", "─": "-", "┼": "+", "•": "*"}
)
_NEWLINE = make_inert("\n")


class Terminal:
    """Tracks if the cursor is at the beginning of a line, and one temporary line of status, which is shown on a real
    terminal only and erased as soon as anything else is written. `plain`: for reading line by line, as on a dumb
    terminal."""

    def __init__(
        self,
        out: TextIO | None = None,
        err: TextIO | None = None,
        environment: Mapping[str, str] | None = None,
        *,
        plain: bool = False,
    ) -> None:
        self._out = out or sys.stdout
        self._err = err or sys.stderr
        env = os.environ if environment is None else environment
        plain = plain or env.get("TERM") == "dumb" or bool(env.get("TREADLE_PLAIN"))
        self.has_columns = is_terminal(self._out)
        """True if lines have a limited width. Longer lines are broken between words, or else by the terminal within
        words."""
        self.live = self.has_columns and not plain  # true if temporary output can be shown; False on a dumb terminal
        colour = not env.get("NO_COLOR") and not plain
        self.colours = colour and self.has_columns
        self._err_colour = colour and is_terminal(self._err)
        for stream in (self._out, self._err):
            if isinstance(stream, io.TextIOWrapper):  # a letter that the locale does not have must not end a run
                stream.reconfigure(errors="backslashreplace")
        self.ascii = "utf" not in (self._out.encoding or "").lower()
        self._at_start = True
        self.status_line = ""  # the temporary line that is shown now

    @property
    def width(self) -> int:
        """Columns of the terminal; a long line's worth where there is none."""
        return shutil.get_terminal_size().columns if self.has_columns else 160

    def stream(self, text: StyledText) -> None:
        """A piece of running text, which may end anywhere."""
        if output := self._draw(text, (), self.colours):
            self._write(output)
            last = text if isinstance(text, str) else text[-1].text
            self._at_start = last.endswith("\n")

    def write_line(self, text: StyledText = "", *colours: Colour) -> None:
        self.end_line()
        self._write(join_inert((self._draw(text, colours, self.colours), _NEWLINE)))

    def show(self, lines: Iterable[Line]) -> None:
        for line in lines:
            self.write_line(line)

    def end_line(self) -> None:
        if not self._at_start:
            self._write(_NEWLINE)
            self._at_start = True

    def write_note(self, text: str, *colours: Colour) -> None:
        """A line about the run instead of from it, on standard error."""
        self._write_aside(text, colours, _NEWLINE)

    def ask(self, text: str) -> None:
        """A question on standard error: the answer is typed behind it."""
        self._write_aside(text, (), make_inert(""))

    def tell(self, text: str, *colours: Colour) -> None:
        """A note of words, which may be long."""
        for line in make_inert(text).split("\n"):
            for part in self.wrap_line(line):
                self.write_note(part, *colours)

    def wrap_line(self, text: str, indent: str = "   ") -> list[str]:
        """A line in as many as the terminal has room for, without breaking words; whole where there is none."""
        if not self.has_columns or len(text) < self.width:
            return [text]
        from textwrap import wrap

        begin = text[: len(text) - len(text.lstrip())]
        return wrap(
            text.strip(), self.width - 1, initial_indent=begin, subsequent_indent=indent, break_on_hyphens=False
        )

    def show_status(self, text: str) -> None:
        """Show the current activity. Never in the middle of a line of the answer."""
        if self.live and self._at_start:
            self.clear()
            self.status_line = _shorten_to_fit(make_inert_line(text), self.width - 2)
            write_inert(self._out, self._draw(self.status_line, ("dim",), self.colours))

    def clear(self) -> None:
        if self.status_line:
            write_inert(self._out, ERASE_LINE)
            self.status_line = ""

    def _write(self, text: InertText) -> None:
        self.clear()
        write_inert(self._out, text)

    def _write_aside(self, text: str, colours: tuple[Colour, ...], end: InertText) -> None:
        self.clear()
        self.end_line()
        self._out.flush()
        write_inert(self._err, join_inert((self._draw(text, colours, self._err_colour), end)))

    def _draw(self, text: StyledText, colours: tuple[Colour, ...], in_colour: bool) -> InertText:
        """Every text on its way to a stream passes here."""
        spans = (Span(text, colours),) if isinstance(text, str) else text
        texts = [(each.translate(_ASCII) if self.ascii else each, colours) for each, colours in spans]
        return join_inert(paint(each, [_CODES[name] for name in names] if in_colour else ()) for each, names in texts)


def _shorten_to_fit(text: str, columns: int) -> str:
    """As much as one row holds: a passing line that wraps could not be taken away. Some letters take two columns."""
    if text.isascii():
        return text[: max(0, columns)]
    for length, letter in enumerate(text):
        columns -= 2 if east_asian_width(letter) in "WF" else 1
        if columns < 0:
            return text[:length]
    return text


def is_terminal(*streams: TextIO) -> bool:
    """True if all of these are terminals. A closed stream is none."""
    try:
        return all(stream.isatty() for stream in streams)
    except (AttributeError, ValueError):
        return False


def age(time_ms: int) -> str:
    seconds = max(0, time.time() - time_ms / 1000)
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= length:
            return f"{int(seconds // length)} {unit}"
    return f"{int(seconds)} s"


def write_list(rows: Sequence[tuple[object, StyledText]], none: str, *, as_json: bool) -> None:
    """Rows as a value and a text: an object a line for programs; for people the texts, or that there is none."""
    terminal = Terminal()
    for value, text in rows:
        if as_json:
            write_json(value)
        else:
            terminal.write_line(text)
    if none and not rows and not as_json:
        terminal.write_note(none, "dim")


def write_outcome(value: object, note: str = "", *, line: str = "", as_json: bool) -> None:
    """A value for programs; for people a line of output, and a note about it."""
    terminal = Terminal()
    if as_json:
        return write_json(value)
    if line:
        terminal.write_line(line)
    if note:
        terminal.write_note(note, "dim")


def write_json(value: object) -> None:
    import msgspec  # not above: the help of a command does without it

    write_json_line(msgspec.json.encode(value))


def write_json_line(data: bytes) -> None:
    """An object that is JSON already."""
    sys.stdout.buffer.write(make_inert_json(data) + b"\n")
