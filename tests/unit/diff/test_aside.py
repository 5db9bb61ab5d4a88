"""Caches are counted and named, not listed (W-04)."""

from msgspec.structs import replace

from tests.unit.diff.test_changes import change, file, folder
from treadle.diff.changes import JUDGED, format_changes, sort_out, sum_stats
from treadle.protocol.files import DiffStat


def test_caches_are_one_line_whatever_gitignore_says() -> None:  # W-04
    files = [
        change("a.py", file("x"), file("y"), 1, 1),
        change("__pycache__", None, folder()),
        change("__pycache__/a.pyc", None, file(), 4),
        change("tests/__pycache__/b.pyc", None, file(), ignored=True),
        change(".pytest_cache/v/lastfailed", None, file(), 2),
        change("web/node_modules/x/index.js", None, file(), 900),
        change("b.o", None, file(), 9, ignored=True),
    ]
    lines = format_changes(files, str)
    assert lines == ["M a.py +1 -1", "[4 files in .pytest_cache, __pycache__, node_modules]", "[1 ignored file]"]
    assert sum_stats(files) == DiffStat(1, 1)


def test_only_what_lies_in_such_a_folder_is_a_cache() -> None:
    files = [change("node_modules", None, file(), 1), change("src/target/a.c", None, file(), 1)]
    assert sort_out(files).reported_files == tuple(files)


def test_a_tag_makes_no_cache_and_a_tracked_file_lies_in_none() -> None:  # S-23
    files = [
        change("src/CACHEDIR.TAG", None, file(), 3),
        change("src/a.c", None, file(), 1),
        replace(change("node_modules/x.js", None, file(), 1), tracked=True),
        change("node_modules/y.js", None, file(), 1),
    ]
    expected_lines = ["A src/CACHEDIR.TAG +3", "A src/a.c +1", "A node_modules/x.js +1", "[1 file in node_modules]"]
    assert format_changes(files, str) == expected_lines


def test_who_allows_a_change_sees_what_lies_in_caches() -> None:  # S-08
    files = [change(".venv/bin/python", file("x"), file("y"), 1, 1), change("b.o", None, file(), ignored=True)]
    assert format_changes(files, str, aside=JUDGED) == ["M .venv/bin/python +1 -1", "[1 ignored file]"]


def test_many_names_are_cut() -> None:
    names = (".mypy_cache", ".nox", ".ruff_cache", ".tox", ".venv")
    assert sort_out([change(f"{name}/x", None, file()) for name in names]).counts == [
        "5 files in .mypy_cache, .nox, .ruff_cache, .tox …"
    ]
