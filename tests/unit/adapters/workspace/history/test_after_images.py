"""The content that a chat left is remembered if it is small text, and is never a reason to fail."""

import os
from pathlib import Path

import pytest

from tests.trees import measure_size
from treadle.adapters.workspace.history.content_store import open_after_images
from treadle.adapters.workspace.history.snapshots import remember
from treadle.adapters.workspace.history.states import read_path_state
from treadle.adapters.workspace.root import Root
from treadle.errors import NotFound, ToolError
from treadle.protocol.files import DiffStat, FileChange, FileState, make_file_change


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "project").mkdir()
    return tmp_path / "project"


def create_file(project: Path, path: str, data: bytes, **more: bool) -> FileChange:
    (project / path).parent.mkdir(parents=True, exist_ok=True)
    (project / path).write_bytes(data)
    return make_file_change(path, None, read_path_state(Root(str(project)), path), DiffStat(), **more)


def digest(change: FileChange) -> str:
    assert change.after is not None
    return change.after.digest


def test_texts_are_remembered_until_they_are_swept(tmp_path: Path, project: Path) -> None:
    store = open_after_images(tmp_path)
    change = create_file(project, "f", b"text\n")
    for _ in range(2):
        remember(Root(str(project)), store, [change])
    assert store.read(digest(change)) == b"text\n"
    assert measure_size(store) == 5
    assert store.sweep((), 3600).size == 0
    assert store.sweep((), -1).size == 5
    with pytest.raises(NotFound):
        store.read(digest(change))


def test_what_is_no_small_text_or_nobodys_work_is_not(tmp_path: Path, project: Path) -> None:
    store = open_after_images(tmp_path)
    changes = [
        create_file(project, "binary", b"\0"),
        create_file(project, "large", b"x" * ((1 << 20) + 1)),
        create_file(project, "ignored", b"i\n", ignored=True),
        create_file(project, ".git/config", b"c\n"),
        make_file_change("gone", FileState("file", 0o644, "a" * 64, 1), None, DiffStat()),
        make_file_change("never", None, FileState("file", 0o644, "a" * 64, 1), DiffStat()),
    ]
    stale = create_file(project, "changed", b"was\n")
    (project / "changed").write_bytes(b"is!\n")
    remember(Root(str(project)), store, [*changes, stale])
    assert measure_size(store) == 0


def test_a_damaged_one_is_none(tmp_path: Path, project: Path) -> None:
    store = open_after_images(tmp_path)
    change = create_file(project, "f", b"text\n")
    remember(Root(str(project)), store, [change])
    (tmp_path / "left" / digest(change)[:2] / digest(change)).write_bytes(b"tex")
    with pytest.raises(ToolError):
        store.read(digest(change))


def test_it_never_fails(tmp_path: Path, project: Path) -> None:
    """Fault 13."""
    (tmp_path / "file").write_text("")
    change = create_file(project, "f", b"text\n")
    remember(Root(str(project)), open_after_images(tmp_path / "file"), [change])
    (tmp_path / "nowhere").mkdir()
    missing_root = Root(str(tmp_path / "nowhere"))
    (tmp_path / "nowhere").rmdir()
    remember(missing_root, open_after_images(tmp_path), [change])
    os.symlink("/etc/passwd", project / "link")
    remember(
        Root(str(project)), open_after_images(tmp_path), [make_file_change("link", None, change.after, DiffStat())]
    )
