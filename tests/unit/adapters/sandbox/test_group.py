"""Control groups, with the real kernel (S-18). Which controllers there are is the machine's business: where it gives
none, that a command is in its group, and is ended with it, is still shown."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.unit.adapters.sandbox.grounds import WAIT_S, Grounds
from treadle.adapters.sandbox.supervisor.tree import ControlGroup, make_group

MOUNTS = [path for path in ("/sys/fs/cgroup", "/sys/fs/cgroup/unified") if os.path.exists(f"{path}/cgroup.procs")]
LIMITS = {"processes": 50, "memory": 64 << 20, "disk": 0, "file": 0, "cpu_s": 0, "open_files": 0}
RUN = """
import asyncio, os, sys
from pathlib import Path
from treadle.ports.commands import CommandSpec
from treadle.adapters.sandbox.supervisor.commands import SupervisedCommands

async def main():
    Path(sys.argv[1], "main/cgroup.procs").write_text("0")
    commands = SupervisedCommands(Path(sys.argv[2]))
    argv = ("/bin/sh", "-c", "cat /proc/self/cgroup; setsid sleep 600 & echo $!")
    command = await commands.start("c_1", "1.0", CommandSpec(argv, "/", dict(os.environ)))
    await command.wait(60)
    print(command.read(0, 10000).data.decode())
    await commands.close()

asyncio.run(main())
"""


@pytest.fixture
def delegated_group() -> Iterator[Path]:
    """A group as a service manager hands it over."""
    folder = Path(MOUNTS[0] if MOUNTS else "/none", f"treadle-test-{os.getpid()}")
    try:
        folder.mkdir()
        os.setxattr(folder, "user.delegate", b"1")
    except OSError as error:
        with suppress(OSError):
            folder.rmdir()
        pytest.skip(f"no control group can be made here: {error.strerror}")
    try:
        (folder / "main").mkdir()
        yield folder
    finally:
        for each in (*(path for path in folder.iterdir() if path.is_dir()), folder):
            until = time.monotonic() + 60
            while each.exists() and time.monotonic() < until:
                with suppress(OSError):
                    each.rmdir()


def ended_pid() -> int:
    process = subprocess.Popen(["/bin/true"])
    process.wait()
    return process.pid


def test_only_groups_of_ended_supervisors_are_removed(tmp_path: Path) -> None:
    """S-18: a group is empty until its command has entered it. Without its group, the command has no memory limit."""
    ended, unrelated = tmp_path / f"command-{ended_pid()}", tmp_path / "command-of-another-program"
    with subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE) as supervisor:
        in_use, own = tmp_path / f"command-{supervisor.pid}", tmp_path / f"command-{os.getpid()}"
        for folder in (ended, unrelated, in_use, own):
            folder.mkdir()
        group = make_group(LIMITS, str(tmp_path))
        assert {path.name for path in tmp_path.iterdir()} == {unrelated.name, in_use.name, own.name}
    group.remove()
    assert not own.exists(), "the group of an earlier process with the same number keeps no command from having one"


def test_a_command_has_a_group_of_its_own_as_long_as_it_runs(delegated_group: Path, tmp_path: Path) -> None:
    (delegated_group / f"command-{ended_pid()}").mkdir()  # of a supervisor that was killed
    process = subprocess.run(
        [sys.executable, "-c", RUN, delegated_group, tmp_path], capture_output=True, text=True, check=True
    )
    assert f"0::/{delegated_group.name}/command-" in process.stdout, process.stdout
    assert [path.name for path in delegated_group.iterdir() if path.is_dir()] == ["main"]
    assert not os.path.exists(f"/proc/{process.stdout.split()[-1]}")


def test_all_in_it_end_at_one_stroke_and_its_limits_are_the_kernels(delegated_group: Path) -> None:
    group = make_group(LIMITS, str(delegated_group))
    pid = os.fork()
    if pid == 0:
        group.enter()
        time.sleep(60)
        os._exit(0)
    (folder,) = (path for path in delegated_group.iterdir() if path.name.startswith("command-"))
    until = time.monotonic() + 60
    while str(pid) not in (folder / "cgroup.procs").read_text().split() and time.monotonic() < until:
        time.sleep(0.01)
    controllers = (folder / "cgroup.controllers").read_text().split()
    if "pids" in controllers:
        assert (folder / "pids.max").read_text() == "100\n"
    if "memory" in controllers:
        assert int((folder / "memory.max").read_text()) == LIMITS["memory"]
    assert not group.is_out_of_memory()
    group.kill()
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL


RUN_CONFINED = """
import asyncio, json, os, sys
from pathlib import Path
from treadle.ports.commands import CommandSpec
from treadle.adapters.sandbox.supervisor.commands import SupervisedCommands

async def main():
    above = Path(sys.argv[1])
    (above / "main/cgroup.procs").write_text("0")
    commands = SupervisedCommands(Path(sys.argv[2]))
    spec = CommandSpec(tuple(json.loads(sys.argv[3])), "/", dict(os.environ), sandbox="landlock")
    command = await commands.start("c_1", "1.0", spec)
    while not command.read(0, 100).data.endswith(b"up\\n"):
        await asyncio.sleep(0.01)
    (group,) = above.glob("command-*")
    (group / "cgroup.kill").write_text("1")
    await command.wait(60)
    print(command.read(0, 10000).data.decode())
    await commands.close()

asyncio.run(main())
"""


def test_landlock_puts_protected_paths_back_when_the_kernel_ends_the_group(
    delegated_group: Path, tmp_path: Path, landlock: Grounds
) -> None:
    """S-03: as it does when memory runs out."""
    confinement = landlock.confinement(protected=(f"{landlock.root}/.git",))
    line = landlock.line("landlock", "mkdir .git; env | grep GROUP; echo up; sleep 600", confinement)
    argv = [sys.executable, "-c", RUN_CONFINED, delegated_group, tmp_path, json.dumps(line)]
    process = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=WAIT_S)
    assert process.stdout.startswith("up\ntreadle: ")
    assert "is protected and was put back" in process.stdout
    assert os.listdir(landlock.root) == []


def test_without_one_nothing_is_touched() -> None:
    group = ControlGroup()
    group.enter()
    group.kill()
    group.remove()
    assert not group.is_out_of_memory()
