"""Temporary folders of killed processes are removed by a later process, and no others (S-14, fault 40)."""

import asyncio
import fcntl
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.scenario.kit import play
from treadle import Agent
from treadle.adapters.models.scripted import Say, ScriptedModel
from treadle.adapters.sandbox.supervisor import folder as names
from treadle.adapters.stores.memory import MemoryStore
from treadle.base.process_folders import list_abandoned_folders
from treadle.library.tool_setup import ToolSetup, remove_abandoned_folders

HOLD = """
import sys, tempfile, time
from treadle.base.process_folders import make_folder_prefix
print(tempfile.mkdtemp(prefix=make_folder_prefix(), dir=sys.argv[1]), flush=True)
time.sleep(600)
"""
AGENT = """
import asyncio, os, signal, sys
from treadle import Agent
from treadle.adapters.models.scripted import Call, Say, ScriptedModel
from treadle.adapters.stores.memory import MemoryStore

async def main():
    script = ScriptedModel([Call("run_command", command="echo hello > new"), Say("Done.")])
    agent = Agent(MemoryStore(), model=script, home=sys.argv[1])
    async for _ in agent.chat(root=sys.argv[2], mode="autopilot").send("Go."):
        pass
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


def leave_folder(parent: Path) -> Path:
    """A folder of a process that was killed."""
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(parent)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    folder = Path(process.stdout.readline().strip())
    assert list_abandoned_folders(str(parent)) == []  # its process lives
    process.send_signal(signal.SIGKILL)
    process.communicate()
    return folder


def test_only_folders_whose_process_has_ended_are_abandoned(tmp_path: Path) -> None:
    folder = leave_folder(tmp_path)
    _, pid, namespace, _ = folder.name.split("-", 3)
    other_names = [
        f"treadle-{pid}-{namespace}1-x",  # a process of another PID namespace
        f"treadle-{os.getpid()}-{namespace}-x",
        f"treadle-1-{namespace}-x",
        f"treadle-0-{namespace}-x",
        f"treadle--1-{namespace}-x",
        f"treadle-{'9' * 5_000}"[:200] + f"-{namespace}-x",
        f"treadle-{pid}-x",
        f"treadle-{pid}",
        "treadle-demo-x",
    ]
    for name in other_names:
        (tmp_path / name).mkdir()
    (tmp_path / f"{folder.name}-link").symlink_to(tmp_path / "treadle-demo-x")
    (tmp_path / f"{folder.name}-file").touch()
    if os.geteuid() == 0:
        (tmp_path / f"{folder.name}-of-another-user").mkdir()
        os.chown(tmp_path / f"{folder.name}-of-another-user", 12_345, 12_345)
    assert list_abandoned_folders(str(tmp_path)) == [str(folder)]
    assert list_abandoned_folders(str(tmp_path / "none")) == []


def test_an_abandoned_folder_is_removed_but_not_what_its_links_name(tmp_path: Path) -> None:
    temporary, outside = tmp_path / "temporary", tmp_path / "outside"
    for each in (temporary, outside):
        each.mkdir()
    (outside / "file").touch()
    folder = leave_folder(temporary)
    (folder / "link").symlink_to(outside)
    (folder / "closed").mkdir(mode=0o000)
    remove_abandoned_folders(str(temporary))
    assert list(temporary.iterdir()) == []
    assert (outside / "file").exists()


def test_data_stays_as_long_as_a_command_runs_in_it(tmp_path: Path) -> None:
    """A command outlives its agent."""
    folder = leave_folder(tmp_path)
    command = folder / "commands" / "c_1" / "1.0"
    command.mkdir(parents=True)
    lock = os.open(command / names.LOCK, os.O_RDWR | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_EX)
    remove_abandoned_folders(str(tmp_path))
    assert command.exists()
    os.close(lock)
    remove_abandoned_folders(str(tmp_path))
    assert not folder.exists()


@pytest.mark.thorough(one_of=8)
async def test_a_run_removes_the_data_of_a_killed_agent_without_a_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary, project = tmp_path / "temporary", tmp_path / "project"
    for each in (temporary, project):
        each.mkdir()
    killed = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", AGENT, str(tmp_path / "home"), str(project)],
        env={**os.environ, "TMPDIR": str(temporary)},
        capture_output=True,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert (project / "new").read_text() == "hello\n"
    assert len(list_abandoned_folders(str(temporary))) == 1
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    async with Agent(MemoryStore(), model=ScriptedModel([Say("Hello.")]), home=tmp_path / "home") as agent:
        await play(agent.chat().send("Hi."))
        assert list_abandoned_folders(str(temporary)) == []


async def test_a_process_looks_once_an_hour(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    setup = ToolSetup(MemoryStore(), {}, tmp_path / "home")
    for expected_count in (0, 1):
        leave_folder(tmp_path)
        await setup.sweep_temporary_folders()
        assert len(list_abandoned_folders(str(tmp_path))) == expected_count
