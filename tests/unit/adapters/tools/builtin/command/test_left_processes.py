"""Processes that a command leaves running: they may take a moment to end, then they are stopped and named (S-14), in
every sandbox."""

import gzip
import os
from collections.abc import AsyncIterator, Iterator

import pytest

from tests.unit.adapters.sandbox.grounds import Grounds, grounds
from tests.unit.adapters.tools.builtin.command.commanding import Bench
from treadle.adapters.sandbox import landlock

NOTE = "[processes that it left running in the background were stopped: "


@pytest.fixture
def place() -> Iterator[Grounds]:
    with grounds() as new_grounds:
        yield new_grounds


@pytest.fixture(params=["bubblewrap", "landlock", "none"])
async def bench(request: pytest.FixtureRequest, place: Grounds) -> AsyncIterator[Bench]:
    if request.param == "bubblewrap" and not place.bubblewrap:
        pytest.skip("no bubblewrap on this machine")
    if request.param == "landlock" and landlock.read_version() < landlock.OLDEST:
        pytest.skip("no Landlock on this machine")
    sandbox = place.sandbox(request.param)
    command_bench = Bench(place.folder, os.environ, sandbox_of=lambda _demand: sandbox)
    yield command_bench
    await command_bench.commands.close()


@pytest.mark.parametrize("prefix", ["", "trap 'echo bye' EXIT; "])
async def test_what_ends_soon_is_waited_for(bench: Bench, prefix: str) -> None:
    outcome = await bench(f"{prefix}seq 200000 > >(sleep 0.5; gzip -1 > log.gz)")
    assert outcome.success
    assert gzip.decompress((bench.project / "log.gz").read_bytes()).endswith(b"\n200000\n")
    assert NOTE not in outcome.text


@pytest.mark.parametrize("more", [{}, {"fresh": True}])
async def test_what_does_not_end_is_stopped_and_named(bench: Bench, more: dict[str, bool]) -> None:
    outcome = await bench("sleep 1000 & setsid sleep 1001 & tail -f /dev/null & export A=1; echo started", **more)
    assert outcome.success
    assert outcome.text.startswith(f"started\n{NOTE}sleep (2), tail. ")
    assert (outcome.shell is None) == bool(more)


@pytest.mark.parametrize(("end", "code"), [("kill -9 $$", 137), ("exit 3", 3), ("kill -15 $$", 143)])
async def test_how_the_command_ended_stays_as_it_was(bench: Bench, end: str, code: int) -> None:
    outcome = await bench(f"echo a; sleep 0.1 & {end}")
    assert outcome.text in (f"a\n[exit {code}]", f"a\n[killed by signal {code - 128}]")


async def test_a_background_command_names_them_too(bench: Bench) -> None:
    await bench("sleep 1000 & echo started", background=True)
    outcome = await bench.use("check_command", handle="1.0", wait_s=20)
    while "running]" in outcome.text:
        outcome = await bench.use("check_command", handle="1.0", wait_s=20)
    assert f"{NOTE}sleep. " in outcome.text
