"""What helps to write: history and the names of files."""

import subprocess
from pathlib import Path

from treadle.adapters.workspace.file_names import choose_best_names, list_file_names, read_branch
from treadle.frontends.tui.composer import History
from treadle.frontends.tui.desktop import find_picture


def test_history_goes_back_and_forth_and_is_there_the_next_time(tmp_path: Path) -> None:
    first = History(tmp_path)
    first.add("one")
    first.add("two\nlines")
    first.add("two\nlines")
    second = History(tmp_path)
    assert second.recall_previous("a draft") == "two\nlines"
    assert second.recall_previous("two\nlines") == "one"
    assert second.recall_previous("one") is None
    assert second.recall_next() == "two\nlines"
    assert second.recall_next() == "a draft"
    assert second.recall_next() is None
    assert (tmp_path / "history.jsonl").stat().st_mode & 0o777 == 0o600


def test_a_damaged_history_costs_only_itself(tmp_path: Path) -> None:
    (tmp_path / "history.jsonl").write_bytes(b'\xff\xfe\n"ok"\n{')
    assert History(tmp_path).recall_previous("") is None
    assert History(tmp_path / "nowhere").recall_previous("") is None


def test_names_are_those_that_git_knows_or_would(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / "src").mkdir()
    for name in ("src/main.py", "notes.txt", "secret.log"):
        (tmp_path / name).write_text("x")
    (tmp_path / ".gitignore").write_text("*.log\n")
    assert set(list_file_names(str(tmp_path))) == {"src/main.py", "notes.txt", ".gitignore"}


def test_without_git_the_tree_is_walked(tmp_path: Path) -> None:
    (tmp_path / "node_modules").mkdir()
    (tmp_path / "node_modules" / "x.js").write_text("x")
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b.py").write_text("x")
    assert list_file_names(str(tmp_path)) == ["a/b.py"]


def test_the_best_name_is_the_one_that_begins_so() -> None:
    names = ["src/deep/remain.py", "src/main.py", "docs/maintenance.md", "m/a/i/n.txt", "other.py"]
    assert choose_best_names(names, "main")[:3] == ["src/main.py", "docs/maintenance.md", "src/deep/remain.py"]
    assert choose_best_names(names, "srcmn") == ["src/main.py", "src/deep/remain.py"]
    assert choose_best_names(names, "zzz") == []
    many = [f"folder{number % 100}/file_{number}.py" for number in range(50_000)]
    assert choose_best_names(many, "file_49999") == ["folder99/file_49999.py"]


def test_a_picture_is_known_by_its_path(tmp_path: Path) -> None:
    picture = tmp_path / "a b.png"
    picture.write_bytes(b"x")
    assert find_picture(f"'{picture}'\n") == str(picture)
    assert find_picture(str(tmp_path / "none.png")) == ""
    assert find_picture("some words") == ""


def test_the_branch_of_a_project_and_of_a_worktree(tmp_path: Path) -> None:
    assert read_branch(str(tmp_path)) == ""
    subprocess.run(["git", "init", "-q", "-b", "feature/x", str(tmp_path / "main")], check=True)
    assert read_branch(str(tmp_path / "main")) == "feature/x"
    (tmp_path / "main" / ".git" / "HEAD").write_text("0123456789abcdef\n")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / ".git").write_text("gitdir: ../main/.git\n")
    assert read_branch(str(tmp_path / "other")) == "01234567"
