"""Three-way merges of texts with repeated lines, against `git merge-file` (W-02, W-12)."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.differential.texts import changed_lines, join_lines, random_cases, random_lines
from treadle.diff.merge import merge

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


@pytest.mark.thorough(one_of=8)
def test_a_clean_merge_is_what_git_makes_of_it(tmp_path: Path) -> None:
    clean = careful = total = 0
    for chance in random_cases(600, 10_000, "merge"):
        lines = random_lines(chance, 25)
        ours = changed_lines(chance, lines)
        theirs = changed_lines(chance, ours if chance.random() < 0.3 else lines)
        final_newline = chance.random() < 0.9
        texts = [
            join_lines(each, final_newline=final_newline or chance.random() < 0.5) for each in (lines, ours, theirs)
        ]
        merged, by_git = merge(*texts), _merge_with_git(tmp_path, *texts)
        total += 1
        if by_git is not None and merged.clashes:
            careful += 1
        elif by_git is not None:
            clean += 1
            assert merged.data == by_git, texts
        elif not merged.clashes:  # git sees two edits beside each other where one side has both
            assert merged.data in texts[1:], texts
    assert clean > total / 3
    assert careful < total / 4, "too many clashes where git has none"


def _merge_with_git(folder: Path, base: bytes, ours: bytes, theirs: bytes) -> bytes | None:
    """None if there are conflicts."""
    files = {"ours": ours, "base": base, "theirs": theirs}
    for name, data in files.items():
        (folder / name).write_bytes(data)
    process = subprocess.run(["git", "merge-file", "-p", "-q", *files], cwd=folder, capture_output=True)
    return process.stdout if process.returncode == 0 else None
