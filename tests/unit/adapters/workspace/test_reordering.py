"""Runs of one chat on the same files, undone in any order: the chat's own later changes are no obstacle, a person's are
(W-02, W-03, fault 20)."""

import random
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from msgspec import Struct

from tests.unit.adapters.workspace.undo_kit import Project

SLOTS = 24
LINES = [f"line {number}\n" for number in range(SLOTS)]
FILES = ("f", "d/g")


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def text(*edits: tuple[int, str]) -> str:
    lines = list(LINES)
    for number, line in edits:
        lines[number] = line
    return "".join(lines)


def two_runs(project: Project, first: str, second: str) -> None:
    project.write("f", text())
    for content in (first, second):
        project.begin_run()
        project.change(lambda content=content: project.write("f", content))


# -- one by one -------------------------------------------------------------------------------------------------------


def test_an_earlier_run_is_undone_below_a_later_one(project: Project) -> None:
    two_runs(project, text((2, "one\n")), text((2, "one\n"), (12, "two\n")))
    done = project.undo(**project.run(1))
    assert (done.conflicts, project.read("f").decode()) == ((), text((12, "two\n")))
    done = project.undo(**project.run(2))  # the undo before it was no somebody's change either
    assert (done.conflicts, project.read("f").decode()) == ((), text())
    assert project.redo().conflicts == ()
    assert project.redo().conflicts == ()
    assert project.read("f").decode() == text((2, "one\n"), (12, "two\n"))


def test_the_same_lines_are_refused_and_the_later_run_is_named(project: Project) -> None:
    two_runs(project, text((2, "one\n")), text((2, "two\n")))
    done = project.undo(**project.run(1))
    assert done.files == ()
    (conflict,) = done.conflicts
    assert conflict.reason.startswith("run 2 changed it later, and both changed the same lines (at 3)")
    assert "take that back first" in conflict.reason
    assert project.read("f").decode() == text((2, "two\n"))
    assert project.undo(**project.run(2)).conflicts == ()
    assert project.undo(**project.run(1)).conflicts == ()
    assert project.read("f").decode() == text()


def test_a_file_that_an_earlier_run_made_stays_as_long_as_a_later_one_has_changed_it(project: Project) -> None:
    for content in ("one\n", "one\ntwo\n"):
        project.begin_run()
        project.change(lambda content=content: project.write("d/new", content))
    done = project.undo(**project.run(1))
    assert done.files == ()
    assert [(each.path, each.reason.split(",")[0]) for each in done.conflicts] == [("d/new", "run 2 changed it later")]


def test_a_folder_stays_without_a_word_while_a_later_run_has_files_in_it(project: Project) -> None:
    for name in ("d/a", "d/b"):
        project.begin_run()
        project.change(lambda name=name: project.write(name, "x\n"))
    done = project.undo(**project.run(1))
    assert ([each.path for each in done.files], done.conflicts) == (["d/a"], ())
    assert project.undo(**project.run(2)).conflicts == ()
    assert project.undo(**project.run(1)).conflicts == ()
    assert project.tree() == {}


def test_modes_and_bytes_are_put_on_top_of_each_other_without_any_text(project: Project) -> None:
    project.write("f", b"\0one")
    project.begin_run()
    project.change(lambda: (project.path / "f").chmod(0o755))
    project.begin_run()
    project.change(lambda: project.write("f", b"\0two", 0o755))
    assert project.undo(**project.run(1)).conflicts == ()
    assert (project.read("f"), (project.path / "f").stat().st_mode & 0o777) == (b"\0two", 0o644)
    assert project.undo(**project.run(2)).conflicts == ()
    assert (project.read("f"), (project.path / "f").stat().st_mode & 0o777) == (b"\0one", 0o644)


def test_hunks_of_an_earlier_run_are_undone_below_a_later_one(project: Project) -> None:
    two_runs(project, text((2, "one\n"), (20, "uno\n")), text((2, "one\n"), (11, "two\n"), (20, "uno\n")))
    assert project.undo(hunks={"f": (1,)}, **project.run(1)).conflicts == ()
    assert project.read("f").decode() == text((11, "two\n"), (20, "uno\n"))
    assert project.undo(**project.run(2)).conflicts == ()
    assert project.read("f").decode() == text((20, "uno\n"))
    assert project.undo(**project.run(1)).conflicts == ()
    assert project.read("f").decode() == text()


def test_a_person_s_change_stays_foreign_whatever_lies_around_it(project: Project) -> None:
    two_runs(project, text((2, "one\n")), text((2, "one\n"), (12, "two\n")))
    mine = text((2, "one\n"), (7, "mine\n"), (12, "two\n"))
    project.write("f", mine)
    project.begin_run()
    later = text((2, "one\n"), (7, "mine\n"), (12, "two\n"), (20, "three\n"))
    project.change(lambda: project.write("f", later))
    for number in (1, 2):
        done = project.undo(**project.run(number))
        assert done.files == ()
        assert done.conflicts[0].reason == "it has changed between two changes of this chat"
    assert project.undo(merge=True, **project.run(1)).conflicts == ()
    assert project.read("f").decode() == text((7, "mine\n"), (12, "two\n"), (20, "three\n"))
    assert project.undo(**project.run(3)).conflicts == ()  # nobody has touched it since
    assert project.read("f").decode() == text((7, "mine\n"), (12, "two\n"))
    assert project.undo(**project.run(2)).files == ()
    assert project.undo(merge=True, **project.run(2)).conflicts == ()
    assert project.read("f").decode() == text((7, "mine\n"))


# -- any order --------------------------------------------------------------------------------------------------------


class Edit(Struct):
    """What somebody made of one line: the truth against which the files are held. Run 0 is a person."""

    run: int
    path: str
    slot: int
    content: str
    alive: bool = True


class World:
    """Files whose text is what the edits that stand make of it, the later ones over the earlier ones."""

    def __init__(self, folder: Path) -> None:
        self.project = Project(folder)
        self.edits: list[Edit] = []
        self.undone: dict[str, list[Edit]] = {}
        for path in FILES:
            self.project.write(path, text())

    def expected(self, path: str, without: int = -1) -> str:
        standing = [each for each in self.edits if each.path == path and each.alive and each.run != without]
        return text(*((each.slot, each.content) for each in standing))

    def check(self) -> None:
        for path in FILES:
            assert self.project.read(path).decode() == self.expected(path)

    def edit(self, run: int, wanted: list[tuple[str, int, str]]) -> None:
        for path, slot, content in wanted:
            known = {(each.path, each.slot, each.content) for each in self.edits}
            if (path, slot, content) not in known:  # nothing comes back by itself: it is always known whose it is
                self.edits.append(Edit(run, path, slot, content))
        for path in FILES:
            self.project.write(path, self.expected(path))

    def run(self, wanted: list[tuple[str, int, str]]) -> None:
        number = self.project.begin_run()
        for one in wanted:
            self.project.change(lambda one=one: self.edit(number, [one]))

    def undo(self, number: int, merge: bool) -> None:
        before = {path: self.expected(path) for path in FILES}
        goals = {path: self.expected(path, number) for path in FILES}
        must = [path for path in FILES if self._must(path, number, merge)]
        never = [path for path in FILES if not merge and self._foreign(path, number)]
        done = self.project.undo(merge=merge, **self.project.run(number))
        changed = {each.path for each in done.files}
        assert not changed & set(never), "a person's change is foreign"
        gone = [each for each in self.edits if each.run == number and each.path in changed and each.alive]
        self.undone[self.project.requests[-1].restore] = gone
        for each in gone:
            each.alive = False
        for path in FILES:
            assert self.project.read(path).decode() == (goals if path in changed else before)[path]
            if path in must:
                assert path in changed or goals[path] == before[path], done.conflicts
        event(f"undone {len(changed)}, refused {len(done.conflicts)}")

    def redo(self) -> None:
        before = {path: self.expected(path) for path in FILES}
        done = self.project.redo()
        undo = self.project.requests[-1].of
        changed = {each.path for each in done.files}
        for each in self.undone.get(undo, []):
            if each.path in changed:
                each.alive = True
                self.edits.remove(each)  # what is redone comes after all that was done since
                self.edits.append(each)
        for path in FILES:
            assert self.project.read(path).decode() == (self.expected(path) if path in changed else before[path])

    def _of(self, path: str, number: int) -> tuple[list[Edit], list[Edit]]:
        """What a run did to a path that stands, and what else stands behind the first of it."""
        standing = [each for each in self.edits if each.path == path and each.alive]
        mine = [each for each in standing if each.run == number]
        return mine, standing[standing.index(mine[0]) :] if mine else []

    def _foreign(self, path: str, number: int) -> bool:
        _, behind = self._of(path, number)
        person = [each for each in behind if each.run == 0]
        return bool(person) and self.expected(path, number) != self.expected(path)

    def _must(self, path: str, number: int, merge: bool) -> bool:
        """Whether nothing that stands in this file is near to what the run did, and a person's change is merged."""
        mine, behind = self._of(path, number)
        slots = {each.slot for each in mine}
        others = [each for each in self.edits if each.path == path and each.alive and each.run != number]
        far = all(abs(each.slot - slot) > 2 for each in others for slot in slots)
        return bool(mine) and far and (merge or all(each.run for each in behind))


@st.composite
def moves(draw: st.DrawFn) -> list[tuple[str, object]]:
    count = 0

    def edit() -> tuple[str, int, str]:
        nonlocal count
        count += 1
        content = draw(st.sampled_from([f"new {count}\n", f"new {count}\nand more {count}\n", ""]))
        return draw(st.sampled_from(FILES)), draw(st.integers(0, SLOTS - 1)), content

    found: list[tuple[str, object]] = []
    for kind in draw(st.lists(st.sampled_from(["run", "run", "run", "person", "undo", "merge", "redo"]), max_size=14)):
        if kind in ("run", "person"):
            found.append((kind, [edit() for _ in range(draw(st.integers(1, 3)))]))
        else:
            found.append((kind, draw(st.integers(0, 4))))
    return found


@given(moves())
@settings(max_examples=20, suppress_health_check=[HealthCheck.too_slow])
def test_any_run_is_undone_exactly_or_refused(life: list[tuple[str, object]]) -> None:
    """What is left is exactly the text without what that run did; a redo brings exactly that back."""
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder))
        for kind, what in life:
            match kind:
                case "run":
                    world.run(what)  # type: ignore[arg-type]
                case "person":
                    world.edit(0, what)  # type: ignore[arg-type]
                case "undo" | "merge" if world.project.runs:
                    world.undo(int(str(what)) % len(world.project.runs) + 1, kind == "merge")
                case "redo" if world.undone:
                    world.redo()
            world.check()


@given(st.lists(st.lists(st.integers(0, 7), min_size=1, max_size=3), min_size=1, max_size=5), st.randoms())
@settings(max_examples=5, suppress_health_check=[HealthCheck.too_slow])
def test_runs_on_lines_of_their_own_are_undone_in_any_order(runs: list[list[int]], chance: random.Random) -> None:
    with tempfile.TemporaryDirectory() as folder:
        world, taken = World(Path(folder)), set()
        for number, slots in enumerate(runs, 1):
            free = [slot * 3 for slot in slots if slot not in taken]
            taken |= set(slots)
            world.run([("f", slot, f"run {number} {slot}\n") for slot in free])
        order = list(range(1, len(runs) + 1))
        chance.shuffle(order)
        whole = world.project.read("f")
        for number in order:
            assert world.project.undo(**world.project.run(number)).conflicts == ()
        assert world.project.read("f").decode() == text()
        for _ in [run for run in order if any(each.run == run for each in world.edits)]:
            assert world.project.redo().conflicts == ()
        assert world.project.read("f") == whole
