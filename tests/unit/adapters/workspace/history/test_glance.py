"""A `find` over a large tree spares entering its folders, and makes no difference otherwise (W-05, W-10)."""

import os
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from treadle.adapters.workspace.history import trees, walk
from treadle.adapters.workspace.history.trees import Tree
from treadle.adapters.workspace.history.walk import Walk
from treadle.adapters.workspace.paths.durable import compute_digest
from treadle.adapters.workspace.root import Root

COMMANDS = (
    "rm -rf a",
    "mv a b",
    "mkdir -p b/c/d e",
    "echo more >> x.txt",
    "echo new > a/x.txt",
    "echo 2 > a/deep/y.txt",
    "chmod 700 a",
    "chmod 755 a",
    "chmod 000 a/deep",
    "rm -rf b; cp -r a b",
    "ln -sfn .. l",
    "rm -rf b; ln -s a b",
    "mkfifo a/p",
    "touch a/x.txt",
    "mv a/x.txt a/deep",
    "mv a/deep a/other; mkdir a/deep",
    "rm -rf x.txt; mkdir x.txt",
    "echo x.txt > .gitignore",
    "echo build > a/.gitignore",
    "rm -f .gitignore a/.gitignore",
    "mkdir -p a/build/x a/__pycache__; echo > a/build/x/1; echo > a/__pycache__/1",
    "printf 'a\\0b' > 'a/odd\nname'; mkdir 'a/-print ./x'; echo > 'a/-print ./x/( ./y'",
    "mkdir \"$(printf 'caf\\351')\"; echo > \"$(printf 'caf\\351/\\377')\"",
    "echo 1 > a/.treadle-1.tmp",
)


@pytest.fixture(scope="module", autouse=True)
def _small_trees_are_glanced_at() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(walk, "FEWEST", 0)
        patch.setattr(walk, "RACY_NS", 0)
        yield


def walk_project(top: Path, known_tree: Tree | None, *, glanced: bool = True, keep: bool = False) -> tuple[Tree, bool]:
    with pytest.MonkeyPatch.context() as patch:
        if not glanced:
            patch.setattr(walk, "find_odd_folders", lambda *_, **__: None)
        one = Walk(known_tree, compute_digest, keep=keep)
        return one.visit_root(Root(str(top))), one.changed


@pytest.mark.thorough(one_of=8)
@settings(max_examples=20)
@given(some.lists(some.lists(some.sampled_from(COMMANDS), min_size=0, max_size=4), min_size=1, max_size=4))
def test_a_glance_makes_no_difference(rounds: list[list[str]]) -> None:  # W-10
    with TemporaryDirectory() as folder:
        top = Path(folder)
        setup = "mkdir -p a/deep/empty; echo one > x.txt; echo two > a/x.txt; echo 1 > a/deep/y.txt; ln -s x.txt link"
        known_tree: Tree | None = None
        for commands in ([setup], *rounds):
            subprocess.run(["sh", "-c", "; ".join(commands) or ":"], cwd=top, check=False, capture_output=True)
            for keep in (False, True):
                walk._unusable.clear()  # a tree as small as this may have nothing left of what it was
                plain, plainly = walk_project(top, known_tree, glanced=False, keep=keep)
                new_tree, has_changed = walk_project(top, known_tree, keep=keep)
                assert (new_tree, has_changed) == (plain, plainly)
                assert list(new_tree.folders) == list(plain.folders) or has_changed
            known_tree = new_tree
        subprocess.run(["chmod", "-R", "u+rwx", "."], cwd=top, check=False, capture_output=True)


@pytest.fixture
def entered_folders(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The folders that were listed."""
    names: list[str] = []
    listed = walk.list_entries

    def listing(fd: int) -> walk.Listing:
        names.append(os.path.basename(os.readlink(f"/proc/self/fd/{fd}")))
        return listed(fd)

    monkeypatch.setattr(walk, "list_entries", listing)
    return names


@pytest.fixture
def project(tmp_path: Path) -> Path:
    top = tmp_path / "top"
    for name in ("a/b/c", "a/d", "e/f", "e/g/empty"):
        (top / name).mkdir(parents=True)
        (top / name / "x.txt").write_text(name)
    return top


def test_only_folders_that_changed_are_entered(project: Path, entered_folders: list[str]) -> None:  # W-05
    known_tree, _ = walk_project(project, None)
    entered_folders.clear()
    same_tree, has_changed = walk_project(project, known_tree)
    assert (same_tree, has_changed, entered_folders) == (known_tree, False, [])
    (project / "a/d/x.txt").write_text("other")
    new_tree, has_changed = walk_project(project, known_tree)
    assert has_changed
    assert sorted(entered_folders) == ["a", "d", "top"]
    assert new_tree.folders["a/d/"].nodes["x.txt"].size == 5
    assert new_tree.folders["e/g/"] is known_tree.folders["e/g/"]
    entered_folders.clear()
    assert walk_project(project, new_tree) == (new_tree, False)
    assert entered_folders == []


def test_what_is_not_kept_is_read_again_by_who_keeps(project: Path, entered_folders: list[str]) -> None:  # W-01
    known_tree, _ = walk_project(project, None)
    kept_tree, has_changed = walk_project(project, known_tree, keep=True)
    assert has_changed
    assert all(node.is_stored for folder in kept_tree.folders.values() for node in folder.nodes.values())


def test_a_folder_that_is_gone_costs_only_the_look_at_those_above(project: Path, entered_folders: list[str]) -> None:
    known_tree, _ = walk_project(project, None)
    (project / "a/b/c/x.txt").unlink()
    (project / "a/b/c").rmdir()
    entered_folders.clear()
    new_tree, _ = walk_project(project, known_tree)
    assert known_tree.folders.keys() - new_tree.folders.keys() == {"a/b/c/"}
    assert sorted(entered_folders) == ["a", "b", "top"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may look into everything")
def test_an_empty_folder_that_was_closed_is_told(project: Path) -> None:
    (project / "e/g/empty/x.txt").unlink()
    known_tree, _ = walk_project(project, None)
    (project / "e/g/empty").chmod(0)
    assert walk_project(project, known_tree) == walk_project(project, known_tree, glanced=False)


def test_rules_that_changed_are_heard_below(project: Path) -> None:
    known_tree, _ = walk_project(project, None)
    (project / ".gitignore").write_text("b/\n")
    new_tree, _ = walk_project(project, known_tree)
    assert new_tree.folders["a/"].nodes["b"].ignored
    assert new_tree.folders["a/b/c/"].nodes["x.txt"].ignored


@pytest.mark.parametrize("words", ["exit 1", "echo another language", "kill $$"])
def test_a_find_of_another_kind_is_asked_once(
    project: Path, tmp_path: Path, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "bin" / "find"
    program.parent.mkdir()
    call_log = tmp_path / "asked"
    program.write_text(f"#!/bin/sh\necho >> {call_log}\n{words}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    walk._find_program.cache_clear()
    try:
        known_tree, _ = walk_project(project, None)
        (project / "a/d/new").mkdir()
        for _ in range(3):
            assert walk_project(project, known_tree) == walk_project(project, known_tree, glanced=False)
        assert "a/d/new/" in walk_project(project, known_tree)[0].folders
        assert 1 <= len(call_log.read_text().splitlines()) <= len(os.sched_getaffinity(0))
    finally:
        walk._find_program.cache_clear()


def test_a_find_that_the_project_brings_along_is_not_run(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # S-09
    (project / "find").write_text("#!/bin/sh\ntouch run\n")
    (project / "find").chmod(0o755)
    monkeypatch.setenv("PATH", f"{project}:{os.environ['PATH']}")
    walk._find_program.cache_clear()
    try:
        known_tree, _ = walk_project(project, None)
        assert walk_project(project, known_tree) == (known_tree, False)
        assert not (project / "run").exists()
    finally:
        walk._find_program.cache_clear()


def test_left_out_folders_are_not_looked_into(project: Path) -> None:
    (project / "a/node_modules/x").mkdir(parents=True)
    known_tree, _ = walk_project(project, None)
    assert known_tree.folders["a/"].nodes["node_modules"].left_out_reason == trees.GENERATED_FOLDER
    (project / "a/node_modules/x/new").write_text("")
    assert walk_project(project, known_tree) == (known_tree, False)
