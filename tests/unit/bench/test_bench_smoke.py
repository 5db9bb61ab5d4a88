"""The benchmark itself: a floor can be measured, and results become tables, a page and a picture."""

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from bench import sandbox
from bench.__main__ import TEMPLATE, main
from bench.adapters import comparisons_table, sdk_versions
from bench.chart import draw
from bench.contest import CONTESTANTS, SCENARIOS
from bench.figures import BY_KEY, CHARTED
from bench.measure import require_single_reads, share_rounds
from bench.processes import REPOSITORY, Unsound
from bench.providers import OURS, PROVIDERS, Provider
from bench.report import Machine, Outcome, align, figures_table, panels, ratios_table, write_page
from bench.section import section
from bench.streams import chunk_bytes, made

RESULTS = {
    "chunk_us": {"floor_aiohttp": 5.0, "treadle": 10.0, "openai": 200.0},
    "paced_us": {"floor_aiohttp": 50.0, "treadle": 90.0},
    "log_ratio": {"treadle": 1.2},
}
ADAPTERS = {"ollama": {"chunk_us": {"treadle": 2.0, "ollama": 19.0}}}


@pytest.mark.thorough(one_of=8)
def test_one_quick_scenario_of_a_floor_is_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = tmp_path / "results.json"
    assert main(["rounds", "floor_asyncio", "--quick", "--json", str(results)]) == 0
    figures = json.loads(results.read_bytes())["results"]
    assert all(0 < figures[key]["floor_asyncio"] < 100 for key in ("plain_round_ms", "round_ms"))
    assert figures["round_commits"]["floor_asyncio"] == 2
    assert "CPU per round with one tool call" in capsys.readouterr().out


@pytest.mark.thorough(one_of=8)
def test_what_a_sandbox_costs_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    assert sandbox.main(["--quick"]) == 0
    ways = [line.split("  ")[0] for line in capsys.readouterr().out.splitlines()[1:]]
    assert ways[:2] == ["plain bash", "none"]


def test_a_paced_figure_is_refused_when_chunks_did_not_come_one_by_one() -> None:
    require_single_reads({"paced_us": 50.0, "paced_reads": 1.02, "paced_busy": 0.7})
    require_single_reads({"paced_us": 400.0, "paced_reads": 0.2, "paced_busy": 0.99})
    with pytest.raises(Unsound, match=r"0\.40 reads a chunk"):
        require_single_reads({"paced_us": 18.0, "paced_reads": 0.4, "paced_busy": 0.3})


def test_the_cost_of_durability_is_shared_by_the_steps_of_a_round() -> None:
    plain = share_rounds({"round_ms": 1.0}, durable=False)
    figures = share_rounds({**plain, "round_ms": 2.2, "round_commits": 3.0}, durable=True)
    assert figures["durable_ms"] == pytest.approx(1.2)
    assert figures["step_ms"] == pytest.approx(0.4)
    assert "step_ms" not in share_rounds({**plain, "round_ms": 2.2}, durable=True)


@pytest.mark.thorough(one_of=8)
def test_every_adapter_is_measured_both_ways(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = tmp_path / "results.json"
    assert main(["adapters", "--quick", "--json", str(results)]) == 0
    adapters = json.loads(results.read_bytes())["adapters"]
    assert list(adapters) == [provider.name for provider in PROVIDERS]
    assert all(each[key]["treadle"] < 1000 for each in adapters.values() for key in ("chunk_us", "alone_us"))
    assert "one in a read" in capsys.readouterr().out


@pytest.mark.parametrize("provider", PROVIDERS, ids=lambda provider: provider.name)
def test_reads_of_a_chunks_size_bring_one_chunk_each(provider: Provider) -> None:
    size = chunk_bytes(provider.name, 50)
    (response_bytes,) = made(provider.name, 50).writes
    reads = [response_bytes[start : start + size] for start in range(0, len(response_bytes), size)]
    complete_reads = [read for read in reads if read.count(b" streams") == 1 and read.endswith(b"\r\n")]
    assert len(complete_reads) >= 40


def test_adapters_are_shown_beside_their_sdks_as_far_as_these_were_measured() -> None:
    measured = {"anthropic": {"chunk_us": {"treadle": 2.0, "anthropic": 40.0}, "alone_us": {"treadle": 15.0}}}
    _, many, one = comparisons_table(measured)
    assert list(many) == ["Anthropic Messages", "many in a read", "2.00", "40.0", "20.0", "yes"]
    assert list(one) == ["Anthropic Messages", "one in a read", "15.0", "-", "-", "-"]
    assert sdk_versions(measured).startswith("anthropic ")


def test_unknown_names_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["speed"])
    assert "no scenario or contestant is called speed" in capsys.readouterr().err


def test_tables_say_what_was_reached_and_by_how_much() -> None:
    head, chunk, paced, log = figures_table(RESULTS)
    assert list(head) == ["figure", "floor: aiohttp", "Treadle", "openai SDK", "target", "reached"]
    assert list(chunk)[1:] == ["5.00", "10.0", "200", "≤ 12", "yes"]
    assert list(paced)[3:] == ["-", "≤ 60", "no"]
    assert list(log)[1:] == ["-", "1.20", "-", "≤ 1.5", "yes"]
    assert [list(row)[1:] for row in ratios_table(RESULTS)[1:]] == [["2.0", "20"], ["1.8", "-"]]
    assert len({len(line) for line in align([head, chunk]).splitlines()}) == 1


def test_the_page_shows_figures_machine_and_what_is_missing(tmp_path: Path) -> None:
    machine = Machine("Some CPU", 2, "CPython 3.11", "Linux", 0.2)
    write_page(Outcome("2026-01-02", False, machine, RESULTS, ADAPTERS, ["LangGraph: no luck"]), TEMPLATE, tmp_path)
    page = (tmp_path / "performance.md").read_text()
    assert "2026-01-02: Some CPU, 2 cores, Linux, CPython 3.11, load average 0.2 before the run" in page
    assert "| CPU per streamed chunk, many in a read, µs | 5.00 | 10.0 | 200 | ≤ 12 | yes |" in page
    assert "Not measured: LangGraph: no luck." in page
    assert "| Ollama | many in a read | 2.00 | 19.0 | 9.50 | no |" in page
    assert (tmp_path / "images" / "performance.svg").is_file()
    assert not machine.is_busy
    assert Machine("Some CPU", 2, "CPython 3.11", "Linux", 4.3).is_busy


def test_a_new_page_keeps_what_was_written_by_hand(tmp_path: Path) -> None:
    machine = Machine("Some CPU", 2, "CPython 3.11", "Linux", 0.2)
    for name in ("performance.md", "images/performance.svg"):
        copy = tmp_path / name
        copy.parent.mkdir(exist_ok=True)
        copy.write_bytes((REPOSITORY / "docs" / name).read_bytes())
    headings = [line for line in (tmp_path / "performance.md").read_text().splitlines() if line.startswith("## ")]
    write_page(Outcome("2026-01-02", False, machine, RESULTS, ADAPTERS, []), TEMPLATE, tmp_path)
    page = (tmp_path / "performance.md").read_text()
    assert [line for line in page.splitlines() if line.startswith("## ")] == headings
    assert "2026-01-02" in page
    summary = section(page, "summary")
    assert "| CPU per streamed chunk, many in a read, µs | 10.0 | ≤ 12 | yes | `python -m bench stream` |" in summary
    assert "`python -m bench headless`" not in summary  # this run has no such figure
    assert "`python -m bench.view`" in summary


def test_the_picture_is_valid_svg_with_a_bar_for_each_value() -> None:
    root = ElementTree.fromstring(draw(panels(RESULTS)))
    bars = root.findall("{http://www.w3.org/2000/svg}rect")
    assert len(bars) == 1 + 5
    assert all(float(bar.attrib["width"]) > 0 for bar in bars[1:])


def test_every_contestant_has_its_file_and_every_peer_its_pins() -> None:
    folder = REPOSITORY / "bench"
    for contestant in (*CONTESTANTS, OURS, *(provider.sdk for provider in PROVIDERS)):
        assert (folder / "contestants" / contestant.file).is_file()
        if contestant.kind == "peer":
            pins = (folder / "peers" / f"{contestant.name}.txt").read_text().split()
            assert pins
            assert all(len(pin.split("==")) == 2 and "/" not in pin for pin in pins)


def test_names_are_unique_and_charted_figures_exist() -> None:
    names = [each.name for each in (*SCENARIOS, *CONTESTANTS)]
    assert len(set(names)) == len(names)
    assert set(CHARTED) <= set(BY_KEY)
