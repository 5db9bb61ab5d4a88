"""Killed, out of memory, out of space or cancelled at every point of a change of files (faults 1 to 3, 13; W-01, W-02,
W-08, W-10, D-02), by a command on a view, a command that writes through, the file tools and an undo: the log and the
project agree, an undo brings back exactly what was, no effect happens twice, and the checker is silent.

`make test` strikes out of memory at the points where an effect is decided, made and told, and with the rest by chance;
with TEST_SOAK=1 everything is struck with everything. TEST_SEED repeats a choice."""

import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.chance import SEED, SOAK
from tests.faults.driver import FAILED, IDLE, WAITING
from tests.faults.harness import Case
from tests.faults.scenarios import STRUCK
from tests.faults.test_every_point import Point, every_passing, list_passings
from treadle.protocol.files import FileState
from treadle.testing.checker import check_files, read_files
from treadle.testing.fake_openai import FakeOpenAI

Tree = dict[str, FileState]
SHARDS = 8 if SOAK else 1
BY_CHANCE = 1
"""So many of the named points are struck with each other strike, and so many others with any."""
STRIKES = ("kill", "memory", "full", "cancel")
ALL = {
    "transaction.decided": (1,),
    "transaction.put": (1, 3),
    "transaction.synced": (1,),
    "transaction.ended": (1,),
}
NAMED: dict[str, dict[str, tuple[int, ...]]] = {
    "view": {**ALL, "tool.command_reached": (1,), "command.collected": (1,), "tool.after:run_command": (1,)},
    "direct": {
        "tool.command_captured": (1,),
        "tool.command_reached": (1,),
        "command.collected": (1,),
        "append.before:tool.execution_complete": (1,),
    },
    "files": {
        "transaction.decided": (1,),
        "transaction.put": (1, 4),
        "transaction.synced": (3,),
        "transaction.withdrawn": (3,),
        "tool.write_after": (1,),
        "tool.patch_after": (1,),
        "tool.after:apply_patch": (1,),
        "append.after:tool.execution_complete": (3,),
    },
    "undo": {**ALL, "restore.after": (1,), "append.before:workspace.undone": (1,)},
}
"""The points between a decision and its record, and which of their passings."""

pytestmark = [pytest.mark.thorough(one_of=12), pytest.mark.timeout(3600 if SOAK else 600)]


def new_case(folder: Path, fake: FakeOpenAI, scene: str) -> Case:
    folder.mkdir()
    case = Case(folder, fake, direct=scene == "direct", undo=scene == "undo")
    (case.root / "old").mkdir()
    (case.root / "old/a").write_text("a\n")
    (case.root / "old/b").write_text("b\n")
    (case.root / "old/b").chmod(0o755)
    return case


def choose_strikes(scene: str, points: list[Point]) -> list[tuple[str, Point]]:
    """The strikes of this run. The scene "undo" is struck during its undo."""
    visit = 1 if scene == "undo" else 0
    there = [point for point in points if point[0] == visit and every_passing(point, points)]
    if SOAK:
        return [(strike, point) for strike in STRIKES for point in there]
    named_points = [(visit, name, passing) for name, passings in NAMED[scene].items() for passing in passings]
    assert not set(named_points) - set(there), f"not passed: {set(named_points) - set(there)}"
    dice = random.Random(f"{SEED} {scene}")
    other_strikes = [
        (strike, point) for strike in STRIKES if strike != "memory" for point in dice.sample(named_points, BY_CHANCE)
    ]
    other_points = dice.sample([point for point in there if point not in named_points], BY_CHANCE)
    return [
        *(("memory", point) for point in named_points),
        *other_strikes,
        *((dice.choice(STRIKES), point) for point in other_points),
    ]


def cases(scene: str, shard: int, tmp_path: Path) -> Iterator[tuple[Case, Tree, str]]:
    with FakeOpenAI(STRUCK[scene]) as fake:
        points = list_passings(new_case(tmp_path / "listed", fake, scene))
    for number, (strike, point) in list(enumerate(choose_strikes(scene, points)))[shard::SHARDS]:
        visits, name, passing = point
        with FakeOpenAI(STRUCK[scene]) as fake:
            case = new_case(tmp_path / str(number), fake, scene)
            initial_files = read_files(case.root)
            for _ in range(visits):
                assert case.go() == WAITING, case.errors()
            yield case, initial_files, f"{strike}@{name}#{passing}"


@pytest.mark.parametrize("shard", range(SHARDS))
@pytest.mark.parametrize("scene", STRUCK)
def test_struck_at_every_point(scene: str, shard: int, tmp_path: Path) -> None:
    wrong: list[str] = []
    count = 0
    for case, initial_files, fault in cases(scene, shard, tmp_path):
        count += 1
        try:
            struck(case, initial_files, fault)
        except AssertionError as error:
            wrong.append(f"== {fault}: {error}\n{case.story()}\n{case.errors()[-3000:]}")
        shutil.rmtree(case.folder, ignore_errors=True)
    print(f"{scene}: {count} cases, TEST_SEED={SEED}")
    assert not wrong, "\n\n".join(wrong)


def struck(case: Case, initial_files: Tree, fault: str) -> None:
    """One strike, and all that must hold after it."""
    assert case.go(faults=fault) in (-9, IDLE, WAITING, FAILED)
    case.finish()
    case.check()
    assert check_files(case.log(), initial_files, read_files(case.root)) == []
    case.finish(undo=True)
    case.check()
    assert check_files(case.log(), initial_files, read_files(case.root)) == []
    assert read_files(case.root) == initial_files, "the undo did not bring back what was"
