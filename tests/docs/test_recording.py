"""The recording of the terminal app: one picture that moves, made of the rows of its frames."""

import re
from pathlib import Path

from scripts.recording import SIZE, Frame, moving, rows_of

IMAGES = Path(__file__).parents[2] / "docs" / "images"


def frame(*rows: str, seconds: float = 1.0) -> Frame:
    return Frame((*rows, *[""] * (2 * SIZE[1] - len(rows))), seconds)


def test_a_row_is_written_once_and_seen_when_it_was_there() -> None:
    first, second = '<text style="fill:red">a</text>', "<text>b</text>"
    picture = moving([frame(first, second), frame(first), frame(first, second, seconds=2.0)])
    assert picture.count(">a</text>") == picture.count(">b</text>") == 1
    (rule,) = re.findall(r"@keyframes \w+\{(.*)\}", picture)
    assert rule == "0%{visibility:visible}25.00%{visibility:hidden}50.00%{visibility:visible}"
    assert "prefers-reduced-motion" in picture


def test_the_rows_of_a_picture_are_all_that_is_on_the_screen() -> None:
    rows = rows_of((IMAGES / "terminal.svg").read_text())
    text = re.sub(r"<[^>]*>", "", "".join(rows)).replace("\N{NO-BREAK SPACE}", " ")
    assert "and both tests pass" in text
    assert "stats.py +1" in text


def test_the_recording_is_small_and_loads_nothing() -> None:
    picture = (IMAGES / "terminal-run.svg").read_text()
    assert len(picture) < 300_000
    assert "<script" not in picture
    assert set(re.findall(r'https?://[^"\s<]+', picture)) == {"http://www.w3.org/2000/svg"}
