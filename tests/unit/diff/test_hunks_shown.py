"""A change as people look at it: true counts, hunks, and words for what no line shows (W-04)."""

import pytest

from treadle.diff.changes import merge_changes
from treadle.diff.diff import build_file_diff
from treadle.protocol.files import DiffStat, FileChange, FileState, make_file_change


def file(digest: str, mode: int = 0o644, size: int = 5) -> FileState:
    return FileState("file", mode, digest, size)


FOLDER, LINK, FIFO = FileState("directory", 0o755), FileState("link", target="there"), FileState("fifo", 0o600)


@pytest.mark.parametrize(
    ("old_state", "new_state", "notes"),
    [
        (None, FOLDER, ("new folder",)),
        (FOLDER, None, ("folder removed",)),
        (None, LINK, ("new link to there",)),
        (LINK, FileState("link", target="here"), ("link to there, now link to here",)),
        (FIFO, None, ("FIFO removed",)),
        (file("a"), file("a", 0o755), ("mode 644, now 755",)),
        (FOLDER, FileState("directory", 0o700), ("mode 755, now 700",)),
        (None, file(""), ()),
    ],
)
def test_what_no_line_shows_is_said(
    old_state: FileState | None, new_state: FileState | None, notes: tuple[str, ...]
) -> None:
    file_diff = build_file_diff(make_file_change("f", old_state, new_state, DiffStat()), (b"", b""))
    assert (file_diff.notes, file_diff.hunks) == (notes, ())


def test_lines_are_counted_and_numbered() -> None:
    change = make_file_change("f", file("a"), file("b", 0o600), DiffStat(99, 99))
    file_diff = build_file_diff(change, (b"one\ntwo\n", b"one\n2\n3\n"))
    assert (file_diff.change.added, file_diff.change.removed) == (2, 1)
    assert file_diff.notes == ("mode 644, now 600",)
    assert [hunk.number for hunk in file_diff.hunks] == [1]


def test_another_kind_of_thing_has_lines_if_one_side_has() -> None:
    file_diff = build_file_diff(make_file_change("f", LINK, file("b"), DiffStat()), (None, b"x\n"))
    assert file_diff.notes == ("link to there, now file", "no lines to show (0 bytes, now 5)")


def test_what_is_no_text_has_its_size() -> None:
    file_diff = build_file_diff(
        make_file_change("f", file("a", size=1_200), file("b", size=7), DiffStat()), (None, b"x")
    )
    assert file_diff.notes == ("no lines to show (1,200 bytes, now 7)",)


def test_changes_of_a_run_are_added_up_and_cancel_each_other_out() -> None:
    first = make_file_change("f", file("a"), file("b"), DiffStat(1, 2))
    second = make_file_change("f", file("b"), file("c"), DiffStat(3, 4))
    back = make_file_change("f", file("c"), file("a"), DiffStat(1, 1))
    creation, removal = (
        make_file_change("g", None, file("a"), DiffStat(1)),
        make_file_change("g", file("a"), None, DiffStat(0, 1)),
    )
    changes = merge_changes(merge_changes({}, [first, creation]), [second])
    assert changes["f"] == make_file_change("f", file("a"), file("c"), DiffStat(4, 6))
    assert merge_changes(changes, [back, removal]) == {}
    old = FileChange("h", "modified", 1, 1)
    assert merge_changes({"h": old}, [old])["h"] == FileChange("h", "modified", 2, 2)
