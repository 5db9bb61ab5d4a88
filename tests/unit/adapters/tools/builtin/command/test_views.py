"""Commands as transactions: on a view, committed when they have ended, or not at all (W-08, W-09, W-10, D-02)."""

import asyncio
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.unit.adapters.tools.builtin.command.commanding import OutputRecorder, alive, until
from tests.unit.adapters.tools.builtin.command.viewing import ViewBench
from treadle.adapters.sandbox.supervisor import folder as names
from treadle.base.types import CallKey
from treadle.errors import StoreError
from treadle.ports.toolset import Invocation
from treadle.protocol.options import NetworkChoice


def git(project: Path, *words: str) -> str:
    return subprocess.run(["git", "-C", project, *words], capture_output=True, text=True, check=True).stdout


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[ViewBench]:
    view_bench = ViewBench(tmp_path)
    yield view_bench
    await view_bench.commands.close()


async def test_what_a_command_does_is_committed_and_told(bench: ViewBench) -> None:
    (bench.project / "a").write_text("one\n")
    (bench.project / "b").write_text("two\n")
    outcome = await bench("echo more >> a; rm b; mkdir d; touch d/new; echo done")
    assert outcome.text == "done\n[changed in the project]\nM a +1\nD b -1\nA d/new\n[exit 0]"
    assert outcome.summary == "exit 0, 1 line, 4 changes"
    assert (outcome.effect, outcome.source, outcome.success) == ("view", "view", True)
    assert [file.path for file in outcome.files] == ["a", "b", "d", "d/new"]
    assert outcome.diff_stat is not None
    assert (outcome.diff_stat.added, outcome.diff_stat.removed) == (1, 1)
    assert (bench.project / "a").read_text() == "one\nmore\n"
    assert sorted(os.listdir(bench.project)) == ["a", "d"]


async def test_a_folder_that_git_cannot_rename_gets_a_hint_that_works(bench: ViewBench) -> None:  # W-08
    git(bench.project, "init", "-q")
    (bench.project / "old/deep").mkdir(parents=True)
    (bench.project / "old/deep/file").write_text("x\n")
    git(bench.project, "add", "-A")
    outcome = await bench("git mv old new")
    assert not outcome.success
    assert "Invalid cross-device link" in outcome.text
    assert "mv OLD NEW && git add -A OLD NEW]" in outcome.text
    outcome = await bench("mv old new && git add -A old new")
    assert outcome.success
    assert "EXDEV" not in outcome.text
    assert git(bench.project, "ls-files") == "new/deep/file\n"


async def test_nothing_of_the_project_changes_before_the_command_has_ended(bench: ViewBench) -> None:
    recorder = OutputRecorder()
    task = asyncio.create_task(
        bench.run(replace(await bench.prepare_call("touch new; echo there; sleep 0.3"), emit=recorder))
    )
    await recorder.wait_for("there")
    assert os.listdir(bench.project) == []
    assert (await task).success
    assert os.listdir(bench.project) == ["new"]


async def test_a_command_that_only_reads_has_no_effect(bench: ViewBench) -> None:
    outcome = await bench("ls")
    assert (outcome.text, outcome.files, outcome.diff_stat, outcome.effect) == (
        "(no output)\n[exit 0]",
        (),
        None,
        "view",
    )


async def test_failing_and_too_slow_commands_have_done_what_they_have_done(bench: ViewBench) -> None:
    failed = await bench("touch a; exit 3")
    slow = await bench("touch b; sleep 1000", timeout_s=5)
    assert (failed.success, slow.success) == (False, False)
    assert [file.path for file in (*failed.files, *slow.files)] == ["a", "b"]
    assert sorted(os.listdir(bench.project)) == ["a", "b"]


async def test_the_shell_goes_on_in_a_folder_that_the_command_made(bench: ViewBench) -> None:  # T-14
    await bench("mkdir -p x/y; cd x/y; export GREETING=hi")
    outcome = await bench("pwd; echo $GREETING > here")
    assert outcome.text.startswith(f"{bench.project}/x/y\n")
    assert (bench.project / "x/y/here").read_text() == "hi\n"


async def test_times_are_kept_so_that_make_works(bench: ViewBench) -> None:
    (bench.project / "old").write_text("x")
    await bench("touch -d 2001-02-03 new old")
    assert {(bench.project / name).stat().st_mtime for name in ("new", "old")} == {981158400.0}


async def test_a_conflict_commits_nothing_and_says_why(bench: ViewBench) -> None:  # W-08, fault 31
    (bench.project / "a").write_text("one\n")
    recorder = OutputRecorder()
    call = replace(await bench.prepare_call("echo theirs >> a; touch b; echo ready; sleep 0.5"), emit=recorder)
    task = asyncio.create_task(bench.run(call))
    await recorder.wait_for("ready")
    (bench.project / "a").write_text("mine\n")
    outcome = await task
    assert not outcome.success
    assert (outcome.files, [each.path for each in outcome.conflicts]) == ((), ["a"])
    assert "nothing of what it changed was committed" in outcome.text
    assert "+theirs" in outcome.text
    assert (bench.project / "a").read_text() == "mine\n"
    assert os.listdir(bench.project) == ["a"]
    assert (await bench.run(call)).conflicts == outcome.conflicts  # decided once
    assert os.listdir(bench.project) == ["a"]


async def test_what_cannot_be_kept_is_not_changed(bench: ViewBench) -> None:  # W-01, fault 13
    (bench.project / "a").write_text("one\n")
    call = await bench.prepare_call("echo two >> a; rm -f nothing; echo said")
    (bench.home / "snapshots").mkdir(parents=True)
    (bench.home / "snapshots/objects").write_text("in the way")
    outcome = await bench.run(call)
    assert not outcome.success
    assert "said" in outcome.text
    assert "nothing of what it changed was committed" in outcome.text
    assert (bench.project / "a").read_text() == "one\n"
    (bench.home / "snapshots/objects").unlink()
    assert (await bench("echo two >> a")).success
    assert (bench.project / "a").read_text() == "one\ntwo\n"


async def test_an_interrupt_ends_the_command_and_discards_its_effect(bench: ViewBench) -> None:  # L-07
    recorder = OutputRecorder()
    call = replace(await bench.prepare_call("touch a; echo ready; sleep 1000"), emit=recorder)
    task = asyncio.create_task(bench.run(call))
    await recorder.wait_for("ready")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await bench.tools["run_command"].stop(call) is None
    late = await bench.run(call)  # a worker that has slept through it
    assert "stopped" in late.text
    assert late.files == ()
    assert os.listdir(bench.project) == []


async def test_what_was_committed_before_the_interrupt_is_the_outcome_of_the_stop(bench: ViewBench) -> None:
    call = await bench.prepare_call("touch a")
    await bench.run(call)
    outcome = await bench.tools["run_command"].stop(call)
    assert outcome is not None
    assert [file.path for file in outcome.files] == ["a"]
    assert (bench.project / "a").exists()


async def test_ignored_files_and_git_are_counted(bench: ViewBench) -> None:
    await asyncio.to_thread(git, bench.project, "init", "-q")
    (bench.project / ".gitignore").write_text("*.o\n")
    (bench.project / "f").write_text("x\n")
    identity = "-c user.name=n -c user.email=e"
    outcome = await bench(f"touch a.o b.o; git {identity} add f && git {identity} commit -qm m")
    assert "[2 ignored files]" in outcome.text
    assert "[.git: " in outcome.text
    assert outcome.git
    assert await asyncio.to_thread(git, bench.project, "log", "--format=%s") == "m\n"


# -- recovery (D-02) ----------------------------------------------------------------------------------------------


async def _start_command(bench: ViewBench, command: str, **arguments: Any) -> tuple[Invocation, int]:
    """Start a command that no reader follows; return its call and the pid of its supervisor."""
    recorder = OutputRecorder()
    call = replace(await bench.prepare_call(command, **arguments), emit=recorder)
    task = asyncio.create_task(bench.run(call))
    await recorder.wait_for("ready")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    running_command = await bench.commands.find(call.chat, call.call)
    assert running_command is not None
    return call, int((Path(running_command.folder) / names.OWNER).read_text().split()[0])


async def test_the_next_worker_commits_what_it_finds(bench: ViewBench) -> None:
    call, _ = await _start_command(bench, "echo ready; sleep 0.3; echo x >> counter")
    tool = bench.tools["run_command"]
    assert await tool.settle(call) == "run_again"
    outcome = await bench.run(call)
    assert outcome.text.startswith("ready\n")
    assert [file.path for file in outcome.files] == ["counter"]
    assert await tool.settle(call) == "run_again"  # decided: completed once more, and nothing twice
    assert (await bench.run(call)).files == outcome.files
    assert (bench.project / "counter").read_text() == "x\n"


async def test_a_lost_command_without_network_is_begun_anew(bench: ViewBench) -> None:
    call, supervisor = await _start_command(bench, "echo x >> counter; echo ready; sleep 0.5; echo end")
    os.kill(supervisor, signal.SIGKILL)
    await until(lambda: not alive(supervisor))
    assert await bench.tools["run_command"].settle(call) == "run_again"
    outcome = await bench.run(call)
    assert outcome.success
    assert outcome.text.startswith("ready\nend\n")
    assert (bench.project / "counter").read_text() == "x\n"
    assert [command.call for command in await bench.commands.list_commands(call.chat)] == [call.call, f"{call.call}~2"]


async def test_it_is_not_begun_anew_for_ever(bench: ViewBench) -> None:
    call = await bench.prepare_call("kill -9 $PPID")
    for number in (1, 2, 3):
        key = CallKey(call.call if number == 1 else f"{call.call}~{number}")
        assert await bench.tools["run_command"].settle(call) == "run_again"
        recorder = OutputRecorder()
        task = asyncio.create_task(
            bench.run(replace(call, emit=recorder, arguments={"command": "echo ready; sleep 1000"}))
        )
        await recorder.wait_for("ready")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        running_command = await bench.commands.find(call.chat, key)
        assert running_command is not None
        os.kill(int((Path(running_command.folder) / names.OWNER).read_text().split()[0]), signal.SIGKILL)
        assert (await running_command.wait()) is not None
    assert await bench.tools["run_command"].settle(call) == "unknown"
    outcome = await bench.run(call)
    assert outcome.summary.startswith("lost")
    assert "nothing of what the command changed" in outcome.text


@pytest.mark.parametrize("network", [True, ("pypi",)])
async def test_a_lost_command_with_network_is_unknown(bench: ViewBench, network: NetworkChoice) -> None:  # D-02
    bench.options = replace(bench.options, network=network)
    call, supervisor = await _start_command(bench, "echo ready; sleep 1000")
    os.kill(supervisor, signal.SIGKILL)
    await until(lambda: not alive(supervisor))
    assert await bench.tools["run_command"].settle(call) == "unknown"


@pytest.mark.parametrize(("network", "settlement"), [(False, "run_again"), (True, "unknown")])
async def test_after_a_power_cut_what_was_not_committed_has_not_happened(
    bench: ViewBench, network: bool, settlement: str
) -> None:
    bench.options = replace(bench.options, network=network)
    call, _ = await _start_command(bench, "echo x >> counter; echo ready; sleep 0.3")
    running_command = await bench.commands.find(call.chat, call.call)
    assert running_command is not None
    await running_command.wait()
    # As if it had been started before the machine was switched off and on.
    plan = dict(call.plan or {})
    plan["place"] = f"other{plan['place']}"
    job = Path(running_command.folder) / names.JOB
    job.write_bytes(job.read_bytes().replace(names.read_boot_id().encode(), b"0" * len(names.read_boot_id())))
    call = replace(call, plan=plan)
    assert await bench.tools["run_command"].settle(call) == settlement
    if settlement == "run_again":
        assert (await bench.run(call)).success
        assert (bench.project / "counter").read_text() == "x\n"


async def test_what_ran_in_another_home_is_unknown(bench: ViewBench) -> None:
    call = await bench.prepare_call("touch a")
    plan = dict(call.plan or {})
    plan["place"] = f"{plan['place']}x"
    assert await bench.tools["run_command"].settle(replace(call, plan=plan)) == "unknown"


async def test_a_worker_that_slept_through_it_all_repeats_nothing(bench: ViewBench) -> None:  # fault 4
    call = await bench.prepare_call("echo x >> counter")
    await bench.run(call)
    await bench("true")  # lets go of what is known of the first
    with pytest.raises(StoreError, match="settled"):
        await bench.run(call)
    assert (bench.project / "counter").read_text() == "x\n"


async def test_views_go_with_their_commands(bench: ViewBench) -> None:
    call = await bench.prepare_call("mkdir -p d/e; touch d/e/f; chmod 0 d/e d")
    await bench.run(call)
    view = Path(bench.commands.locate_view(call.chat, call.call))
    assert (view / "upper").is_dir()
    await bench("true")
    assert not await asyncio.to_thread(view.exists)


# -- rehearsal (W-09) ---------------------------------------------------------------------------------------------


async def test_what_was_rehearsed_and_allowed_is_committed_and_does_not_run_again(bench: ViewBench) -> None:
    tool = bench.tools["run_command"]
    call = bench.call(command="date +%s%N > when; echo trying; exit 2")
    rehearsal = await tool.rehearse(call)
    assert rehearsal is not None
    assert not rehearsal.empty
    assert "trying\n[exit 2]" in rehearsal.diff_text
    assert "A when +1" in rehearsal.diff_text
    assert os.listdir(bench.project) == []
    again = await tool.rehearse(call)
    assert again is not None
    assert again.diff_text == rehearsal.diff_text
    call = replace(call, plan=await tool.prepare(call))
    outcome = await bench.run(call)
    assert outcome.summary.startswith("exit 2")
    assert (bench.project / "when").read_text().strip() in rehearsal.diff_text
    assert await tool.settle(call) == "run_again"
    assert (await bench.run(call)).files == outcome.files


async def test_an_edited_command_is_another_one(bench: ViewBench) -> None:  # S-08
    tool = bench.tools["run_command"]
    call = bench.call(command="touch a")
    await tool.rehearse(call)
    edited = replace(call, arguments={"command": "touch b"})
    outcome = await bench.run(replace(edited, plan=await tool.prepare(edited)))
    assert [file.path for file in outcome.files] == ["b"]
    assert os.listdir(bench.project) == ["b"]


async def test_a_rehearsal_that_is_stopped_before_its_supervisor_begins_never_runs(
    bench: ViewBench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # L-07
    late = tmp_path / "python"
    late.write_text(
        f"#!/bin/sh\ntouch {tmp_path}/held; until [ -e {tmp_path}/go ]; do sleep 0.02; done; "
        f'exec {shlex.quote(sys.executable)} "$@"\n'
    )
    late.chmod(0o700)
    monkeypatch.setattr(bench.commands, "_python", str(late))
    tool, call = bench.tools["run_command"], bench.call(command="sleep 300")
    call = replace(call, trial=await tool.plan_trial(call))
    rehearsal = asyncio.create_task(tool.rehearse(call))
    await until((tmp_path / "held").exists)
    rehearsal.cancel()
    await asyncio.wait({rehearsal})
    await tool.stop(call)
    (tmp_path / "go").touch()
    (folder,) = [path for path in (tmp_path / "home/commands/c_1").iterdir() if (path / names.JOB).exists()]
    await until((folder / names.OWNER).exists)
    await until(lambda: not names.is_locked(str(folder)))
    assert b'"stopped"' in (folder / names.EXIT).read_bytes()
    assert not list(folder.glob("output.*"))


async def test_a_rehearsal_of_what_changes_nothing_is_empty(bench: ViewBench) -> None:
    rehearsal = await bench.tools["run_command"].rehearse(bench.call(command="ls -la"))
    assert rehearsal is not None
    assert rehearsal.empty
    assert "It changes nothing" in rehearsal.diff_text


async def test_a_reviewed_rehearsal_has_no_network_even_where_commands_do(bench: ViewBench) -> None:  # W-09
    bench.options = replace(bench.options, network=True, mode="review")
    call = bench.call(command="ls /sys/class/net; cat /proc/net/dev | wc -l")
    rehearsal = await bench.tools["run_command"].rehearse(call)
    assert rehearsal is not None
    plan = await bench.tools["run_command"].prepare(call)
    assert plan is not None
    assert plan["network"] is False
    assert plan["sandbox"] == "bubblewrap, no network"


async def test_to_start_a_background_command_changes_nothing(bench: ViewBench) -> None:  # W-10
    call = bench.call(command="rm -rf .", background=True)
    assert await bench.tools["run_command"].plan_trial(call) is None
    rehearsal = await bench.tools["run_command"].rehearse(call)
    assert rehearsal is not None
    assert rehearsal.empty


@pytest.mark.parametrize("options", [{"background": True}, {"pty": True}, {}])
async def test_without_a_view_nothing_can_be_rehearsed(bench: ViewBench, options: dict[str, Any]) -> None:
    bench.options = replace(bench.options, command_view=False)
    assert await bench.tools["run_command"].rehearse(bench.call(command="ls", **options)) is None
