"""Captures by several processes, by an ordinary user, and on a disk that is full (W-07, fault 13)."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.adapters.workspace.history.test_capture import Project
from tests.unit.adapters.workspace.trees_of import compare_states, states_below
from treadle.adapters.sandbox.choose import find_bubblewrap
from treadle.testing.faults import faults

NOBODY = 65534


def in_child(act: Callable[[], object], user: int | None = None) -> int:
    """Do it in a process of its own; the status with which that ended."""
    pid = os.fork()
    if pid == 0:
        try:
            if user is not None:
                os.setgroups([])
                os.setgid(user)
                os.setuid(user)
            act()
            os._exit(0)
        except BaseException as error:
            os.write(2, f"{type(error).__name__}: {error}\n".encode())
            os._exit(1)
    return os.waitpid(pid, 0)[1]


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def test_several_processes_capture_one_root_at_once(project: Project) -> None:  # W-07
    for number in range(50):
        (project.top / f"f{number}").write_text(str(number))
    old_states = states_below(project.top)
    pids = []
    for worker in range(4):
        pid = os.fork()
        if pid == 0:
            try:
                for number in range(5):
                    project.captures.capture(f"{worker}/{number}")
                    project.captures.capture(f"shared/{number}")
                os._exit(0)
            finally:
                os._exit(1)
        pids.append(pid)
    assert [os.waitpid(pid, 0)[1] for pid in pids] == [0] * 4
    project.sh("rm f1; echo > f2")
    for name in ("0/0", "3/4", "shared/4"):
        changes = {file.path: (file.before, file.after) for file in project.captures.compare(name).files}
        assert changes == compare_states(old_states, states_below(project.top))
    names = os.listdir(project.home / "snapshots" / "captures")
    assert len(names) == 2 * 25  # of those who came too late nothing is left
    assert not project.images.list_unfinished_files()


def test_killed_at_any_point_and_captured_again(project: Project) -> None:  # fault 3
    project.sh("echo 1 > a; mkdir d; echo 2 > d/b")
    with faults() as run:
        project.captures.capture("listing")
    for number, point in enumerate(dict.fromkeys(run.passed)):
        project.sh(f"echo {number} > a")

        def strike(point: str = point) -> None:
            with faults(f"kill@{point}"):
                project.captures.capture(point)

        assert in_child(strike) == signal.SIGKILL
        old_states = states_below(project.top)
        project.captures.capture(point)
        project.sh("echo x > a; rm -r d")
        changes = {file.path: (file.before, file.after) for file in project.captures.compare(point).files}
        assert changes == compare_states(old_states, states_below(project.top))
        project.sh("mkdir d; echo 2 > d/b")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_an_ordinary_user_captures_what_is_his_own(tmp_path: Path) -> None:
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_uid == os.getuid() and folder != Path("/"):
            folder.chmod(folder.stat().st_mode | 0o011)
    project = Project(tmp_path)
    (project.top / "roots").write_text("root")
    (project.top / "roots").chmod(0o600)
    (project.top / "closed").mkdir(mode=0o700)
    os.chown(project.top, NOBODY, NOBODY)
    project.home.mkdir()
    os.chown(project.home, NOBODY, NOBODY)

    def act() -> None:
        os.umask(0o022)
        project.sh("echo 1 > mine; chmod 0 mine; mkdir -p d/e; echo 2 > d/e/f; chmod 0 d/e; chmod 600 d")
        reasons = {each.path: each.reason for each in project.captures.capture("c/1.0")}
        assert reasons.keys() == {"roots", "closed"}, reasons
        assert {name: (project.top / name).stat().st_mode & 0o777 for name in ("mine", "d")} == {"mine": 0, "d": 0o600}
        project.sh("rm -f mine; chmod -R u+rwx d; rm -r d")
        effect = project.captures.compare("c/1.0")
        assert [file.path for file in effect.files] == ["d", "d/e", "d/e/f", "mine"], effect
        modes = {file.path: file.before.mode for file in effect.files if file.before}
        assert modes == {"d": 0o600, "d/e": 0, "d/e/f": 0o644, "mine": 0}, modes
        for file in effect.files:
            assert file.before is not None
            assert file.before.kind == "directory" or project.images.has_object(file.before.digest)
        assert {each.path for each in effect.uncaptured} == {"closed"}, effect.uncaptured

    assert in_child(act, NOBODY) == 0


FULL = r"""
import os, sys
from pathlib import Path
from treadle.errors import ToolError
from treadle.adapters.workspace.history.capture import Captures
from treadle.adapters.workspace.history.content_store import ContentStore
from treadle.adapters.workspace.root import Root

place = Path(sys.argv[1])
home = place / "snapshots"
filler = place / "filler"
captures = Captures(Root(sys.argv[2]), ContentStore(home), home)
filler.write_bytes(b"f" * 500_000)
try:
    captures.capture("c/1.0")
    print("no error")
except ToolError as error:
    print(error)
left = sum(len(files) for folder, _, files in os.walk(home / "objects"))
print(left, len(ContentStore(home).list_unfinished_files()))
filler.unlink()
captures.capture("c/1.0")
(Path(sys.argv[2]) / "large").write_bytes(b"")
filler.write_bytes(b"f" * (os.statvfs(place).f_bavail * os.statvfs(place).f_bsize))
print([file.path for file in captures.compare("c/1.0").files])
"""


def test_a_full_disk_is_said_and_passes(tmp_path: Path) -> None:  # fault 13
    place, top = tmp_path / "small", tmp_path / "project"
    place.mkdir()
    top.mkdir()
    (top / "large").write_bytes(os.urandom(700_000))
    bubblewrap = [find_bubblewrap(), "--bind", "/", "/", "--dev", "/dev", "--size", str(1 << 20), "--tmpfs", str(place)]
    if not bubblewrap[0] or subprocess.run([*bubblewrap, "true"], capture_output=True).returncode:
        pytest.skip("no small file system can be mounted here")
    process = subprocess.run(
        [*bubblewrap, sys.executable, "-c", FULL, str(place), str(top)], capture_output=True, text=True
    )
    assert process.returncode == 0, process.stderr
    error_text, leftover_counts, listing = process.stdout.splitlines()
    assert "cannot be stored: No space left on device" in error_text
    assert leftover_counts == "0 0"
    assert listing == "['large']"
