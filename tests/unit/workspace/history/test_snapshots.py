"""What a command on a view made where something protected would lie does not get into the project (S-03, S-09)."""

from pathlib import Path

import pytest

from treadle.ports.snapshots import Effect
from treadle.protocol.files import DiffStat, FileChange, FileState, change_of
from treadle.workspace.history.snapshots import withhold
from treadle.workspace.root import Root

FILE, FOLDER, LINK = FileState("file", 0o644, "ab", 2), FileState("directory", 0o755), FileState("link", target="evil")


def made(path: str, state: FileState = FILE) -> FileChange:
    return change_of(path, None, state, DiffStat())


def left(root: Path, *files: FileChange) -> Effect:
    return withhold(Root(str(root)), Effect(files))


@pytest.mark.parametrize(
    ("path", "named"),
    [
        (".git/hooks", ".git/hooks"),
        (".git/hooks/pre-commit", ".git/hooks"),
        (".git/config", ".git/config"),
        (".git/config.worktree", ".git/config.worktree"),
        (".git/commondir", ".git/commondir"),
        (".treadle", ".treadle"),
        (".treadle/rules.json", ".treadle"),
        (".git/modules/a/b/hooks/post-checkout", ".git/modules/a/b/hooks"),
    ],
)
def test_what_is_protected_is_left_out_and_said(tmp_path: Path, path: str, named: str) -> None:
    (tmp_path / ".git/modules/a/b").mkdir(parents=True)
    (tmp_path / ".git/modules/a/b/HEAD").write_text("ref")
    effect = left(tmp_path, made("README"), made(path), made("src/x"))
    assert [file.path for file in effect.files] == ["README", "src/x"]
    assert [each.path for each in effect.uncaptured] == [named]
    assert effect.conflicts == ()


@pytest.mark.parametrize(
    "path",
    [
        ".git/HEAD",
        ".git/refs/heads/hooks",
        ".git/objects/ab/cdef",
        ".git/modules/new/config",
        ".git/worktrees/w/commondir",
        "config",
        "hooks/x",
        "sub/.treadle",
        ".gitignore",
    ],
)
def test_the_rest_is_not(tmp_path: Path, path: str) -> None:
    effect = left(tmp_path, made(".git", FOLDER), made(path))
    assert [file.path for file in effect.files] == [".git", path]
    assert effect.uncaptured == ()


@pytest.mark.parametrize("state", [LINK, FILE, FileState("fifo", 0o644)])
def test_the_git_folder_is_a_folder_or_nothing(tmp_path: Path, state: FileState) -> None:
    """A link, or a file that names another folder, would bring hooks along by another way."""
    effect = left(tmp_path, made("evil/hooks/post-checkout"), made(".git", state))
    assert [conflict.path for conflict in effect.conflicts] == [".git"]
