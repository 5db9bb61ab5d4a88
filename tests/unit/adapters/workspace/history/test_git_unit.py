"""The files under `.git` are restored as one or not at all; looking at a repository is no change of it (W-02)."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.unit.adapters.workspace.undo_kit import Project
from treadle.adapters.workspace.history.git_index import NONE, compute_git_fingerprint, read_index_digest

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


@pytest.fixture
def project(tmp_path: Path) -> Project:
    new_project = Project(tmp_path)
    git(new_project, "init", "-q", "-b", "main")
    new_project.write("f", "one\n")
    new_project.write("deep/g", "one\n")
    commit(new_project, "first")
    return new_project


def git(project: Project, *words: str) -> str:
    config = ["-c", "user.name=n", "-c", "user.email=e", "-c", "gc.auto=0", "-c", "maintenance.auto=false"]
    env = {"PATH": os.environ["PATH"], "HOME": str(project.path.parent), "GIT_CONFIG_NOSYSTEM": "1"}
    process = subprocess.run(["git", *config, *words], cwd=project.path, env=env, capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    return process.stdout


def commit(project: Project, message: str) -> None:
    git(project, "add", "-A")
    git(project, "commit", "-qm", message)


def work(project: Project) -> None:
    project.write("f", "agent\n")
    commit(project, "agent's")
    git(project, "branch", "more")
    project.write("f", "stashed\n")
    git(project, "stash")


def test_a_commit_a_branch_and_a_stash_are_undone_as_one(project: Project) -> None:
    old_tree = project.tree()
    project.change(lambda: work(project), git=True)
    new_tree = project.tree()
    assert not project.undo().conflicts
    assert project.tree() == old_tree
    assert git(project, "log", "--format=%s") == "first\n"
    assert git(project, "status", "--porcelain") == ""
    assert git(project, "fsck", "--strict") == ""
    assert not project.redo().conflicts
    assert {path: state for path, state in project.tree().items() if path != ".git/index"} == {
        path: state for path, state in new_tree.items() if path != ".git/index"
    }
    assert git(project, "stash", "list")


def test_looking_at_the_repository_does_not_stand_in_the_way(project: Project) -> None:
    """`git status` writes into the index when it looked at which file; that is no change by anybody."""
    project.change(lambda: work(project), git=True)
    index = project.read(".git/index")
    os.utime(project.path / "f", (1, 1))
    git(project, "status")
    assert project.read(".git/index") != index
    assert not project.undo().conflicts
    assert git(project, "log", "--format=%s") == "first\n"
    assert git(project, "status", "--porcelain") == ""


@pytest.mark.parametrize("meanwhile", [("tag", "mine"), ("commit", "-qm", "mine", "--allow-empty"), ("add", "new")])
def test_what_somebody_did_there_refuses_all_of_it(project: Project, meanwhile: tuple[str, ...]) -> None:
    project.change(lambda: work(project), git=True)
    project.write("new", "new\n")
    git(project, *meanwhile)
    old_tree = project.tree()
    effect = project.undo()
    assert [each.path for each in effect.conflicts] == [".git"]
    assert "as a whole or not at all" in effect.conflicts[0].reason
    inside = {path: state for path, state in old_tree.items() if path.startswith(".git")}
    assert {path: state for path, state in project.tree().items() if path.startswith(".git")} == inside
    assert project.read("f") == b"one\n"  # beside it, undo does its work


def test_one_file_that_cannot_go_back_keeps_all_of_it(project: Project) -> None:
    project.change(lambda: work(project))  # no fingerprint is known: each file speaks for itself
    project.write(".git/refs/heads/more", "0" * 40 + "\n")
    effect = project.undo()
    assert [each.path for each in effect.conflicts] == [".git"]
    assert ".git/refs/heads/more in it: it has changed since" in effect.conflicts[0].reason


def test_a_repository_that_was_made_or_removed_comes_back_whole(project: Project) -> None:
    old_tree = project.tree()
    project.change(lambda: shutil.rmtree(project.path / ".git"), git=True)
    assert compute_git_fingerprint(project.root) == NONE
    assert not project.undo().conflicts
    assert project.tree() == old_tree
    assert git(project, "fsck", "--strict") == ""


def test_an_object_that_somebody_else_wrote_stays_and_does_not_stand_in_the_way(project: Project) -> None:
    project.change(lambda: work(project), git=True)
    object_paths = {path for path in project.tree() if path.startswith(".git/objects/")}
    folder = next(path.name for path in (project.path / ".git/objects").iterdir() if len(path.name) == 2)
    project.write(f".git/objects/{folder}/{'0' * 38}", b"theirs")
    assert not project.undo().conflicts
    assert f".git/objects/{folder}/{'0' * 38}" in project.tree()
    assert len({path for path in project.tree() if path.startswith(".git/objects/")}) < len(object_paths)


@pytest.mark.parametrize("version", ["2", "3", "4"])
def test_an_index_is_what_it_says(project: Project, version: str) -> None:
    for number in range(30):
        project.write(f"many/file{number}", f"{number}\n")
    git(project, "update-index", "--index-version", version)
    git(project, "add", "-A")
    if version == "3":
        project.write("intent", "x\n")
        git(project, "add", "-N", "intent")
    index = project.path / ".git/index"
    data = index.read_bytes()
    assert data[7] == int(version)
    digest = read_index_digest(data)
    for file in (project.path / "many").iterdir():
        os.utime(file, (1, 1))
    git(project, "status")
    assert index.read_bytes() != data
    assert read_index_digest(index.read_bytes()) == digest
    git(project, "update-index", "--chmod=+x", "f")
    mode_digest = read_index_digest(index.read_bytes())
    git(project, "update-index", "--assume-unchanged", "f")
    assert len({digest, mode_digest, read_index_digest(index.read_bytes())}) == 3


@pytest.mark.parametrize(
    "data", [b"", b"DIRC", b"DIRC\0\0\0\2\0\0\0\5", b"x" * 100, b"DIRC\0\0\0\4\0\0\0\1" + b"\xff" * 90]
)
def test_what_is_no_index_is_its_bytes(data: bytes) -> None:
    assert read_index_digest(data) != read_index_digest(data + b"!")


def test_the_fingerprint_is_of_everything_but_objects(project: Project) -> None:
    fingerprints = {compute_git_fingerprint(project.root)}
    git(project, "hash-object", "-w", "f")
    assert compute_git_fingerprint(project.root) in fingerprints
    for path in (".git/hooks/mine", ".git/info/exclude", ".git/HEAD"):
        project.write(path, "x\n")
        fingerprints.add(compute_git_fingerprint(project.root))
    (project.path / ".git/hooks/mine").chmod(0o755)
    fingerprints.add(compute_git_fingerprint(project.root))
    os.symlink("nowhere", project.path / ".git/link")
    os.mkfifo(project.path / ".git/fifo")
    fingerprints.add(compute_git_fingerprint(project.root))
    assert len(fingerprints) == 6
