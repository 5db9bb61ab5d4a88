"""Our diffs of texts with repeated lines, applied by `git apply`: the whole of them, and single hunks (W-03)."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.differential.texts import changed_lines, join_lines, random_cases, random_lines
from treadle.diff.diff import apply_hunks, diff_texts, list_hunks, remove_hunks

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


@pytest.mark.thorough(one_of=8)
def test_git_makes_the_new_text_of_our_diff(tmp_path: Path) -> None:
    applied = 0
    for chance in random_cases(150, 5_000, "diff"):
        lines = random_lines(chance, 60)
        old, new = (
            join_lines(each, final_newline=chance.random() < 0.8)
            for each in (lines, changed_lines(chance, changed_lines(chance, lines)))
        )
        if old == new:
            continue
        applied += 1
        assert _apply(tmp_path, old, diff_texts("f", old.decode(), new.decode()).text + "\n") == new
        parts = list_hunks(old, new)
        hunk = chance.choice(parts)
        text = "\n".join(["--- f", "+++ f", hunk.header, *hunk.lines, ""])
        expected = apply_hunks(old, new, [hunk.number])
        assert _apply(tmp_path, old, text) == expected
        assert remove_hunks(old, new, [part.number for part in parts if part != hunk]) == expected
    assert applied > 50


def _apply(folder: Path, old: bytes, patch: str) -> bytes:
    (folder / "f").write_bytes(old)
    subprocess.run(["git", "apply", "-p0", "-"], cwd=folder, input=patch.encode(), check=True)
    return (folder / "f").read_bytes()
