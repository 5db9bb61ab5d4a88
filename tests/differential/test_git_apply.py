"""apply_patch with what `git diff` prints, against `git apply`: texts, empty files, modes, renames (T-08)."""

import random
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.differential.texts import changed_lines, join_lines, random_cases, random_lines
from treadle.adapters.tools.builtin.patching import plan_patch
from treadle.errors import EditError

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")

Tree = dict[str, tuple[str, bool]]
"""Files by path: their text, and whether they are executable."""
_PATHS = ("a", "b.txt", "d/c.py", "d/e f", "b/c", "ä\t\"q\"", "-- old")  # fmt: skip


@pytest.mark.thorough(one_of=8)
def test_a_git_diff_makes_what_git_apply_makes(folder: Path) -> None:
    for chance in random_cases(40, 1_500, "apply"):
        old = {path: _random_file(chance) for path in _PATHS if chance.random() < 0.6}
        new = _changed_tree(chance, old)
        if chance.random() < 0.2:
            old, new = _with_returns(old), _with_returns(new)
        trees = [_write(folder, tree) for tree in (old, new)]
        context = chance.choice(("-U3", "-U3", "-U1", "-U0"))
        prefix = chance.choice(("-p1", "-p1", "-p0"))
        patch = _git(folder, "diff", "-M", context, *(["--no-prefix"] if prefix == "-p0" else []), *trees)
        if not patch:
            continue
        assert _apply(patch, old) == new, patch
        if context != "-U0":  # git itself loses final newlines there
            _write(folder, old)
            _git(folder, "apply", prefix, "-", stdin_text=patch)
            assert _read(folder) == new


@pytest.mark.thorough(one_of=8)
def test_a_git_diff_of_another_file_is_applied_as_git_does_or_refused(folder: Path) -> None:
    """The file has changed since the diff was made."""
    both = 0
    for chance in random_cases(80, 3_000, "drift"):
        lines = [f"{number} {line}" for number, line in enumerate(random_lines(chance, 40))]  # each line once
        new_lines = changed_lines(chance, lines)
        old, new, now = (join_lines(each).decode() for each in (lines, new_lines, changed_lines(chance, lines)))
        patch = _git(folder, "diff", *(_write(folder, {"f": (text, False)}) for text in (old, new)))
        _write(folder, {"f": (now, False)})
        process = _run_git(folder, "apply", "-", stdin_text=patch)
        if not patch or process.returncode:
            continue
        try:
            new_tree = _apply(patch, {"f": (now, False)})
        except EditError:
            continue
        both += 1
        assert new_tree == _read(folder), patch
    assert both > 5


def _with_returns(tree: Tree) -> Tree:
    return {path: (text.replace("\n", "\r\n"), executable) for path, (text, executable) in tree.items()}


def _random_file(chance: random.Random) -> tuple[str, bool]:
    text = join_lines(random_lines(chance), final_newline=chance.random() < 0.8).decode()
    return text, chance.random() < 0.2


def _changed_tree(chance: random.Random, old: Tree) -> Tree:
    new: Tree = {}
    for path in _PATHS:
        if path not in old:
            if chance.random() < 0.3:
                new[path] = _random_file(chance)
            continue
        text, executable = old[path]
        match chance.choice(("change", "change", "change", "delete", "mode", "keep", "move")):
            case "change":
                lines = changed_lines(chance, text.split("\n")[:-1] if text.endswith("\n") else text.split("\n"))
                new[path] = (join_lines(lines, final_newline=chance.random() < 0.8).decode(), executable)
            case "mode":
                new[path] = (text, not executable)
            case "keep":
                new[path] = old[path]
            case "move" if f"{path}.moved" not in old:
                new[f"{path}.moved"] = old[path]
            case _:
                pass
    return new


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Beside its repository."""
    (tmp_path / "files").mkdir()
    _git(tmp_path / "files", "init", "-q")
    return tmp_path / "files"


def _git(folder: Path, *arguments: str, stdin_text: str = "") -> str:
    process = _run_git(folder, *arguments, stdin_text=stdin_text)
    assert not process.returncode, process.stderr
    return process.stdout.decode()


def _run_git(folder: Path, *arguments: str, stdin_text: str) -> subprocess.CompletedProcess[bytes]:
    command = ["git", f"--git-dir={folder.parent}/repository", f"--work-tree={folder}", "-c", "core.autocrlf=false"]
    return subprocess.run([*command, *arguments], cwd=folder, input=stdin_text.encode(), capture_output=True)


def _write(folder: Path, tree: Tree) -> str:
    """Make this tree, and give back its name."""
    for each in folder.iterdir():
        shutil.rmtree(each) if each.is_dir() else each.unlink()
    for path, (text, executable) in tree.items():
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_bytes(text.encode())
        (folder / path).chmod(0o755 if executable else 0o644)
    _git(folder, "add", "-A", "-f")
    return _git(folder, "write-tree").strip()


def _read(folder: Path) -> Tree:
    files = [each for each in folder.rglob("*") if each.is_file()]
    return {
        str(each.relative_to(folder)): (each.read_bytes().decode(), bool(each.stat().st_mode & 0o100)) for each in files
    }


def _apply(patch: str, tree: Tree) -> Tree:
    patch_plan = plan_patch(patch, {path: text for path, (text, _) in tree.items()}.get)
    result = dict(tree)
    for path, text in patch_plan.texts.items():
        was = tree.get(patch_plan.old_paths.get(path, path), ("", False))
        result[path] = (text or "", patch_plan.executable.get(path, was[1]))
        if text is None:
            del result[path]
    return result
