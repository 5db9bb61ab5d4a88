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
    effect = project.undo(**project.run(1))
    assert (effect.conflicts, project.read("f").decode()) == ((), text((12, "two\n")))
    effect = project.undo(**project.run(2))  # the undo before it was no foreign change either
    assert (effect.conflicts, project.read("f").decode()) == ((), text())
    assert project.redo().conflicts == ()
    assert project.redo().conflicts == ()
    assert project.read("f").decode() == text((2, "one\n"), (12, "two\n"))


def test_the_same_lines_are_refused_and_the_later_run_is_named(project: Project) -> None:
    two_runs(project, text((2, "one\n")), text((2, "two\n")))
    effect = project.undo(**project.run(1))
    assert effect.files == ()
    (conflict,) = effect.conflicts
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
    effect = project.undo(**project.run(1))
    assert effect.files == ()
    assert [(each.path, each.reason.split(",")[0]) for each in effect.conflicts] == [
        ("d/new", "run 2 changed it later")
    ]


def test_a_folder_stays_without_a_word_while_a_later_run_has_files_in_it(project: Project) -> None:
    for name in ("d/a", "d/b"):
        project.begin_run()
        project.change(lambda name=name: project.write(name, "x\n"))
    effect = project.undo(**project.run(1))
    assert ([each.path for each in effect.files], effect.conflicts) == (["d/a"], ())
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
        effect = project.undo(**project.run(number))
        assert effect.files == ()
        assert effect.conflicts[0].reason == "it has changed between two changes of this chat"
    assert project.undo(merge=True, **project.run(1)).conflicts == ()
    assert project.read("f").decode() == text((7, "mine\n"), (12, "two\n"), (20, "three\n"))
    assert project.undo(**project.run(3)).conflicts == ()  # it has not changed since
    assert project.read("f").decode() == text((7, "mine\n"), (12, "two\n"))
    assert project.undo(**project.run(2)).files == ()
    assert project.undo(merge=True, **project.run(2)).conflicts == ()
    assert project.read("f").decode() == text((7, "mine\n"))


# -- any order --------------------------------------------------------------------------------------------------------


class Edit(Struct):
    """One edit of one line: the truth against which the files are held. Run 0 is a person."""

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

    def build_expected_text(self, path: str, without: int = -1) -> str:
        standing = [each for each in self.edits if each.path == path and each.alive and each.run != without]
        return text(*((each.slot, each.content) for each in standing))

    def check(self) -> None:
        for path in FILES:
            assert self.project.read(path).decode() == self.build_expected_text(path)

    def edit(self, run: int, changes: list[tuple[str, int, str]]) -> None:
        for path, slot, content in changes:
            known_edits = {(each.path, each.slot, each.content) for each in self.edits}
            if (path, slot, content) not in known_edits:  # nothing comes back by itself: it is always known whose it is
                self.edits.append(Edit(run, path, slot, content))
        for path in FILES:
            self.project.write(path, self.build_expected_text(path))

    def run(self, changes: list[tuple[str, int, str]]) -> None:
        number = self.project.begin_run()
        for one in changes:
            self.project.change(lambda one=one: self.edit(number, [one]))

    def undo(self, number: int, merge: bool) -> None:
        old_texts = {path: self.build_expected_text(path) for path in FILES}
        goals = {path: self.build_expected_text(path, number) for path in FILES}
        required_paths = [path for path in FILES if self._is_undoable(path, number, merge)]
        never = [path for path in FILES if not merge and self._foreign(path, number)]
        effect = self.project.undo(merge=merge, **self.project.run(number))
        changed_paths = {each.path for each in effect.files}
        assert not changed_paths & set(never), "a person's change is foreign"
        undone_edits = [each for each in self.edits if each.run == number and each.path in changed_paths and each.alive]
        self.undone[self.project.requests[-1].restore] = undone_edits
        for each in undone_edits:
            each.alive = False
        for path in FILES:
            assert self.project.read(path).decode() == (goals if path in changed_paths else old_texts)[path]
            if path in required_paths:
                assert path in changed_paths or goals[path] == old_texts[path], effect.conflicts
        event(f"undone {len(changed_paths)}, refused {len(effect.conflicts)}")

    def redo(self) -> None:
        old_texts = {path: self.build_expected_text(path) for path in FILES}
        effect = self.project.redo()
        undo = self.project.requests[-1].of
        changed_paths = {each.path for each in effect.files}
        for each in self.undone.get(undo, []):
            if each.path in changed_paths:
                each.alive = True
                self.edits.remove(each)  # a redone edit comes after all later ones
                self.edits.append(each)
        for path in FILES:
            assert self.project.read(path).decode() == (
                self.build_expected_text(path) if path in changed_paths else old_texts[path]
            )

    def _of(self, path: str, number: int) -> tuple[list[Edit], list[Edit]]:
        """The run's edits of a path that stand, and all standing edits from the first of them on."""
        standing = [each for each in self.edits if each.path == path and each.alive]
        mine = [each for each in standing if each.run == number]
        return mine, standing[standing.index(mine[0]) :] if mine else []

    def _foreign(self, path: str, number: int) -> bool:
        _, later_edits = self._of(path, number)
        person = [each for each in later_edits if each.run == 0]
        return bool(person) and self.build_expected_text(path, number) != self.build_expected_text(path)

    def _is_undoable(self, path: str, number: int, merge: bool) -> bool:
        """True if no other standing edit of this file is near the run's edits, and a person's change is merged."""
        mine, later_edits = self._of(path, number)
        slots = {each.slot for each in mine}
        other_edits = [each for each in self.edits if each.path == path and each.alive and each.run != number]
        is_distant = all(abs(each.slot - slot) > 2 for each in other_edits for slot in slots)
        return bool(mine) and is_distant and (merge or all(each.run for each in later_edits))


@st.composite
def moves(draw: st.DrawFn) -> list[tuple[str, object]]:
    count = 0

    def edit() -> tuple[str, int, str]:
        nonlocal count
        count += 1
        content = draw(st.sampled_from([f"new {count}\n", f"new {count}\nand more {count}\n", ""]))
        return draw(st.sampled_from(FILES)), draw(st.integers(0, SLOTS - 1)), content

    steps: list[tuple[str, object]] = []
    for kind in draw(st.lists(st.sampled_from(["run", "run", "run", "person", "undo", "merge", "redo"]), max_size=14)):
        if kind in ("run", "person"):
            steps.append((kind, [edit() for _ in range(draw(st.integers(1, 3)))]))
        else:
            steps.append((kind, draw(st.integers(0, 4))))
    return steps


@given(moves())
@settings(max_examples=20, suppress_health_check=[HealthCheck.too_slow])
def test_any_run_is_undone_exactly_or_refused(life: list[tuple[str, object]]) -> None:
    """The remaining text is exactly the text without that run's edits; a redo brings exactly those back."""
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder))
        for kind, argument in life:
            match kind:
                case "run":
                    world.run(argument)  # type: ignore[arg-type]
                case "person":
                    world.edit(0, argument)  # type: ignore[arg-type]
                case "undo" | "merge" if world.project.runs:
                    world.undo(int(str(argument)) % len(world.project.runs) + 1, kind == "merge")
                case "redo" if world.undone:
                    world.redo()
            world.check()


@given(st.lists(st.lists(st.integers(0, 7), min_size=1, max_size=3), min_size=1, max_size=5), st.randoms())
@settings(max_examples=5, suppress_health_check=[HealthCheck.too_slow])
def test_runs_on_lines_of_their_own_are_undone_in_any_order(runs: list[list[int]], chance: random.Random) -> None:
    with tempfile.TemporaryDirectory() as folder:
        world, used_slots = World(Path(folder)), set()
        for number, slots in enumerate(runs, 1):
            free = [slot * 3 for slot in slots if slot not in used_slots]
            used_slots |= set(slots)
            world.run([("f", slot, f"run {number} {slot}\n") for slot in free])
        order = list(range(1, len(runs) + 1))
        chance.shuffle(order)
        full_text = world.project.read("f")
        for number in order:
            assert world.project.undo(**world.project.run(number)).conflicts == ()
        assert world.project.read("f").decode() == text()
        for _ in [run for run in order if any(each.run == run for each in world.edits)]:
            assert world.project.redo().conflicts == ()
        assert world.project.read("f") == full_text
