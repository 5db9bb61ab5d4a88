"""What indexes say that git itself wrote: gitlinks, hidden files, tracked paths (S-16, S-23)."""

import subprocess
from pathlib import Path

import pytest

from treadle.adapters.workspace.history.git_index import IndexMarks, parse_tracked_paths, read_index_marks

COMMIT = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"


def index(root: Path, version: int, *links: str) -> bytes:
    def git(*words: str) -> None:
        subprocess.run(["git", "-c", f"index.version={version}", *words], cwd=root, check=True, capture_output=True)

    git("init", "-q")
    for name in ("a", "a.txt", "b/c.txt", "b/cd.txt", "z" * 200):
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text("x")
    git("add", "-A")
    for link in links:
        git("update-index", "--add", "--cacheinfo", f"160000,{COMMIT},{link}")
    git("update-index", "--index-version", str(version))
    return (root / ".git/index").read_bytes()


@pytest.mark.parametrize("version", [2, 3, 4])
def test_links_are_found_among_files(tmp_path: Path, version: int) -> None:
    assert read_index_marks(index(tmp_path, version, "b/link", "other", "zz")).gitlinks == {b"b/link", b"other", b"zz"}


def test_files_alone_are_none(tmp_path: Path) -> None:
    assert read_index_marks(index(tmp_path, 2)) == IndexMarks()


@pytest.mark.parametrize("data", [b"", b"DIRC", b"DIRC" + b"\xff" * 40, b"no index at all"])
def test_what_is_no_index(data: bytes) -> None:
    assert read_index_marks(data) == IndexMarks()
    assert parse_tracked_paths(data) == frozenset()


@pytest.mark.parametrize("version", [2, 3, 4])
@pytest.mark.parametrize("flag", ["--assume-unchanged", "--skip-worktree"])
def test_files_that_git_is_told_not_to_show(tmp_path: Path, version: int, flag: str) -> None:
    index(tmp_path, version)
    subprocess.run(["git", "update-index", flag, "b/c.txt"], cwd=tmp_path, check=True)
    data = (tmp_path / ".git/index").read_bytes()
    assert read_index_marks(data) == IndexMarks(hidden_paths=frozenset({b"b/c.txt"}))
    assert parse_tracked_paths(data) == {b"a", b"a.txt", b"b/c.txt", b"b/cd.txt", b"z" * 200}
