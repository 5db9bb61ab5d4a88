"""Which bytes a set of changes would take away for good (S-16)."""

import subprocess
from pathlib import Path

import pytest

from treadle.adapters.workspace.history.repository_changes import find_unrecoverable_paths
from treadle.adapters.workspace.root import Root
from treadle.protocol.files import DiffStat, FileChange, FileState, make_file_change

OLD = FileState("file", 0o644, "old", 100)


def of(path: str, new_state: FileState | None, *, ignored: bool = False) -> FileChange:
    return make_file_change(path, OLD, new_state, DiffStat(), ignored=ignored)


def find_lost(root: Path, *files: FileChange, stored_digests: tuple[str, ...] = ()) -> tuple[str, ...]:
    return find_unrecoverable_paths(Root(root), files, lambda digest: digest in stored_digests, lambda: None)


@pytest.mark.parametrize(
    ("new_state", "is_lost"),
    [
        (None, True),
        (FileState("file", 0o644, "new", 0), True),
        (FileState("file", 0o644, "new", 9), True),
        (FileState("file", 0o644, "new", 10), False),
        (FileState("file", 0o600, "old", 100), False),
        (FileState("link", target="x"), True),
        (FileState("directory", 0o755), True),
    ],
)
def test_files_of_which_next_to_nothing_is_left(new_state: FileState | None, is_lost: bool, tmp_path: Path) -> None:
    assert find_lost(tmp_path, of("notes", new_state)) == (("notes",) if is_lost else ())


def test_what_is_left_elsewhere_is_not_lost(tmp_path: Path) -> None:
    move = make_file_change("there", None, OLD, DiffStat())
    assert find_lost(tmp_path, of("here", None), move) == ()
    assert find_lost(tmp_path, of("here", None), stored_digests=("old",)) == ()
    assert find_lost(tmp_path, of("build/x", None, ignored=True)) == ()
    assert find_lost(
        tmp_path, of("build/x", None, ignored=True), of(".gitignore", FileState("file", 0o644, "new", 90))
    ) == ("build/x",)


@pytest.mark.parametrize(("path", "ignored"), [("build/x", True), ("node_modules/x", False), (".git/x", False)])
def test_a_copy_that_a_later_command_removes_unasked_does_not_keep_a_file(
    path: str, ignored: bool, tmp_path: Path
) -> None:
    """S-16: a move into an ignored folder, and its removal there, would take the only copy in two steps."""
    move = make_file_change(path, None, OLD, DiffStat(), ignored=ignored)
    assert find_lost(tmp_path, of("here", None), move) == ("here",)


@pytest.mark.parametrize(
    ("old", "removed_lines", "is_lost"),
    [
        ("only one\n", 1, True),
        ("1234567", 1, False),
        ("no newline", 1, True),
        ("1\n" * 20, 19, True),
        ("1\n" * 20, 18, False),
        ("1\n", 0, False),
    ],
)
def test_a_file_of_which_no_line_is_left_is_lost(old: str, removed_lines: int, is_lost: bool, tmp_path: Path) -> None:
    """S-16: the new content may be as large as the old one."""
    (tmp_path / "notes").write_text(old)
    old_state = FileState("file", 0o644, "old", len(old))
    file = make_file_change("notes", old_state, FileState("file", 0o644, "new", 100), DiffStat(30, removed_lines))
    assert find_lost(tmp_path, file) == (("notes",) if is_lost else ())


def test_what_git_has_is_not_lost(tmp_path: Path) -> None:
    (tmp_path / "known").write_text("known\n")
    (tmp_path / "other").write_text("other\n")
    asked_ids: list[str] = []

    class Repository:
        def find_blobs(self, ids: list[str]) -> frozenset[str]:
            asked_ids.extend(ids)
            process = subprocess.run(["git", "hash-object", "known"], cwd=tmp_path, capture_output=True, text=True)
            return frozenset(ids) & {process.stdout.strip()}

    files = (of("known", None), of("other", None))
    lost_paths = find_unrecoverable_paths(Root(tmp_path), files, lambda _: False, Repository)  # type: ignore[arg-type]
    assert lost_paths == ("other",)
    assert asked_ids
