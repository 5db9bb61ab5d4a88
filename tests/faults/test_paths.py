"""Fault 19, the race: another process swaps a directory and a file for links that lead outside, as fast as it can,
while every operation of the root runs on them. Nothing outside is ever read, listed, found or touched (S-01)."""

import itertools
import os
import stat
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.writing import write
from treadle.adapters.workspace.paths.resolve import open_beneath
from treadle.adapters.workspace.root import Root
from treadle.adapters.workspace.search.search import Engine, find_ripgrep
from treadle.errors import OutsideRoot, ToolError
from treadle.ports.workspace import Query

pytestmark = pytest.mark.thorough(one_of=8)

OUTSIDE = b"hit outside\n"
INSIDE = b"hit inside\n"
TRIES = 5_000
"""For each of the two ways to keep a path inside: ten thousand in all."""

# Exchanges swap (a directory) with swap.link (a link to the canary), and file with file.link, in one step, so that the
# names are never missing. Where the system cannot do that, swap is a link that is pointed here and there.
SWAPPER = """
import ctypes, os, sys
os.chdir(sys.argv[1])

def exchange(name):
    return libc.renameat2(-100, name, -100, name + b".link", 2)

def point(name, target):
    os.symlink(target, name + b".next")
    os.rename(name + b".next", name)

def turn(name):
    target = os.readlink(name)
    point(name, os.readlink(name + b".link"))
    point(name + b".link", target)

libc = ctypes.CDLL(None)
if not hasattr(libc, "renameat2") or exchange(b"swap"):
    for name in (b"swap", b"file"):
        os.rename(name, name + b".real")
        point(name, name + b".real")
    exchange = turn
print("ready", flush=True)
while os.getppid() == int(sys.argv[2]):
    for name in (b"swap", b"file"):
        exchange(name)
"""


@contextmanager
def swapping(root: Path) -> Iterator["subprocess.Popen[str]"]:
    argv = [sys.executable, "-c", SWAPPER, str(root), str(os.getpid())]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        try:
            yield process
        finally:
            process.kill()


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Path]:
    canary = tmp_path / "canary"
    (canary / "sub").mkdir(parents=True)
    for name in ("secret", "only-outside", "sub/secret"):
        (canary / name).write_bytes(OUTSIDE)
    canary_state = photograph(canary)
    root = tmp_path / "project"
    (root / "swap" / "sub").mkdir(parents=True)
    for name in ("file", "swap/secret", "swap/sub/secret"):
        (root / name).write_bytes(INSIDE)
    (root / "swap.link").symlink_to("../canary")
    (root / "file.link").symlink_to("../canary/secret")
    yield root
    assert photograph(canary) == canary_state


def photograph(folder: Path) -> list[tuple[str, int, int, int, bytes]]:
    """Everything about a directory that a write would change."""
    entries = []
    for path in sorted([folder, *folder.rglob("*")]):
        status = path.lstat()
        content = path.read_bytes() if stat.S_ISREG(status.st_mode) else b""
        entries.append((str(path), status.st_mode, status.st_mtime_ns, status.st_ctime_ns, content))
    return entries


def read(root: Root, number: int) -> None:
    path = ("swap/secret", "file", "swap/sub/secret", "swap/sub/../secret")[number % 4]
    assert root.read_bytes(path) in (INSIDE, b"mine")


def look(root: Root, number: int) -> None:
    stat_of = root.stat("file" if number % 2 else "swap/only-outside")
    assert stat_of is None or stat_of.kind == "file"
    assert root.stat("swap/only-outside") is None
    assert root.inspect("swap/only-outside") is None
    digest = root.hash_file("swap/only-outside")
    assert digest is None


def list_it(root: Root, number: int) -> None:
    assert "only-outside" not in {child.name for child in root.listdir("swap" if number % 2 else "swap/sub/..")}


def change(root: Root, number: int) -> None:
    path = ("swap/secret", "swap/new", "swap/sub/deep/new")[number % 3]
    write(root, path, b"mine" if number % 2 else None, name=str(number % 5))


KINDS: dict[Callable[[Root, int], None], int] = {read: 10, look: 4, list_it: 3, change: 3}
TURNS = [kind for kind, share in KINDS.items() for _ in range(share)]


@pytest.mark.thorough(one_of=8)
@pytest.mark.parametrize("way", ["openat2", "walk"])
def test_nothing_outside_is_reached_while_everything_is_swapped(project: Path, way: str) -> None:
    if way == "openat2" and open_beneath() is None:
        pytest.skip("the kernel has no openat2")
    root = Root(str(project), openat2=way == "openat2")
    outcomes: Counter[str] = Counter()
    with swapping(project):
        for number in itertools.count():
            if number >= TRIES and min(outcomes["done"], outcomes["refused"]) >= 50:
                break  # the other process was seen at work, however the two were scheduled
            try:
                TURNS[number % len(TURNS)](root, number)
                outcomes["done"] += 1
            except OutsideRoot:
                outcomes["refused"] += 1
            except ToolError:  # in between there is nothing with that name
                outcomes["missing"] += 1


@pytest.mark.thorough(one_of=8)
@pytest.mark.parametrize(("program", "tries"), [("ripgrep", 60), ("own", 8)])
def test_a_search_shows_nothing_from_outside_while_everything_is_swapped(
    project: Path, program: str, tries: int
) -> None:
    for number in range(30):  # so that the search takes its time around the swapped names
        (project / f"d{number}").mkdir()
        (project / f"d{number}" / "a").write_bytes(INSIDE)
    engine = Engine(Root(str(project)), find_ripgrep("/nowhere") if program == "ripgrep" else None)
    inside = False
    with swapping(project):
        for number in itertools.count():
            if number >= tries and inside:
                break
            path = (".", "swap", "file")[number % 3]
            with suppress(ToolError):
                search_result = engine.search(Query("hit", path, context=1, most=200), None)
                lines = {line.text for file in search_result.files for line in file.lines}
                assert lines <= {"hit inside"}
                assert not any("only-outside" in file.path for file in search_result.files)
                inside |= bool(lines)
            with suppress(ToolError):
                paths = engine.find("**", "swap" if number % 2 else ".", ignore_case=False, most=1_000, stop=None)
                assert not any("only-outside" in path for path in paths.paths)
