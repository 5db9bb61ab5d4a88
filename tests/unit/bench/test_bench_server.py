"""The benchmark of the server: a quick run measures everything, the search finds what a core carries, and figures
become a section of the page that leaves the rest of it alone."""

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from bench import report
from bench.__main__ import TEMPLATE
from bench.chart import draw
from bench.report import Machine, write_page
from bench.section import section, with_section
from bench.server.__main__ import main
from bench.server.appends import Appends
from bench.server.capacity import Level, most_carried, search
from bench.server.going_on import GoingOn
from bench.server.idle import Idle
from bench.server.readers import Lags, Waits
from bench.server.report import Outcome, panels, text, write_section


def make_level(chats: int, lag_95_ms: float, busy: float = 1.0, others_busy: float = 0.5) -> Level:
    return Level(chats, lag_95_ms / 2, lag_95_ms, 100.0, busy, others_busy, 1.0)


OUTCOME = Outcome(
    "2026-01-31",
    False,
    Machine("a cpu", 2, "CPython", "Linux", 0.1),
    [make_level(50, 5.0, 0.3), make_level(100, 12.0, 0.6), make_level(200, 900.0)],
    make_level(50, 6.0, 0.4),
    {"SQLite": GoingOn(2.0, 3.0, 4.0)},
    {"SQLite": Appends(300.0, 4000.0, 400.0, 400.0)},
    Idle(4.0, 30.0),
    250.0,
    ["the weather"],
)


@pytest.mark.thorough
def test_a_quick_run_measures_everything(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = tmp_path / "results.json"
    assert main(["--quick", "--no-postgres", "--json", str(results)]) == 0
    outcome = json.loads(results.read_bytes())
    (level,) = outcome["levels"]
    assert level["chats"] == 10
    assert 1 < level["cpu_us"] < 10_000
    assert level["lag_ms"] > 0
    assert 0 < outcome["going_on"]["SQLite"]["answered"] < 20_000
    assert outcome["appends"]["SQLite"]["many"] > 1
    printed = capsys.readouterr().out
    assert "with an open stream" in printed
    assert "SQLite, 64 chats at once" in printed


@pytest.mark.parametrize(("limit", "expected"), [(137, range(127, 138)), (3, range(0, 4)), (50, range(40, 51))])
def test_the_search_finds_what_is_carried(limit: int, expected: range) -> None:
    chat_counts: list[int] = []

    def measure(chats: int) -> Level:
        chat_counts.append(chats)
        return make_level(chats, 10.0 if chats <= limit else 500.0)

    levels = search(measure, first=50, step=10, say=lambda _: None)
    assert most_carried(levels) in expected
    assert len(chat_counts) < 10


def test_a_level_that_others_spoiled_is_measured_again() -> None:
    tries = iter(
        [make_level(50, 300.0, busy=0.2), make_level(50, 10.0, busy=0.3), make_level(100, 400.0), make_level(75, 400.0)]
    )
    levels = search(lambda _: next(tries), first=50, step=30, say=lambda _: None)
    assert [(level.chats, level.carried) for level in levels] == [(50, True), (75, False), (100, False)]
    assert not make_level(50, 300.0, busy=0.2).sound  # the server had time left: it was not its fault
    assert not make_level(50, 300.0, others_busy=0.97).sound  # nor when the readers had none
    assert make_level(50, 300.0).sound


async def test_readers_find_stamps_and_calls() -> None:
    lags, waits = Lags(), Waits()
    event = b'data: {"data":{"text":" T000000001500000 T000000001700000"},"type":"assistant.message_delta"}'
    lags.got(event, 2.0)
    lags.got(event, 3.0)  # the text so far, once more
    assert lags.seen == [(1.5, 0.5), (1.7, pytest.approx(0.3))]
    waits.got(b'data: {"type":"session.action_required","data":{"actions":[{"tool_call_id":"1.0"}]}}', 0.0)
    assert await waits.call() == "1.0"


def test_a_section_is_replaced_and_nothing_else() -> None:
    page = "# Page\n<!-- begin a -->\nold\n<!-- end a -->\n<!-- begin b -->\nkept\n<!-- end b -->\nend\n"
    new_page = with_section(page, "a", "new \\1\n")
    assert new_page == page.replace("old", "new \\1")
    assert section(new_page, "b") == "kept\n"
    with pytest.raises(ValueError, match="no section 'c'"):
        with_section(page, "c", "")


def test_figures_become_a_section_and_a_picture(tmp_path: Path) -> None:
    page = tmp_path / "performance.md"
    page.write_text("before\n<!-- begin server -->\nold\n<!-- end server -->\nafter\n")
    write_section(OUTCOME, tmp_path)
    page_text = page.read_text()
    assert page_text.startswith("before\n<!-- begin server -->\n")
    assert page_text.endswith("<!-- end server -->\nafter\n")
    assert "**A core carries 100 chats**" in page_text
    assert "| 200 | 450 | 900 | 100 | 100% | no |" in page_text
    assert "takes 250 bytes" in page_text
    assert "Not measured: the weather." in page_text
    assert ElementTree.fromstring((tmp_path / "images" / "server.svg").read_text()).tag.endswith("svg")
    assert "10.0" in text(OUTCOME)  # Treadle ÷ plain, many at once


def test_the_rest_of_the_page_is_written_without_the_section_being_lost(tmp_path: Path) -> None:
    (tmp_path / "performance.md").write_text("old\n<!-- begin server -->\nkept\n<!-- end server -->\n")
    results = {"chunk_us": {"treadle": 10.0}}
    write_page(report.Outcome("2026-01-31", False, OUTCOME.machine, results, {}, []), TEMPLATE, tmp_path)
    page_text = (tmp_path / "performance.md").read_text()
    assert page_text.startswith("# Performance")
    assert section(page_text, "server") == "kept\n"


def test_a_picture_of_half_a_run_can_be_drawn() -> None:
    half = Outcome("", True, OUTCOME.machine, [], None, {}, OUTCOME.appends, None, 0.0, [])
    assert [panel.title.split(" ")[0] for panel in panels(half)] == ["durable"]
    ElementTree.fromstring(draw(panels(half)))


def test_a_smoke_run_is_not_for_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--quick", "--write-docs"])
    assert "leave --quick out" in capsys.readouterr().err
