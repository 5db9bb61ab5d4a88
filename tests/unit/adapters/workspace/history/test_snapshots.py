"""What a command on a view made where something protected would lie does not get into the project (S-03, S-09)."""

from pathlib import Path

import pytest

from treadle.adapters.workspace.history.snapshots import withhold
from treadle.adapters.workspace.root import Root
from treadle.ports.snapshots import Effect
from treadle.protocol.files import DiffStat, FileChange, FileState, change_of

FILE, FOLDER, LINK = FileState("file", 0o644, "ab", 2), FileState("directory", 0o755), FileState("link", target="evil")


def made(path: str, state: FileState = FILE) -> FileChange:
    return change_of(path, None, state, DiffStat())


def left(root: Path, *files: FileChange) -> Effect:
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
    effect = left(tmp_path, made("README"), made(path), made("src/x"))
    assert [file.path for file in effect.files] == ["README", "src/x"]
    assert [each.path for each in effect.uncaptured] == [path]
    assert effect.conflicts == ()


def test_a_folder_that_is_left_out_is_said_once(tmp_path: Path) -> None:
    inside = [made("sub/.git", FOLDER), made("sub/.git/hooks", FOLDER), made("sub/.git/hooks/x"), made("sub/a")]
    effect = left(tmp_path, *inside)
    assert [file.path for file in effect.files] == ["sub/a"]
    assert [each.path for each in effect.uncaptured] == ["sub/.git"]


@pytest.mark.parametrize(
    "path",
    [".git/HEAD", ".git/refs/heads/hooks", ".git/objects/ab/cdef", "config", "hooks/x", "sub/.treadle", ".gitignore"],
)
def test_the_rest_is_not(tmp_path: Path, path: str) -> None:
    effect = left(tmp_path, made(".git", FOLDER), made(path))
    assert [file.path for file in effect.files] == [".git", path]
    assert effect.uncaptured == ()


@pytest.mark.parametrize("state", [LINK, FILE, FileState("fifo", 0o644)])
def test_the_git_folder_is_a_folder_or_nothing(tmp_path: Path, state: FileState) -> None:
    """A link, or a file that names another folder, would bring hooks along by another way."""
    effect = left(tmp_path, made("evil/x"), made(".git", state))
    assert [file.path for file in effect.files] == ["evil/x"]
    assert [each.path for each in effect.uncaptured] == [".git"]
    replaced = change_of(".git", FOLDER, state, DiffStat())
    assert [conflict.path for conflict in left(tmp_path, replaced).conflicts] == [".git"]


def test_a_bare_repository_is_seen_with_what_is_there_already(tmp_path: Path) -> None:  # S-16
    (tmp_path / "x/objects").mkdir(parents=True)
    (tmp_path / "x/refs").mkdir()
    effect = left(tmp_path, made("x/HEAD"), made("x/config"), made("x/readme"))
    assert [file.path for file in effect.files] == ["x/readme"]
    assert [each.path for each in effect.uncaptured] == ["x/HEAD", "x/config"]
