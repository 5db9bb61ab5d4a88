"""The output to the terminal: only the cells that differ from those it shows. Textual repaints every line of a widget
that scrolls or grows, which is most of the screen for each word of an answer.

The painter holds the screen as it was written last. An update of Textual's compositor is applied to a copy of it, and
the way from one to the other is written:

1. If many lines moved up by the same number of rows, the terminal moves them (a scroll region).
2. Of every row that still differs, the cells that differ are written.

A row with characters whose width terminals disagree about is written whole. The content of the terminal is unknown
after a resize and after another program had it: then `forget` makes the next update a full one."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from textual._compositor import ChopsUpdate, CompositorUpdate, LayoutUpdate
from textual.geometry import Size
from textual.strip import Strip

RESET = "\x1b[0m"
GAP = 8  # equal cells between two runs that differ; fewer are written again, since moving the cursor costs as much
FARTHEST = 12  # rows by which lines are looked for after a scroll
LEAST_SAVED = 4  # rows that a scroll must save
_STYLES = 4_000


class Cell(NamedTuple):
    text: str
    sgr: str  # the escape sequence that sets its style


Row = tuple[Cell, ...]
Run = tuple[int, int, Row]  # a row, a column, and the cells from there on
UNKNOWN = Cell("", "?")  # the content of a cell that was never written


class Difference(CompositorUpdate):
    def __init__(self, text: str) -> None:
        self.text = text

    def render_segments(self, console: Console) -> str:
        return self.text


class Painter:
    def __init__(self) -> None:
        self._size = Size(0, 0)
        self._rows: list[Row] = []
        self._styles: dict[tuple[Style, object], str] = {}
        self._strips: dict[str, Row] = {}  # cells of strips, by what they are written as

    def forget(self) -> None:
        """The terminal shows something else by now."""
        self._size = Size(0, 0)

    def compute_difference(self, update: CompositorUpdate, size: Size, console: Console) -> CompositorUpdate:
        if not isinstance(update, ChopsUpdate | LayoutUpdate):
            self.forget()
            return update
        if size != self._size:
            self._size = size
            self._rows = [(UNKNOWN,) * size.width] * size.height
        next_rows = list(self._rows)
        for y, x, strip in _yield_parts(update):
            if any(segment.control for segment in strip):
                self.forget()
                return update
            if y < size.height and x < size.width:
                cells = self._render_cells(strip, console)[: size.width - x]
                row = next_rows[y]
                if row[x : x + len(cells)] != cells:
                    next_rows[y] = row[:x] + cells + row[x + len(cells) :]
        text = "".join(self._yield_changes(next_rows))
        self._rows = next_rows
        return Difference(text)

    def _render_cells(self, strip: Strip, console: Console) -> Row:
        rendered = strip.render(console)
        if (cached := self._strips.get(rendered)) is not None:
            return cached
        if len(self._strips) > _STYLES:
            self._strips.clear()
        row = tuple(cell for segment in strip for cell in self._yield_segment_cells(segment, console))
        self._strips[rendered] = row
        return row

    def _yield_segment_cells(self, segment: Segment, console: Console) -> Iterator[Cell]:
        text, style, _ = segment
        sgr = blank_sgr = self._get_sgr(style, console) if style is not None else ""
        # Nothing but its ground is seen of most styles on a blank: two blanks of one ground are the same cell.
        if style and not (style.reverse or style.underline or style.underline2 or style.strike or style.overline):
            blank_sgr = self._get_sgr(Style(bgcolor=style.bgcolor), console)
        blank = Cell(" ", blank_sgr)
        if text.isascii():
            return (blank if letter == " " else Cell(letter, sgr) for letter in text)
        return (blank if cell.text == " " else cell for cell in _make_wide_cells(text, sgr))

    def _get_sgr(self, style: Style, console: Console) -> str:
        system = console._color_system
        if (cached := self._styles.get((style, system))) is None:
            if len(self._styles) > _STYLES:
                self._styles.clear()
            cached = self._styles[style, system] = style.render("x", color_system=system).partition("x")[0]
        return cached

    def _yield_changes(self, next_rows: Sequence[Row]) -> Iterator[str]:
        screen_rows: Sequence[Row] = self._rows
        if (scroll := _find_best_scroll(screen_rows, next_rows)) is not None:
            first, end, by = scroll
            yield f"{RESET}\x1b[{first + 1};{end}r\x1b[{end};1H" + "\n" * by + "\x1b[r"
            blank = (UNKNOWN,) * self._size.width
            screen_rows = [*screen_rows[:first], *screen_rows[first + by : end], *[blank] * by, *screen_rows[end:]]
        pairs = enumerate(zip(screen_rows, next_rows, strict=True))
        changed_rows = ((y, old, new) for y, (old, new) in pairs if old is not new and old != new)
        yield from _write_runs(run for y, old, new in changed_rows for run in _yield_changed_runs(y, old, new))


def _yield_parts(update: ChopsUpdate | LayoutUpdate) -> Iterator[tuple[int, int, Strip]]:
    """The row, the column and the strip of everything that an update writes."""
    if isinstance(update, LayoutUpdate):
        for y, strips in enumerate(update.strips, update.region.y):
            x = update.region.x
            for strip in strips:
                yield y, x, strip
                x += strip.cell_length
        return
    chops: Sequence[Mapping[int, Strip | None]] = update.chops
    for y, begin, end in update.spans:
        for chop_end, (x, chop) in zip(update.chop_ends[y], chops[y].items(), strict=False):
            if chop is not None and x <= end and chop_end > begin:
                yield y, x, chop if chop_end <= end else chop.crop(0, end - x)


def _make_wide_cells(text: str, sgr: str) -> Iterator[Cell]:
    from rich.cells import cell_len, get_character_cell_size

    cells: list[Cell] = []
    for letter in text:
        width = get_character_cell_size(letter)
        if width:
            cells.append(Cell(letter, sgr))
            cells += [Cell("", sgr)] * (width - 1)
        elif cells:
            at = next(at for at in range(len(cells) - 1, -1, -1) if cells[at].text)
            cells[at] = Cell(cells[at].text + letter, sgr)
        else:
            cells.append(Cell(letter, sgr))
    cells += [Cell("", sgr)] * (cell_len(text) - len(cells))
    return iter(cells[: cell_len(text)])


def _has_plain_widths(row: Row) -> bool:
    return all(len(cell.text) == 1 or cell is UNKNOWN for cell in row)


def _find_best_scroll(screen_rows: Sequence[Row], next_rows: Sequence[Row]) -> tuple[int, int, int] | None:
    """The rows, from the first to before the end, that moved up, and by how many; None if too little would be saved."""
    pairs = enumerate(zip(screen_rows, next_rows, strict=True))
    changed_rows = [y for y, (old, new) in pairs if old is not new and old != new]
    if len(changed_rows) <= LEAST_SAVED:
        return None
    first, end = changed_rows[0], changed_rows[-1] + 1
    best, saved = 0, LEAST_SAVED
    for by in range(1, min(FARTHEST, end - first - 1) + 1):
        alike_rows = sum(_is_alike(screen_rows[y + by], next_rows[y]) for y in range(first, end - by))
        if alike_rows - 2 * by > saved:
            best, saved = by, alike_rows - 2 * by
    return (first, end, best) if best else None


def _is_alike(old: Row, new: Row) -> bool:
    """True if the first half of a row is the same, and is not empty."""
    half = len(new) // 2
    return old[:half] == new[:half] and any(cell.text.strip() for cell in new[:half])


def _yield_changed_runs(y: int, old: Row, new: Row) -> Iterator[Run]:
    if not (_has_plain_widths(old) and _has_plain_widths(new)):
        yield y, 0, new
        return
    begin = last = -1
    for x, (old_cell, cell) in enumerate(zip(old, new, strict=True)):
        if old_cell == cell:
            continue
        if begin >= 0 and x - last > GAP:
            yield y, begin, new[begin : last + 1]
            begin = x
        elif begin < 0:
            begin = x
        last = x
    if begin >= 0:
        yield y, begin, new[begin : last + 1]


class Pen(NamedTuple):
    """The codes of a style: attributes, the colour of letters, the colour of their ground."""

    attributes: str = ""
    letters: str = ""
    ground: str = ""

    def compute_change(self, cell: Cell) -> "tuple[Pen, str]":
        """The pen for a cell, and the sequence that changes this one into it. A blank takes any colour of letters."""
        pen = _parse_pen(cell.sgr)
        if cell.text == " " and not pen.attributes and not self.shows_on_blanks:
            pen = pen._replace(attributes=self.attributes, letters=self.letters)
        if pen == self:
            return self, ""
        if pen.attributes != self.attributes:
            codes = ["0", *(each for each in pen if each)]
        else:
            codes = [pen.letters or "39"] * (pen.letters != self.letters)
            codes += [pen.ground or "49"] * (pen.ground != self.ground)
        return pen, f"\x1b[{';'.join(codes)}m"

    @property
    def shows_on_blanks(self) -> bool:
        return not _ON_BLANKS.isdisjoint(self.attributes.split(";"))


_ON_BLANKS = frozenset(("4", "7", "9", "21", "53"))  # underlined, reversed, struck, doubly underlined, overlined


@lru_cache(_STYLES)
def _parse_pen(sgr: str) -> Pen:
    attributes, letters, ground = list[str](), "", ""
    codes = iter(sgr[2:-1].split(";") if sgr else ())
    for code in codes:
        number = int(code)
        if number in (38, 48):
            more = [next(codes)]
            more += [next(codes) for _ in range(3 if more[0] == "2" else 1)]
            code = ";".join([code, *more])
        if number in range(30, 40) or number in range(90, 98):
            letters = code
        elif number in range(40, 50) or number in range(100, 108):
            ground = code
        else:
            attributes.append(code)
    return Pen(";".join(attributes), letters, ground)


def _write_runs(runs: Iterable[Run]) -> Iterator[str]:
    pen = Pen()
    for y, x, cells in runs:
        yield f"\x1b[{y + 1};{x + 1}H"
        for cell in cells:
            pen, change = pen.compute_change(cell)
            yield change + cell.text
    if pen != Pen():
        yield RESET
