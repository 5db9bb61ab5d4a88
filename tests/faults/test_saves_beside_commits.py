"""A person saves a file at a random moment beside a commit of that file: no save is lost (W-08; fault 31)."""

import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.faults.chance import SEED, SOAK
from tests.unit.adapters.workspace.trees import Bench, between, fast_folder
from treadle.adapters.workspace.paths import entries

SAVER = """
import os, sys, time
path = sys.argv[1]
for line in sys.stdin:
    number, delay = line.split()
    with open(path + ".fresh", "w") as file:
        file.write("saved " + number)
    until = time.perf_counter() + float(delay)
    while time.perf_counter() < until:
        pass
    os.rename(path + ".fresh", path)
    print(number, flush=True)
"""


class Saver:
    """Another process that saves a file when it is told to, after a delay."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._orders, self._answers = process.stdin, process.stdout

    def order(self, number: int, delay_s: float) -> None:
        print(number, delay_s, file=self._orders, flush=True)

    def await_save(self) -> None:
        assert self._answers.readline()


@contextmanager
def run_saver(path: Path) -> Iterator[Saver]:
    line = [sys.executable, "-c", SAVER, str(path)]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield Saver(process)


def can_exchange(folder: Path) -> bool:
    for name in ("one", "other"):
        (folder / name).touch()
    with entries.hold_fd(os.open(folder, entries.LIST)) as fd:
        return entries.exchange_entries(fd, "one", fd, "other")


@pytest.mark.parametrize("kind", ["edited", "removed"])
def test_no_save_is_lost(kind: str) -> None:
    chance = random.Random(SEED)
    commit_s = 0.003
    with fast_folder() as folder, run_saver(folder / "project" / "a") as saver:
        bench = Bench(folder)
        file, goal = bench.project / "a", bench.goal / "a"
        if not can_exchange(folder):
            pytest.skip("this file system cannot exchange two files")
        for number in range(20_000 if SOAK else 400):
            file.write_text(f"old {number}")
            if kind == "edited":
                goal.write_text(f"new {number}")
            changes = between(bench.project, bench.goal)
            saver.order(number, chance.random() * commit_s * 1.2)
            begin = time.perf_counter()
            effect = bench.commit(f"c_1/{number}.0", changes)
            commit_s = 0.9 * commit_s + 0.1 * (time.perf_counter() - begin)
            saver.await_save()
            assert file.read_text() == f"saved {number}", f"round {number} of seed {SEED}: {effect}"
