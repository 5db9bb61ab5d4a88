"""The painter gives the terminal the picture of the compositor, in few bytes (U-02)."""

import random
import re
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from textual._compositor import LayoutUpdate
from textual.geometry import Region, Size
from textual.strip import Strip

from treadle.frontends.tui.painting import Painter

WIDTH, HEIGHT = 40, 14
SIZE = Size(WIDTH, HEIGHT)
CONSOLE = Console(color_system="truecolor", force_terminal=True, width=WIDTH)
STYLES = [
    Style.parse(each) for each in ("none", "red on #101010", "bold on #101010", "reverse", "underline on #101010")
]
_TOKENS = re.compile(r"\x1b\[([\d;]*)([Hmr])|(\n)|([^\x1b\n])")


class Emulator:
    """The few sequences that the painter writes, obeyed as a terminal does."""

    def __init__(self) -> None:
        self.rows = [[("?", "?")] * WIDTH for _ in range(HEIGHT)]
        self.x = self.y = 0
        self.pen = {"attributes": "", "letters": "", "ground": ""}
        self.top, self.bottom = 0, HEIGHT

    def write(self, text: str) -> None:
        assert _TOKENS.sub("", text) == ""
        for numbers, final, newline, letter in _TOKENS.findall(text):
            match final or newline or "letter":
                case "H":
                    row, _, column = numbers.partition(";")
                    self.y, self.x = int(row) - 1, int(column or 1) - 1
                case "m":
                    self._style(numbers)
                case "r":
                    top, _, bottom = numbers.partition(";")
                    self.top, self.bottom = (int(top) - 1, int(bottom)) if numbers else (0, HEIGHT)
                    self.x = self.y = 0
                case "\n":
                    assert self.y == self.bottom - 1
                    del self.rows[self.top]
                    self.rows.insert(self.bottom - 1, [("~", "~")] * WIDTH)
                case _:
                    self._put(letter)

    def _style(self, numbers: str) -> None:
        codes = re.findall(r"[34]8;2;\d+;\d+;\d+|\d+", numbers)
        for code in codes:
            if code == "0":
                self.pen = dict.fromkeys(self.pen, "")
            elif code[0] in "34" and len(code) > 1:
                self.pen["letters" if code[0] == "3" else "ground"] = "" if code in ("39", "49") else code
            else:
                self.pen["attributes"] += f"{code};"

    def _put(self, letter: str) -> None:
        visible_pen = dict(self.pen)
        if letter == " " and not set(visible_pen["attributes"].split(";")) & {"4", "7"}:
            visible_pen |= {"attributes": "", "letters": ""}
        for offset in range(cell_len(letter)):
            self.rows[self.y][self.x] = ("" if offset else letter, str(visible_pen))
            self.x += 1


def strip_of(text: str, style: Style) -> Strip:
    return Strip([Segment(text, style)]).adjust_cell_length(WIDTH, STYLES[1])


def shown_after(strips: list[Strip]) -> list[list[tuple[str, str]]]:
    """A terminal on which this is written whole."""
    emulator = Emulator()
    emulator.write(Painter().compute_difference(_update(strips), SIZE, CONSOLE).render_segments(CONSOLE))
    return emulator.rows


def _update(strips: list[Strip]) -> LayoutUpdate:
    rows: Any = [[strip] for strip in strips]
    return LayoutUpdate(rows, Region(0, 0, WIDTH, HEIGHT))


def _change(strips: list[Strip], chance: random.Random) -> list[Strip]:
    letters = "abc xyz 漢🙂é" if chance.random() < 0.2 else "abcdef   xyz"
    match chance.randrange(4):
        case 0:  # up, with a foot that stays
            by = chance.randint(1, 5)
            new = [strip_of("".join(chance.choices(letters, k=20)), chance.choice(STYLES)) for _ in range(by)]
            return [*strips[by:-2], *new, *strips[-2:]]
        case 1:
            return [strip_of("".join(chance.choices(letters, k=25)), chance.choice(STYLES)) for _ in strips]
        case 2:
            at = chance.randrange(HEIGHT)
            text = strips[at].text[:10] + "".join(chance.choices(letters, k=6))
            return [*strips[:at], strip_of(text, chance.choice(STYLES)), *strips[at + 1 :]]
        case _:
            return [*strips[3:], *strips[:3]]


@pytest.mark.thorough(one_of=8)
@pytest.mark.parametrize("seed", range(20))
def test_the_terminal_shows_what_was_wanted(seed: int) -> None:
    chance = random.Random(seed)
    painter, emulator = Painter(), Emulator()
    strips = [strip_of(f"line {number}", STYLES[number % len(STYLES)]) for number in range(HEIGHT)]
    for _ in range(30):
        emulator.write(painter.compute_difference(_update(strips), SIZE, CONSOLE).render_segments(CONSOLE))
        assert emulator.rows == shown_after(strips)
        strips = _change(strips, chance)


def test_a_line_more_costs_a_line() -> None:
    painter = Painter()
    strips = [strip_of(f"{number} some text of an answer", STYLES[1]) for number in range(HEIGHT)]
    full_output = painter.compute_difference(_update(strips), SIZE, CONSOLE).render_segments(CONSOLE)
    longer = [*strips[1:], strip_of("the next line", STYLES[1])]
    output = painter.compute_difference(_update(longer), SIZE, CONSOLE).render_segments(CONSOLE)
    assert len(output) < len(full_output) / 6
    assert full_output.count("48;2;") == 1  # one colour is set once
    assert painter.compute_difference(_update(longer), SIZE, CONSOLE).render_segments(CONSOLE) == ""
    painter.forget()
    assert (
        len(painter.compute_difference(_update(longer), SIZE, CONSOLE).render_segments(CONSOLE))
        > len(full_output) * 0.9
    )
