"""Gitlinks in indexes that git itself wrote (S-16)."""

import subprocess
from pathlib import Path

import pytest

from treadle.workspace.history.git_index import gitlinks

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
    assert gitlinks(index(tmp_path, version, "b/link", "other", "zz")) == {b"b/link", b"other", b"zz"}


def test_files_alone_are_none(tmp_path: Path) -> None:
    assert gitlinks(index(tmp_path, 2)) == frozenset()


@pytest.mark.parametrize("data", [b"", b"DIRC", b"DIRC" + b"\xff" * 40, b"no index at all"])
def test_what_is_no_index(data: bytes) -> None:
    assert gitlinks(data) == frozenset()
