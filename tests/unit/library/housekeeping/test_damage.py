"""Damage in what is kept for undoing is found, and mended where it can be (D-06)."""

import os
import time
from pathlib import Path

import pytest

from tests.unit.library.housekeeping.kit import Home
from treadle.adapters.workspace.history.journal import Journal
from treadle.adapters.workspace.history.states import read_path_state
from treadle.adapters.workspace.root import Root
from treadle.library.housekeeping.damage import inspect
from treadle.library.housekeeping.retention import DAY_S, Retention
from treadle.protocol.events import FilesChanged
from treadle.protocol.files import DiffStat, FileState, make_file_change


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


async def find_problems(home: Home, *, repair: bool = False) -> list[tuple[str, bool]]:
    return [
        (problem.text, problem.repaired) for problem in await inspect(home.store, home.path, Retention(), repair=repair)
    ]


async def test_what_is_sound_is_sound(home: Home) -> None:
    assert await find_problems(home) == []
    await home.chat("c_1", b"one", b"two")
    (home.top / "a").write_text("a")
    home.captures.capture("c_1/1.0")
    assert await find_problems(home) == []


async def test_a_damaged_image_is_found_removed_and_kept_anew(home: Home) -> None:
    (home.top / "a").write_bytes(b"whole")
    home.captures.capture("c/1.0")
    home.captures.release("c/1.0")
    (image,) = home.images.iterate_objects()
    file = home.folder / "objects" / image.digest[:2] / image.digest
    file.chmod(0o600)
    file.write_bytes(b"broken")
    (problem,) = await find_problems(home)
    assert problem == (f"the stored file {image.digest[:16]}… is damaged", False)
    assert [repaired for _, repaired in await find_problems(home, repair=True)] == [True, True]  # and the tree with it
    assert await find_problems(home) == []
    home.captures.capture("c/2.0")
    assert home.read_images() == {b"whole"}


async def test_changes_that_cannot_be_undone_are_told(home: Home) -> None:
    await home.chat("c_1", b"one", b"two", days=1)
    await home.chat("c_old", b"three", days=31)
    for image in home.images.iterate_objects():
        home.images.drop(image.digest)
    problems = await inspect(home.store, home.path, Retention(), repair=True)
    assert [(problem.chat, problem.repaired) for problem in problems] == [("c_1", False)]
    assert "f0 is no longer stored, and of 1 more files" in problems[0].text


async def test_the_first_image_of_a_file_changed_twice_is_missed(home: Home) -> None:  # D-06: undoing a run needs it
    first, second = (FileState("file", 0o644, home.image(data), len(data)) for data in (b"first", b"second"))
    last = FileState("file", 0o644, "f" * 64, 4)
    changes = (make_file_change("a", first, second, DiffStat()), make_file_change("a", second, last, DiffStat()))
    await home.log("c_1", *(FilesChanged((change,)) for change in changes))
    assert await find_problems(home) == []
    home.images.drop(first.digest)
    assert await find_problems(home) == [("the content before a change of a is no longer stored", False)]
    home.images.drop(second.digest)
    assert await find_problems(home) == [("the content before a change of a is no longer stored", False)]  # told once


async def test_leftovers_are_removed_when_they_are_old(home: Home) -> None:
    home.image(b"one")
    for name, days in (("young", 0.5), ("old", 2.0)):
        file = home.folder / "incoming" / name
        file.write_bytes(b"half")
        os.utime(file, (time.time() - days * DAY_S,) * 2)
    assert await find_problems(home, repair=True) == [("1 half-written files of processes that died", True)]
    assert await find_problems(home) == []
    assert (home.folder / "incoming" / "young").exists()


async def test_changes_that_were_begun_are_completed(home: Home) -> None:  # fault 3
    await home.chat("c_1", b"one")
    goal = FileState("file", 0o600, home.image(b"one"), 3)
    (home.top / "a").write_bytes(b"now")
    home.images.put(b"now")
    old_state = read_path_state(Root(str(home.top)), "a")
    change = make_file_change("a", old_state, goal, DiffStat())
    home.journals.decide(Journal("c_1/undo", str(home.top), "restore", "", (change,)))
    problems = await inspect(home.store, home.path, Retention(), repair=False)
    assert [(problem.kind, problem.chat) for problem in problems] == [("changes", "c_1")]
    assert (home.top / "a").read_bytes() == b"now"
    assert [repaired for _, repaired in await find_problems(home, repair=True)] == [True]
    assert (home.top / "a").read_bytes() == b"one"
    assert await find_problems(home) == []


async def test_changes_that_cannot_be_completed_stay_a_problem(home: Home) -> None:
    goal = FileState("file", 0o600, "0" * 64, 3)
    home.journals.decide(
        Journal("c_1/undo", str(home.top / "gone"), "restore", "", (make_file_change("a", None, goal, DiffStat()),))
    )
    (problem,) = await find_problems(home, repair=True)
    assert problem[1] is False
    assert "is not a directory" in problem[0]


async def test_snapshots_that_cannot_be_read_are_found(home: Home) -> None:
    (home.top / "a").write_text("a")
    home.captures.capture("c_1/1.0")
    home.captures.capture("c_2/1.0")
    for file in (home.folder / "captures").iterdir():
        file.write_bytes(b"?")
    damaged = len(await find_problems(home))
    assert damaged >= 2
    assert [repaired for _, repaired in await find_problems(home, repair=True)] == [True] * damaged
    assert await find_problems(home) == []
