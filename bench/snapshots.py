"""`python -m bench.snapshots [--quick]`: what it takes to keep a tree before a command that writes through, and to
compare it after, beside git with a private index and object store (`git add -A && git write-tree`) and a plain copy, in
one run. Cold: nothing is known yet. Warm: the tree was kept before, and so many files have changed since. The ways are
taken by turns; the least of several runs counts."""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

from bench.report import Row, align
from treadle.adapters.workspace.history.capture import Captures
from treadle.adapters.workspace.history.content_store import ContentStore
from treadle.adapters.workspace.root import Root

FILES, REPEATS, CHANGED = 20_000, 5, 10
QUICK_FILES, QUICK_REPEATS = 200, 1


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.snapshots", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a smoke run: a small tree")
    quick = parser.parse_args(arguments).quick
    files, repeats = (QUICK_FILES, QUICK_REPEATS) if quick else (FILES, REPEATS)
    with tempfile.TemporaryDirectory(prefix="treadle-bench-") as name:
        folder = Path(name)
        size = grow(folder / "project", files)
        print(f"a tree of {files:,} files with {size / 1e6:.0f} MB\n")
        print(align(table(folder, max(1, repeats // 2), repeats)))
    return 0


def grow(top: Path, files: int) -> int:
    """Twenty files to a folder, of the sizes that sources have; how many bytes they have."""
    random = Random(1)
    size = 0
    for number in range(files):
        folder = top / f"package{number // 1000}" / f"module{number // 20 % 50}"
        if number % 20 == 0:
            folder.mkdir(parents=True)
        data = f"value_{number} = {number}\n".encode() * random.randint(5, 400)
        (folder / f"file_{number}.py").write_bytes(data)
        size += len(data)
    return size


class Ways:
    """Three ways to keep a tree, each with what it knows from before."""

    def __init__(self, folder: Path) -> None:
        self.top = folder / "project"
        self._home, self._git, self._copy = folder / "home", folder / "git", folder / "copy"
        self._number = 0

    def forget(self) -> None:
        for path in (self._home, self._git, self._copy):
            shutil.rmtree(path, ignore_errors=True)
        (self._git / "objects").mkdir(parents=True)
        subprocess.run(["git", "init", "-q", "--bare", self._git / "repository"], check=True)
        os.sync()

    def capture(self) -> None:
        self._number += 1
        self._captures().capture(str(self._number))

    def compare(self) -> None:
        effect = self._captures().compare(str(self._number))
        assert len(effect.files) in (0, CHANGED)

    def git(self) -> None:
        env = {
            **os.environ,
            "GIT_DIR": str(self._git / "repository"),
            "GIT_WORK_TREE": str(self.top),
            "GIT_INDEX_FILE": str(self._git / "index"),
            "GIT_OBJECT_DIRECTORY": str(self._git / "objects"),
        }
        for words in (["add", "-A"], ["write-tree"]):
            subprocess.run(["git", *words], cwd=self.top, env=env, check=True, stdout=subprocess.DEVNULL)

    def copy(self) -> None:
        subprocess.run(["cp", "-a", self.top, self._copy], check=True)

    def _captures(self) -> Captures:
        folder = self._home / "snapshots"
        return Captures(Root(str(self.top)), ContentStore(folder), folder)


Taken = tuple[float, float, float]
"""Seconds to keep, to compare, and for git to do as much as keeping is."""


def table(folder: Path, cold: int, warm: int) -> list[Row]:
    ways = Ways(folder)
    copies, firsts = [], []
    for _ in range(cold):
        ways.forget()
        copies.append(_timed(ways.copy))
        firsts.append(_taken(ways))
    _wait(ways.top)
    _taken(ways)
    same = [_taken(ways) for _ in range(warm)]
    changed = []
    for number in range(warm):
        ways.capture()
        _change(ways.top, number)
        compare = _timed(ways.compare)
        keep, _, git = _taken(ways)
        changed.append((keep, compare, git))
    rows: list[Row] = [("milliseconds by the clock", "keep", "compare", "git", "copy", "git ÷ keep", "copy ÷ keep")]
    for title, found in (("cold", firsts), ("warm, nothing changed", same), (f"warm, {CHANGED} changed", changed)):
        keep, compare, git = (min(each[place] for each in found) for place in range(3))
        copy = min(copies)
        numbers = [_ms(keep), _ms(compare), _ms(git), _ms(copy)]
        rows.append((title, *numbers, f"{git / keep:.1f}", f"{copy / keep:.1f}"))
    return rows


def _taken(ways: Ways) -> Taken:
    return _timed(ways.capture), _timed(ways.compare), _timed(ways.git)


def _change(top: Path, number: int) -> None:
    for file in sorted(top.rglob("*.py"))[number * CHANGED : (number + 1) * CHANGED]:
        file.write_bytes(file.read_bytes() + b"changed = True\n")


def _wait(top: Path) -> None:
    """Until no file is so young that its times tell nothing: what was just written is always read again."""
    newest = max(file.stat().st_ctime for file in top.rglob("*"))
    time.sleep(max(0.0, newest + 2.1 - time.time()))


def _timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:,.1f}"


if __name__ == "__main__":
    sys.exit(main())
