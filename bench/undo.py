"""`python -m bench.undo [--quick]`: the effect of a command committed, and undone, beside plain copies and git. What
Treadle does besides copying: it keeps what was there, syncs it, and is all or none whatever dies meanwhile. The nearest
to that: a copy of the old files is made and synced, then the new ones are copied and synced; `git stash` keeps the new
files and brings the old ones back; `git checkout` only does the latter. All take turns on projects of their own."""

import argparse
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from treadle.adapters.workspace.history.snapshots import ProjectSnapshots
from treadle.adapters.workspace.root import Root
from treadle.ports.snapshots import UndoRequest
from treadle.protocol.files import Link, Trail

FILES = 2_000
Times = dict[str, list[float]]


class Project:
    """A project in which `count` files change from old to new and back."""

    def __init__(self, folder: Path, count: int) -> None:
        self.root, self.new, self.old = folder / "root", folder / "view" / "upper", folder / "backup"
        self.paths = [f"d{number // 100}/f{number % 100}.txt" for number in range(FILES)]
        for number, path in enumerate(self.paths):
            _write(self.root / path, f"old {number}\n" * 100)
            if number < count:
                _write(self.new / path, f"new {number}\n" * 100)
        self.paths = self.paths[:count]

    def copy(self, source: Path, goal: Path) -> None:
        for path in self.paths:
            shutil.copyfile(source / path, goal / path)

    def copy_synced(self, source: Path, goal: Path) -> None:
        """And synced, all at once."""
        for path in self.paths:
            (goal / path).parent.mkdir(parents=True, exist_ok=True)
        self.copy(source, goal)
        subprocess.run(["sync", "-f", goal], check=True)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


class Treadle:
    def __init__(self, folder: Path, count: int) -> None:
        self._project = Project(folder, count)
        self._view = folder / "view"
        self._written = {path: (self._project.new / path).read_bytes() for path in self._project.paths}
        self._snapshots = ProjectSnapshots(Root(str(self._project.root)), folder / "home")
        self._count = 0

    def round(self, spent: Times) -> None:
        self._count += 1
        for path in self._project.paths:  # a command writes its files anew
            (self._project.new / path).write_bytes(self._written[path])
        (self._view / "began").write_text(f"{time.time_ns()} {time.clock_gettime_ns(time.CLOCK_BOOTTIME)}")
        effect = _timed(spent, "commit", lambda: self._snapshots.commit(f"bench/{self._count}", str(self._view)))
        assert len(effect.files) == len(self._project.paths), effect.conflicts
        trails = tuple(Trail(each.path, (Link(each.before, each.after),)) for each in effect.files)
        undone = _timed(spent, "undo", lambda: self._snapshots.apply(f"bench/u{self._count}", UndoRequest(trails)))
        assert len(undone.files) == len(self._project.paths), undone.conflicts
        for name in (f"bench/{self._count}", f"bench/u{self._count}"):
            self._snapshots.journals.release(name)


class Copies:
    def __init__(self, folder: Path, count: int) -> None:
        self._project = Project(folder, count)

    def round(self, spent: Times) -> None:
        project = self._project
        _timed(spent, "copy", lambda: project.copy(project.new, project.root))

        def kept() -> None:
            project.copy_synced(project.root, project.old)
            project.copy_synced(project.new, project.root)

        _timed(spent, "old kept, copied, synced", kept)
        _timed(spent, "copied back", lambda: project.copy(project.old, project.root))


class Git:
    def __init__(self, folder: Path, count: int) -> None:
        self._project = Project(folder, count)
        self._git("init", "-q")
        self._git("add", "-A")
        self._git("-c", "user.name=bench", "-c", "user.email=bench@localhost", "commit", "-qm", "all")

    def _git(self, *words: str) -> None:
        subprocess.run(["git", *words], cwd=self._project.root, check=True, stdout=subprocess.DEVNULL)

    def round(self, spent: Times) -> None:
        project = self._project
        project.copy(project.new, project.root)
        user = ("-c", "user.name=bench", "-c", "user.email=bench@localhost")
        _timed(spent, "git stash", lambda: self._git(*user, "stash", "-q"))
        self._git("stash", "drop", "-q")
        project.copy(project.new, project.root)
        _timed(spent, "git checkout", lambda: self._git("checkout", "-q", "--", "."))


T = TypeVar("T")


def _timed(spent: Times, name: str, work: Callable[[], T]) -> T:
    began = time.perf_counter()
    done = work()
    spent.setdefault(name, []).append(time.perf_counter() - began)
    return done


def measure(folder: Path, count: int, repeats: int) -> dict[str, float]:
    """Seconds of each way, the median; the first round fills the caches."""
    rounds = [Treadle(folder / "treadle", count).round, Copies(folder / "copies", count).round]
    if shutil.which("git"):
        rounds.append(Git(folder / "git", count).round)
    spent: Times = {}
    for _ in range(repeats + 1):
        for each in rounds:
            each(spent)
    return {name: statistics.median(times[1:]) for name, times in spent.items()}


BESIDE: Mapping[str, Sequence[str]] = {
    "commit": ("copy", "old kept, copied, synced"),
    "undo": ("copied back", "git stash", "git checkout"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.undo", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a smoke run: few files and repetitions")
    quick = parser.parse_args(arguments).quick
    folder = Path(tempfile.mkdtemp(prefix="treadle-bench-", dir="/var/tmp")).resolve()
    try:
        print(f"{'changed files':>14}  {'what':8}{'ms':>8}  beside")
        for count in (1, 50) if quick else (1, 1_000):
            figures = measure(folder / str(count), count, 1 if quick else 10)
            for what, others in BESIDE.items():
                ratios = [
                    f"{name} {figures[name] * 1e3:.1f} ms: {figures[what] / figures[name]:.1f}x"
                    for name in others
                    if name in figures
                ]
                print(f"{count:14,}  {what:8}{figures[what] * 1e3:8.1f}  {' · '.join(ratios)}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
