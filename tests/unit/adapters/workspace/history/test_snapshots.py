"""Files that a command on a view made at a protected path do not get into the project (S-03, S-09)."""

from pathlib import Path

import pytest

from treadle.adapters.workspace.history.snapshots import withhold
from treadle.adapters.workspace.root import Root
from treadle.ports.snapshots import Effect
from treadle.protocol.files import DiffStat, FileChange, FileState, make_file_change

FILE, FOLDER, LINK = FileState("file", 0o644, "ab", 2), FileState("directory", 0o755), FileState("link", target="evil")


def make_change(path: str, state: FileState = FILE) -> FileChange:
    return make_file_change(path, None, state, DiffStat())


def withhold_files(root: Path, *files: FileChange) -> Effect:
    return withhold(Root(str(root)), Effect(files))


@pytest.mark.parametrize(
    "path",
    [
        ".git/hooks",
        ".git/config",
        ".git/config.worktree",
        ".git/commondir",
        ".git/info/attributes",
        ".git/objects/info/alternates",
        ".git/modules/a/b/hooks/post-checkout",
        ".git/modules/new/config",
        ".git/worktrees/w/commondir",
        ".treadle",
        ".treadle/rules.json",
        "sub/.git",
        "sub/.git/config",
        ".GIT/config",
    ],
)
def test_what_is_never_committed_is_left_out_and_said(tmp_path: Path, path: str) -> None:  # S-16
    effect = withhold_files(tmp_path, make_change("README"), make_change(path), make_change("src/x"))
    assert [file.path for file in effect.files] == ["README", "src/x"]
    assert [each.path for each in effect.uncaptured] == [path]
    assert effect.conflicts == ()


def test_a_folder_that_is_left_out_is_said_once(tmp_path: Path) -> None:
    inside = [
        make_change("sub/.git", FOLDER),
        make_change("sub/.git/hooks", FOLDER),
        make_change("sub/.git/hooks/x"),
        make_change("sub/a"),
    ]
    effect = withhold_files(tmp_path, *inside)
    assert [file.path for file in effect.files] == ["sub/a"]
    assert [each.path for each in effect.uncaptured] == ["sub/.git"]


@pytest.mark.parametrize(
    "path",
    [".git/HEAD", ".git/refs/heads/hooks", ".git/objects/ab/cdef", "config", "hooks/x", "sub/.treadle", ".gitignore"],
)
def test_the_rest_is_not(tmp_path: Path, path: str) -> None:
    effect = withhold_files(tmp_path, make_change(".git", FOLDER), make_change(path))
    assert [file.path for file in effect.files] == [".git", path]
    assert effect.uncaptured == ()


@pytest.mark.parametrize("state", [LINK, FILE, FileState("fifo", 0o644)])
def test_the_git_folder_is_a_folder_or_nothing(tmp_path: Path, state: FileState) -> None:
    """A link, or a file that names another folder, would bring hooks along by another way."""
    effect = withhold_files(tmp_path, make_change("evil/x"), make_change(".git", state))
    assert [file.path for file in effect.files] == ["evil/x"]
    assert [each.path for each in effect.uncaptured] == [".git"]
    replaced = make_file_change(".git", FOLDER, state, DiffStat())
    assert [conflict.path for conflict in withhold_files(tmp_path, replaced).conflicts] == [".git"]


def test_a_bare_repository_is_seen_with_what_is_there_already(tmp_path: Path) -> None:  # S-16
    (tmp_path / "x/objects").mkdir(parents=True)
    (tmp_path / "x/refs").mkdir()
    effect = withhold_files(tmp_path, make_change("x/HEAD"), make_change("x/config"), make_change("x/readme"))
    assert [file.path for file in effect.files] == ["x/readme"]
    assert [each.path for each in effect.uncaptured] == ["x/HEAD", "x/config"]
