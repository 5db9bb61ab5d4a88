"""`python -m bench.worlds [--quick]`: a world opened, written to, read, committed and dropped (W-11), beside what
others do for the same: `git worktree add`, `cp -a` and `cp --reflink=auto`. Each in a project of 2,000 and of 20,000
files."""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from treadle.adapters.sandbox.supervisor.removal import remove_tree
from treadle.adapters.workspace.history.snapshots import ProjectSnapshots
from treadle.adapters.workspace.root import Root
from treadle.library.worlds.home import WorldGround, WorldHome
from treadle.library.worlds.record import WorldFolders

_GIT = ("git", "-c", "user.name=bench", "-c", "user.email=bench@localhost", "-c", "gc.auto=0")


class Project:
    """A repository with so many files, and its worlds."""

    def __init__(self, folder: Path, files: int) -> None:
        self.folder, self.root = folder, folder / "root"
        for number in range(files):
            file = self.root / f"d{number // 100}" / f"f{number % 100}.txt"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"{number}\n" * 20)
        for words in (("init", "-q"), ("add", "-A"), ("commit", "-qm", "one")):
            subprocess.run([*_GIT, *words], cwd=self.root, check=True)
        self._grounds: dict[str, WorldGround] = {}
        self.worlds = WorldHome(WorldFolders(str(folder / "home")), self._ground, self._history)
        self.drop(self.open())  # whether layers can be mounted here is tried once
        self._count = 0

    def open(self) -> str:
        return self.worlds.open(str(self.root), "", "", "").id

    def write(self, world: str) -> None:
        """The first one starts the holder."""
        top = self._ground(world).open(os.O_RDONLY)
        for number in range(10):
            with open(os.open(f"d0/f{number}.txt", os.O_WRONLY | os.O_APPEND, dir_fd=top), "ab") as file:
                file.write(b"more\n")
        os.close(top)

    def commit(self, world: str) -> None:
        self._count += 1
        self.worlds.bring_in(f"bench/{self._count}", world)

    def drop(self, world: str) -> None:
        self.worlds.drop(world)

    def _ground(self, world: str) -> WorldGround:
        return self._grounds.get(world) or self._grounds.setdefault(world, WorldGround(self.worlds.folders, world))

    def _history(self, root: str, bound: str, world: str) -> ProjectSnapshots:
        return ProjectSnapshots(Root(root, bound, self._ground(world) if world else None), self.folder / "home")

    # -- the others -----------------------------------------------------------------------------------------------

    def copied(self, *way: str) -> None:
        subprocess.run(["cp", *way, str(self.root), str(self.folder / "copy")], check=True)

    def uncopied(self) -> None:
        shutil.rmtree(self.folder / "copy")

    def worktree(self) -> None:
        subprocess.run(
            [*_GIT, "worktree", "add", "-q", "--detach", str(self.folder / "tree")], cwd=self.root, check=True
        )

    def no_worktree(self) -> None:
        subprocess.run([*_GIT, "worktree", "remove", "--force", str(self.folder / "tree")], cwd=self.root, check=True)


def measure(project: Project, rounds: int) -> dict[str, float]:
    """Milliseconds, the median of so many rounds; the ways take turns."""
    times: dict[str, list[float]] = {}

    def took(name: str, work: Callable[[], object]) -> object:
        began = time.perf_counter()
        result = work()
        times.setdefault(name, []).append((time.perf_counter() - began) * 1000)
        return result

    for _ in range(rounds):
        world = str(took("world: open", project.open))
        took("world: write 10 files, with the start of its holder", partial(project.write, world))
        took("world: effect", partial(project.worlds.compute_effect, world))
        took("world: commit", partial(project.commit, world))
        took("world: drop", partial(project.drop, world))
        took("git worktree add", project.worktree)
        took("git worktree remove", project.no_worktree)
        for words in (("-a",), ("-a", "--reflink=auto")):
            took(f"cp {' '.join(words)}", partial(project.copied, *words))
            took("rm -r of a copy", project.uncopied)
    return {name: statistics.median(each) for name, each in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="few files, once")
    quick = parser.parse_args().quick
    for files in (200,) if quick else (2_000, 20_000):
        folder = Path(tempfile.mkdtemp(prefix="bench-worlds-", dir="/var/tmp"))
        try:
            found = measure(Project(folder, files), 1 if quick else 7)
        finally:
            remove_tree(str(folder))
        opened = found["world: open"]
        sys.stdout.write(f"\n{files:,} files\n")
        for name, ms in found.items():
            sys.stdout.write(f"  {name:52} {ms:9.2f} ms  {ms / opened:8.1f} x\n")


if __name__ == "__main__":
    main()
