"""Changes in words: a line a file, bounded, with what is only counted in numbers (W-04)."""

from treadle.diff.changes import format_change, format_changes, sum_stats
from treadle.protocol.files import DiffStat, FileChange, FileState, StateKind, make_file_change


def file(digest: str = "", mode: int = 0o644, size: int = 1, kind: StateKind = "file") -> FileState:
    return FileState(kind, mode, digest, size)


def folder(mode: int = 0o755) -> FileState:
    return FileState("directory", mode)


def change(
    path: str,
    old_state: FileState | None,
    new_state: FileState | None,
    added_lines: int = 0,
    removed_lines: int = 0,
    *,
    ignored: bool = False,
) -> FileChange:
    return make_file_change(path, old_state, new_state, DiffStat(added_lines, removed_lines), ignored=ignored)


def test_one_line() -> None:
    lines = {
        "A a +3": change("a", None, file(), 3),
        "D a -2": change("a", file(), None, 0, 2),
        "M a +1,000 -1": change("a", file("x"), file("y"), 1000, 1),
        "M a (mode 644 to 755)": change("a", file(), file(mode=0o755)),
        "M a (1 to 2 bytes)": change("a", file("x"), file("y", size=2)),
        "M a (1 to 2 bytes) (mode 644 to 600)": change("a", file("x"), file("y", 0o600, 2)),
        "A a/": change("a", None, folder()),
        "M a/ (mode 755 to 700)": change("a", folder(), folder(0o700)),
        "A a (link)": change("a", None, FileState("link", target="b")),
        "M a (link)": change("a", FileState("link", target="b"), FileState("link", target="c")),
        "M a (file to link)": change("a", file(), FileState("link", target="b")),
        "M a/ (file to folder)": change("a", file(), folder()),
        "A a (FIFO)": change("a", None, FileState("fifo", 0o644)),
    }
    for line, each in lines.items():
        assert format_change(each, str) == line


def test_folders_with_files_in_them_are_told_by_their_files() -> None:
    changes = [change("d", None, folder()), change("d/e", None, folder()), change("d/f", None, file(), 1)]
    assert format_changes(changes, str) == ["A d/e/", "A d/f +1"]


def test_a_removed_folder_is_one_line_if_much_was_in_it() -> None:
    removals = [change("d", folder(), None), *(change(f"d/{number}", file(), None, 0, 2) for number in range(6))]
    assert format_changes(removals, str) == ["D d/ (6 files) -12"]
    assert len(format_changes(removals[:4], str)) == 3
    replaced = [*removals, change("d/new", None, file(), 1)]
    assert len(format_changes(replaced, str)) == 7


def test_what_is_only_counted() -> None:
    files = [
        change(".git/index", file("x"), file("y"), 5),
        change("b.o", None, file(), 9, ignored=True),
        change("build", None, folder(), ignored=True),
        change("a", None, file(), 1),
    ]
    assert format_changes(files, str) == ["A a +1", "[.git: 1 file]", "[1 ignored file]"]
    assert sum_stats(files) == DiffStat(1, 0)


def test_at_most_so_many_lines() -> None:
    files = [change(f"f{number}", None, file(), 1) for number in range(10)]
    assert format_changes(files, str, 3) == ["A f0 +1", "A f1 +1", "A f2 +1", "[7 more files +7]"]
