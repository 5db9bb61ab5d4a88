"""The strongest sandbox that holds is taken, what was tried is remembered, and a demand is met or refused (S-03)."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tests.faults.chance import SOAK
from tests.unit.adapters.sandbox.grounds import Grounds, grounds, missing
from treadle.adapters.sandbox import probe as stage
from treadle.adapters.sandbox.choose import (
    FOLDER,
    LEVELS,
    REMEMBERED,
    RETRY_S,
    Findings,
    choose,
    examine,
    load_findings,
)
from treadle.adapters.sandbox.probe import examine_level, read_bubblewrap_version
from treadle.adapters.sandbox.trial_folders import ESCAPES, EscapeResult, LevelReport
from treadle.errors import SandboxError

pytestmark = [
    pytest.mark.thorough(one_of=4),
    pytest.mark.skipif(sys.platform != "linux", reason="bubblewrap and Landlock are Linux's own"),
]


@pytest.fixture(scope="module")
def examined_grounds() -> Iterator[tuple[Grounds, Findings]]:
    """Everything tried once, for all tests here."""
    with grounds() as place:
        yield place, examine(place.folder)


def remember(place: Grounds, findings: Findings) -> Path:
    home = place.folder / "another-home"
    (home / FOLDER).mkdir(parents=True, exist_ok=True)
    (home / FOLDER / REMEMBERED).write_bytes(msgspec.json.encode(findings))
    return home


def with_reports(findings: Findings, *reports: LevelReport, age_s: float = 0.0) -> Findings:
    return msgspec.structs.replace(findings, reports=reports, time_s=time.time() - age_s)


@pytest.mark.thorough(one_of=8)
def test_the_strongest_that_holds_is_taken(examined_grounds: tuple[Grounds, Findings]) -> None:
    place, findings = examined_grounds
    assert tuple(each.level for each in findings.reports) == LEVELS == ("bubblewrap", "landlock")
    for report in findings.reports:
        assert report.holds == (not missing(report.level)), report
    best = next((each.level for each in findings.reports if each.holds), "none")
    choice = choose(place.folder)
    assert choice.level == best
    assert not [path for path in (place.folder / FOLDER).iterdir() if path.name.startswith("trial")]


def test_what_was_found_out_is_remembered(examined_grounds: tuple[Grounds, Findings]) -> None:
    place, findings = examined_grounds
    wrong = with_reports(findings, LevelReport("bubblewrap", failure="says who"), LevelReport("landlock", failure="no"))
    choice = choose(remember(place, wrong))
    assert choice.level == "none"
    assert choice.reasons == ("bubblewrap: says who", "landlock: no")


@pytest.mark.thorough(one_of=8)
@pytest.mark.parametrize("age_s", [RETRY_S + 1, -RETRY_S])
def test_a_failure_is_tried_again_after_a_while(examined_grounds: tuple[Grounds, Findings], age_s: float) -> None:
    """Fault 40: a level that failed is not remembered until the machine starts anew."""
    place, findings = examined_grounds
    failed = [LevelReport(level, failure="it was busy") for level in LEVELS]
    home = remember(place, with_reports(findings, *failed, age_s=age_s))
    assert [each.failure for each in load_findings(home).reports] == [each.failure for each in findings.reports]


@pytest.mark.thorough(one_of=8)
def test_a_bubblewrap_without_views_is_tried_again_after_a_while(examined_grounds: tuple[Grounds, Findings]) -> None:
    place, findings = examined_grounds
    less = [msgspec.structs.replace(each, views=False) for each in findings.reports]
    home = remember(place, with_reports(findings, *less, age_s=RETRY_S + 1))
    assert [each.views for each in load_findings(home).reports] == [each.views for each in findings.reports]


def test_what_holds_is_remembered_for_good(examined_grounds: tuple[Grounds, Findings]) -> None:
    place, findings = examined_grounds
    if not findings.best:
        pytest.skip("the strongest level does not hold here")
    marked = [msgspec.structs.replace(each, nested=not each.nested) for each in findings.reports]
    home = remember(place, with_reports(findings, *marked, age_s=1e6))
    assert load_findings(home).reports == tuple(marked)


@pytest.mark.thorough(one_of=8)
def test_a_level_is_not_lowered_by_one_failure(bubblewrap: Grounds, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fault 40: the first look fails, as it may beside another process; the second decides."""
    failed = bubblewrap.folder / "failed"
    flaky = script(
        bubblewrap.folder / "bwrap",
        f'case "$*" in *--version*) ;; *) [ $(cat {failed} | wc -l) -ge 4 ] || '
        f'{{ echo x >> {failed}; echo "could not start" >&2; exit 1; }} ;; esac\nexec {bubblewrap.bubblewrap} "$@"',
    )
    failed.touch()
    monkeypatch.setattr("treadle.adapters.sandbox.choose.find_bubblewrap", lambda: flaky)
    home = bubblewrap.folder / "flaky-home"
    report = examine(home).reports[0]
    assert failed.read_text() == "x\n" * 4  # every variant of the first look
    assert report.holds
    assert report.views


PROBE = """
import sys
from pathlib import Path
from treadle.adapters.sandbox.choose import choose
chosen = choose(Path(sys.argv[1]))
print(chosen.level, chosen.sandbox.views, *chosen.reasons)
"""


@pytest.mark.thorough(one_of=8)
@pytest.mark.slow
def test_first_probes_at_once_come_to_the_same_level(bubblewrap: Grounds) -> None:
    """Fault 40: the sockets and folders of each probe vanish while the others cover them."""
    for turn in range(4 if SOAK else 1):
        processes = [
            subprocess.Popen(
                [sys.executable, "-c", PROBE, str(bubblewrap.folder / f"home-{turn}-{number}")],
                stdout=subprocess.PIPE,
                text=True,
            )
            for number in range(5)
        ]
        answers = {process.communicate()[0].strip() for process in processes}
        assert answers == {"bubblewrap True"}


@pytest.mark.thorough(one_of=8)
@pytest.mark.parametrize("spoilt", ["boot", "kernel", "treadle", "bubblewrap"])
def test_it_is_tried_again_when_something_changed(examined_grounds: tuple[Grounds, Findings], spoilt: str) -> None:
    place, findings = examined_grounds
    machine = msgspec.structs.replace(findings.machine, **{spoilt: "another"})
    home = remember(place, Findings(machine, ()))
    assert load_findings(home).reports != ()
    assert load_findings(home).machine == findings.machine


@pytest.mark.thorough(one_of=8)
def test_it_is_tried_again_when_more_is_tried_today(examined_grounds: tuple[Grounds, Findings]) -> None:
    place, findings = examined_grounds
    less = [msgspec.structs.replace(each, tried=each.tried[1:]) for each in findings.reports]
    home = remember(place, with_reports(findings, *less))
    assert [each.complete for each in load_findings(home).reports] == [True] * len(LEVELS)


@pytest.mark.thorough(one_of=8)
def test_a_damaged_memory_is_no_memory(examined_grounds: tuple[Grounds, Findings]) -> None:
    place, findings = examined_grounds
    home = remember(place, findings)
    (home / FOLDER / REMEMBERED).write_text("{")
    assert load_findings(home).machine == findings.machine


def test_an_open_way_out_lowers_the_level_with_a_word(examined_grounds: tuple[Grounds, Findings]) -> None:
    place, findings = examined_grounds
    results = tuple(
        EscapeResult(each.name, "allowed" if each.name == "chmod_outside" else "refused") for each in ESCAPES
    )
    holds = tuple(EscapeResult(each.name, "refused") for each in ESCAPES)
    home = remember(place, with_reports(findings, LevelReport("bubblewrap", results), LevelReport("landlock", holds)))
    choice = choose(home)
    assert choice.level == "landlock"
    assert choice.reasons == ("bubblewrap: it does not refuse to change the mode of a file outside",)
    with pytest.raises(SandboxError, match=r"sandbox bubblewrap.*does not hold here.*mode of a file"):
        choose(home, "bubblewrap")
    assert choose(home, "landlock").reasons == ()


def test_a_demand_that_cannot_be_met(examined_grounds: tuple[Grounds, Findings]) -> None:
    place, _ = examined_grounds
    with pytest.raises(SandboxError, match="not known on Linux"):
        choose(place.folder, "sandbox-exec")
    choice = choose(place.folder, "none")
    assert (choice.level, choice.reasons) == ("none", ("the setting sandbox is none",))


def script(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


SAYS_ITS_VERSION = 'if [ "$1" = --version ]; then echo bubblewrap 0.11.0; exit; fi\n'


def test_a_bubblewrap_that_confines_nothing_is_found_out(place: Grounds) -> None:
    """The probe tries escapes in a sandbox and does not trust the word of the program."""
    liar = script(
        place.folder / "bwrap",
        f'{SAYS_ITS_VERSION}while [ "$1" != -- ]; do shift; done; shift; exec "$@"',
    )
    report = examine_level("bubblewrap", liar, place.folder)
    assert not report.failure
    assert not report.holds
    assert not report.views
    assert "read a hidden file" in report.open
    assert "connect to the network (TCP)" in report.open
    assert "live on after the command has ended (setsid)" in report.open


@pytest.mark.parametrize(
    ("left_out", "allowed_names"),
    [
        ("--unshare-net", {"connect_tcp", "send_udp", "connect_abstract"}),
        ("--unshare-pid", {"survive", "kill_process"}),
    ],
)
def test_a_bubblewrap_that_leaves_something_out_is_found_out(
    bubblewrap: Grounds, left_out: str, allowed_names: set[str]
) -> None:
    half = script(
        bubblewrap.folder / "bwrap",
        f'for word; do shift; [ "$word" = {left_out} ] || set -- "$@" "$word"; done\nexec {bubblewrap.bubblewrap} "$@"',
    )
    report = examine_level("bubblewrap", half, bubblewrap.folder)
    assert not report.failure
    assert {each.name for each in report.tried if each.verdict == "allowed"} == allowed_names


def test_a_bubblewrap_that_never_ends_is_given_up_once(place: Grounds, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage, "SILENCE_S", 1.0)  # it is silent for ever, so the time is of no matter
    tries, lives = place.folder / "tries", place.folder / "lives"
    tries.touch()
    os.mkfifo(lives)
    alive = os.open(lives, os.O_RDONLY | os.O_NONBLOCK)
    stuck = script(place.folder / "bwrap", f"{SAYS_ITS_VERSION}echo x >> {tries}; exec sleep 1000 > {lives}")
    try:
        report = examine_level("bubblewrap", stuck, place.folder)
        os.set_blocking(alive, True)
        assert os.read(alive, 1) == b""  # no process has the other end open
    finally:
        os.close(alive)
    assert "does not end" in report.failure
    assert not report.holds
    assert report.stuck
    assert tries.read_text() in ("x\n", "")  # not even once, if the machine was slower than our patience


def test_a_bubblewrap_that_does_not_work_is_found_out(place: Grounds) -> None:
    says = "echo bubblewrap 0.11.0; echo No permissions to create a new namespace >&2; exit 1"
    report = examine_level("bubblewrap", script(place.folder / "bwrap", says), place.folder)
    assert "No permissions to create a new namespace" in report.failure
    assert not report.holds


def test_a_bubblewrap_that_is_too_old_or_absent(place: Grounds) -> None:
    old = script(place.folder / "bwrap", "echo bubblewrap 0.4.1")
    assert "version 0.4.1, 0.8 is needed" in examine_level("bubblewrap", old, place.folder).failure
    assert "there is no bwrap" in examine_level("bubblewrap", "", place.folder).failure
    assert read_bubblewrap_version(script(place.folder / "odd", "echo hello")) == (0,)
    assert read_bubblewrap_version("/nonexistent") == (0,)
