"""Commands that write through: the tree is compared before and after, and the event says so (W-01, W-10)."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.unit.adapters.tools.builtin.command.commanding import OutputRecorder, until
from tests.unit.adapters.tools.builtin.command.viewing import ViewBench
from treadle.errors import ToolError
from treadle.protocol.content import Shell

SERVER = "echo ran >> log; echo up; until [ -e go ]; do sleep 0.02; done; rm old; echo bye"


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[ViewBench]:
    view_bench = ViewBench(tmp_path)
    view_bench.options = replace(view_bench.options, command_view=False)
    (view_bench.project / "old").write_text("old\n")
    yield view_bench
    await view_bench.commands.close()


async def test_what_a_command_changed_is_found_by_comparing(bench: ViewBench) -> None:
    outcome = await bench("echo new >> old; touch made; echo done")
    assert outcome.text == "done\n[changed in the project]\nA made\nM old +1\n[exit 0]"
    assert (outcome.effect, outcome.source) == ("direct", "direct")
    assert {file.path: file.action for file in outcome.files} == {"old": "modified", "made": "created"}
    assert (await bench("cat old")).files == ()


async def test_what_it_removed_can_be_had_back(bench: ViewBench) -> None:  # W-01
    outcome = await bench("rm old")
    (change,) = outcome.files
    assert change.before is not None
    assert await asyncio.to_thread(bench.snapshots.read_content, change.before.digest) == b"old\n"


async def test_with_a_terminal_it_writes_through(bench: ViewBench) -> None:
    outcome = await bench("tty > /dev/null && touch made", pty=True)
    assert (outcome.effect, [file.path for file in outcome.files]) == ("direct", ["made"])


async def test_if_the_tree_cannot_be_kept_the_command_does_not_run(bench: ViewBench) -> None:  # W-01, fault 13
    (bench.home / "snapshots").mkdir(parents=True)
    (bench.home / "snapshots/objects").write_text("in the way")
    with pytest.raises(ToolError):
        await bench("rm old")
    assert os.listdir(bench.project) == ["old"]


async def test_what_was_done_by_the_time_of_a_stop_is_told(bench: ViewBench) -> None:  # L-07
    recorder = OutputRecorder()
    call = replace(await bench.prepare_call("touch made; echo ready; sleep 1000"), emit=recorder)
    task = asyncio.create_task(bench.run(call))
    await recorder.wait_for("ready")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    outcome = await bench.tools["run_command"].stop(call)
    assert outcome is not None
    assert (outcome.source, [file.path for file in outcome.files]) == ("direct", ["made"])


@pytest.mark.parametrize("tool_name", ["check_command", "stop_command"])
async def test_what_changed_while_a_background_process_ran_is_observed_and_told_once(
    bench: ViewBench, tool_name: str
) -> None:
    start_outcome = await bench(SERVER, background=True)
    assert (start_outcome.effect, start_outcome.files) == ("direct", ())
    await until((bench.project / "log").exists)
    running = await bench.use("check_command", handle="1.0")
    assert running.files == ()
    (bench.project / "go").touch()
    await until(lambda: not (bench.project / "old").exists())
    while "running" in (first := await bench.use(tool_name, handle="1.0", **_wait(tool_name))).summary:
        pass
    assert first.source == "observed"
    assert {file.path for file in first.files} == {"log", "go", "old"}
    assert "D old -1" in first.text
    again = await bench.use("check_command", handle="1.0")
    assert (again.files, again.uncaptured) == ((), ())


def _wait(tool_name: str) -> dict[str, float]:
    return {"wait_s": 5.0} if tool_name == "check_command" else {}


async def test_what_the_model_itself_wrote_meanwhile_is_not_observed(bench: ViewBench) -> None:
    await bench(SERVER, background=True)
    await until((bench.project / "log").exists)
    log_state = bench.snapshots.read_state("log")
    assert log_state is not None
    call = replace(bench.call("stop_command", handle="1.0"), known_files={"log": log_state.digest}, shell=Shell())
    assert (await bench.run(call)).files == ()
