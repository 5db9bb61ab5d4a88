"""Markdown on a terminal while it arrives: words wrap at the edge and are shown as soon as they are complete;
headings, lists, emphasis, tables and code have a look of their own. No text is lost: text that is not markup is
shown as it is."""

import re
from collections.abc import Callable, Iterable
from typing import Any
from unicodedata import east_asian_width

from treadle.base.inert import LEXERS
from treadle.frontends.presentation.styled import Colour, Line, Span, join_spans, make_line

WIDEST = 110  # longer lines are hard to read, however wide the terminal is
_HELD = 400  # so many letters are held back at most, to see whether an emphasis ends
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})([^`]*)")
_BLOCK = re.compile(r"(?P<indent>[ \t]*)(?:(?P<head>#{1,6})|(?P<item>[-*+]|\d{1,9}[.)])|(?P<quote>>))[ \t]+")
_UNIT = re.compile(
    r"(?P<space>[ \t]+)|(?P<tick>`+)(?P<code>[^`]+)(?P=tick)(?!`)|\*\*(?P<bold>[^\s*](?:[^*]*[^\s*])?)\*\*(?!\*)|"
    r"(?P<word>[^\s`*]+|[`*]+)"
)
_MARKS = re.compile(r"\*\*([^*]+)\*\*|`([^`]+)`")


class Prose:
    """One answer. `write` gets text for the terminal, with its colours."""

    def __init__(self, write: Callable[[Line], None], width: Callable[[], int], *, markup: bool) -> None:
        self._write, self._width = write, width
        self._markup = markup  # without colours emphasis stays as it is written; only lines are wrapped
        self.drop()

    def drop(self) -> None:
        """Begin anew, and discard the text that was held back."""
        self._pending = ""
        self._inside = False  # true if the beginning of the current line is written
        self._column = self._hang = 0
        self._base: tuple[Colour, ...] = ()
        self._word: list[Span] = []
        self._spaces = 0
        self._fence = ""
        self._paint_code: Callable[[str], Line] = make_line
        self._rows: list[str] = []

    def feed(self, text: str) -> None:
        self._pending += text
        while self._show_piece(last=False):
            pass

    def end(self) -> None:
        """Show the text that was held back."""
        while self._pending and self._show_piece(last=True):
            pass
        self._put_word()
        self._put_table()
        self.drop()

    def _show_piece(self, *, last: bool) -> bool:
        """Show one piece of what is there; False: more of it must come first."""
        if not self._pending:
            return False
        if self._inside:
            return self._continue(last)
        full_line, newline, remaining = self._pending.partition("\n")
        complete = bool(newline) or last
        if self._fence:
            return complete and self._show_code(full_line, remaining)
        if self._markup and full_line.lstrip(" ").startswith("|"):
            if complete:
                self._rows.append(full_line)
                self._pending = remaining
            return complete
        self._put_table()
        stripped = full_line.lstrip(" \t")
        if stripped[:3] in ("```", "~~~") or (not complete and stripped in ("", "`", "``", "~", "~~")):
            match = _FENCE.fullmatch(full_line)
            if not complete or match is None:
                return complete and self._begin_line(True)
            self._fence = match[1]
            self._paint_code = _make_painter(match[2].strip()) if self._markup else make_line
            return self._write_line(make_line(full_line, "dim"), remaining)
        if not complete and " " not in stripped:
            return False
        return self._begin_line(complete)

    def _show_code(self, full_line: str, remaining: str) -> bool:
        stripped = full_line.strip()
        if len(stripped) < len(self._fence) or stripped.strip(self._fence[0]):
            return self._write_line(self._paint_code(full_line), remaining)
        self._fence = ""
        return self._write_line(make_line(full_line, "dim"), remaining)

    def _write_line(self, text: Line, remainder: str) -> bool:
        self._pending = remainder
        self._write((*text, Span("\n")))
        return True

    def _begin_line(self, complete: bool) -> bool:
        match = _BLOCK.match(self._pending) if self._markup or complete else None
        self._inside, self._column, self._hang, self._base = True, 0, 0, ()
        if match is None or "\n" in match[0]:
            indent = re.match(r"[ \t]*", self._pending)
            self._hang = self._column = len(indent[0]) if indent else 0
            self._write(make_line(self._pending[: self._column]))
            self._pending = self._pending[self._column :]
            return True
        mark = make_line(match[0])
        self._pending = self._pending[match.end() :]
        if match["head"] and self._markup:
            self._base = ("bold", "cyan")
            return True
        self._hang = self._column = len(match[0])
        if match["item"] and self._markup:
            mark = join_spans(match["indent"], Span("•" if match["item"] in "-*+" else match["item"], ("cyan",)), " ")
            self._hang = self._column = len(match["indent"]) + len(match["item"]) + 1
        elif match["quote"] and self._markup:
            self._base, mark = ("dim",), make_line(f"{match['indent']}│ ", "dim")
        self._write(mark)
        return True

    def _continue(self, last: bool) -> bool:
        if self._pending[0] == "\n":
            self._put_word()
            self._write((Span("\n"),))
            self._pending = self._pending[1:]
            self._inside, self._spaces = False, 0
            return True
        line, newline, _ = self._pending.partition("\n")
        is_complete = bool(newline) or last
        match = _UNIT.match(line)
        assert match is not None
        if not is_complete and line[0] in "`*" and len(line) < _HELD:  # the end of an emphasis may still arrive
            is_closed = match["word"] is None and match.end() < len(line)
            if not is_closed and re.match(r"`+|\*{1,2}(?!\*)", line):
                return False
        if not is_complete and match.end() == len(line):
            return False
        self._pending = self._pending[match.end() :]
        if match["space"]:
            self._put_word()
            self._spaces = len(match["space"])
        elif not self._markup or match["word"] is not None:
            self._word.append(Span(match[0], self._base))
        elif match["code"] is not None:
            self._add_words(match["code"], "cyan")
        else:
            self._add_words(match["bold"].replace("`", ""), "bold")
        return True

    def _add_words(self, text: str, colour: Colour) -> None:
        look = tuple(dict.fromkeys((*self._base, colour)))
        for number, part in enumerate(re.split(r"[ \t]+", text)):
            if number:
                self._put_word()
                self._spaces = 1
            if part:
                self._word.append(Span(part, look))

    def _put_word(self) -> None:
        if not self._word:
            return
        size = sum(count_columns(text) for text, _ in self._word)
        space = self._spaces if self._column > self._hang else 0
        width = max(20, min(self._width(), WIDEST))
        if self._column > self._hang and self._column + space + size > width:
            self._write(make_line("\n" + " " * self._hang))
            self._column, space = self._hang, 0
        self._write((Span(" " * space), *self._word))
        self._column += space + size
        self._word, self._spaces = [], 0

    def _put_table(self) -> None:
        rows, self._rows = self._rows, []
        if not rows:
            return
        cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", row.strip().strip("|"))] for row in rows]
        body = [row for row in cells if not all(re.fullmatch(r":?-+:?", cell) for cell in row)]
        if not body or len(body) == len(cells):
            self._write(make_line("".join(f"{row}\n" for row in rows)))  # no table: its second row would be dashes
            return
        for row in self._render_table(body):
            self._write((row, Span("\n")))

    def _render_table(self, rows: list[list[str]]) -> Iterable[Span]:
        plain = [
            [_MARKS.sub(lambda match: match[1] or match[2], cell).replace("\\|", "|") for cell in row] for row in rows
        ]
        number = max(map(len, plain))
        wide = [max((count_columns(row[at]) for row in plain if at < len(row)), default=0) for at in range(number)]
        fits = sum(wide) + 3 * number - 1 <= self._width()
        for at, row in enumerate(plain):
            spaced = [cell + " " * (wide[place] - count_columns(cell)) for place, cell in enumerate(row)]
            text = " │ ".join(spaced if fits else row).rstrip()
            yield Span(text, ("bold",) if at == 0 else ())
            if at == 0:
                yield Span("─┼─".join("─" * size for size in wide) if fits else "───", ("dim",))


def count_columns(text: str) -> int:
    """How many columns a text takes: some letters take two."""
    if text.isascii():
        return len(text)
    return sum(2 if east_asian_width(letter) in "WF" else 1 for letter in text)


def _make_painter(language: str) -> Callable[[str], Line]:
    """Colours for lines of code, if the language is known."""
    from pygments.lexers import get_lexer_by_name  # type: ignore[import-untyped]
    from pygments.token import Token  # type: ignore[import-untyped]
    from pygments.util import ClassNotFound  # type: ignore[import-untyped]

    try:
        lexer = get_lexer_by_name(language.split()[0].strip("{}.") if language else "", stripnl=False, ensurenl=False)
    except (ClassNotFound, IndexError):
        return make_line
    if lexer.name not in LEXERS:
        return make_line
    looks: tuple[tuple[Any, Colour], ...] = (
        (Token.Comment, "dim"),
        (Token.Keyword, "cyan"),
        (Token.Literal.String, "green"),
        (Token.Literal.Number, "yellow"),
        (Token.Generic.Inserted, "green"),
        (Token.Generic.Deleted, "red"),
        (Token.Name.Function, "bold"),
        (Token.Name.Class, "bold"),
    )

    def paint_code(code: str) -> Line:
        parts = []
        for kind, text in lexer.get_tokens(code):
            look = next((colour for token, colour in looks if kind in token), None)
            parts.append(Span(text.replace("\n", ""), (look,) if look and text.strip() else ()))
        return tuple(parts)

    return paint_code
