"""A commit does not read again what it has just read, and still notices who touched it in between (W-02, W-08)."""

import errno
import os
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.unit.adapters.workspace.views import Views
from treadle.adapters.workspace.history import states
from treadle.adapters.workspace.history.snapshots import ProjectSnapshots
from treadle.adapters.workspace.history.states import FileContent, Folders, SeenFiles
from treadle.adapters.workspace.root import Root
from treadle.ports.snapshots import Effect
from treadle.protocol.files import FileState

_LIST = "system.posix_acl_access"


@pytest.fixture
def views(tmp_path: Path) -> Iterator[Views]:
    new_views = Views(tmp_path)
    yield new_views
    new_views.close()


@pytest.fixture
def snapshots(views: Views, tmp_path: Path) -> ProjectSnapshots:
    return ProjectSnapshots(Root(str(views.root)), tmp_path / "home")


def test_what_was_read_for_the_effect_is_kept_without_reading_it_again(
    views: Views, snapshots: ProjectSnapshots, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("edited", "mode"):
        (views.root / name).write_text("one\n")
    time.sleep(0.05)  # a file that has just changed is read again in any case
    view = views.run("echo two >> edited; chmod 755 mode")

    def look(*_: object) -> None:
        raise AssertionError("read again")

    with monkeypatch.context() as patch:
        patch.setattr(Folders, "read_state", look)
        patch.setattr(Folders, "matches_state", look)
        effect = snapshots.commit("c/1.0", str(view))
    assert (views.root / "edited").read_text() == "one\ntwo\n"
    edited = {file.path: file for file in effect.files}["edited"]
    assert edited.before is not None
    assert edited.after is not None
    assert snapshots.images.read(edited.before.digest) == b"one\n"
    assert snapshots.read_content(edited.after.digest) == b"one\ntwo\n"


@pytest.mark.parametrize("act", [lambda file: file.write_text("ONE\n"), lambda file: file.chmod(0o600), os.unlink])
def test_who_touches_a_file_after_it_was_read_is_noticed(
    views: Views, snapshots: ProjectSnapshots, act: Callable[[Path], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = views.root / "edited"
    file.write_text("one\n")
    (views.root / "other").write_text("one\n")
    view = views.run("echo two >> edited; echo two >> other")
    withhold_changes = ProjectSnapshots._withhold_changes

    def meanwhile(self: ProjectSnapshots, view: str, effect: Effect) -> Effect:
        act(file)
        return withhold_changes(self, view, effect)

    monkeypatch.setattr(ProjectSnapshots, "_withhold_changes", meanwhile)
    effect = snapshots.commit("c/1.0", str(view))
    assert [each.path for each in effect.conflicts] == ["edited"]
    assert (views.root / "other").read_text() == "one\n"
    assert not file.exists() or "two" not in file.read_text()


def save_by_renaming(file: Path) -> None:
    fresh = file.with_name(".fresh")
    fresh.write_text("ONE\n")
    fresh.rename(file)


# fault 31: the status of a file is read first, then its bytes
@pytest.mark.parametrize("command", ["echo two >> edited", "rm edited"])
@pytest.mark.parametrize("save", [save_by_renaming, lambda file: file.write_text("ONE\n")], ids=["renamed", "in place"])
def test_a_file_that_is_saved_while_the_effect_is_read_is_a_conflict(
    views: Views,
    snapshots: ProjectSnapshots,
    save: Callable[[Path], object],
    command: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = views.root / "edited"
    file.write_text("one\n")
    view = views.run(command)
    open_file = states.open_file

    def save_and_open(folder: int, name: str) -> int:
        monkeypatch.setattr(states, "open_file", open_file)
        save(file)
        return open_file(folder, name)

    monkeypatch.setattr(states, "open_file", save_and_open)
    effect = snapshots.commit("c/1.0", str(view))
    assert [each.path for each in effect.conflicts] == ["edited"]
    assert file.read_text() == "ONE\n"


def test_files_keep_their_access_control_list(views: Views, snapshots: ProjectSnapshots) -> None:
    entries = ((1, 6, -1), (2, 6, 1234), (4, 4, -1), (16, 6, -1), (32, 4, -1))
    access_list = struct.pack("<I", 2) + b"".join(struct.pack("<HHi", *entry) for entry in entries)
    for name in ("with", "without"):
        (views.root / name).write_text("one\n")
    try:
        os.setxattr(views.root / "with", _LIST, access_list)
    except OSError as error:
        pytest.skip(f"no such lists here: {error}")
    view = views.run("echo two >> with; echo two >> without")
    snapshots.commit("c/1.0", str(view))
    assert (views.root / "with").read_text() == (views.root / "without").read_text() == "one\ntwo\n"
    assert os.getxattr(views.root / "with", _LIST) == access_list
    with pytest.raises(OSError, match=os.strerror(errno.ENODATA)):
        os.getxattr(views.root / "without", _LIST)


@pytest.mark.parametrize(
    ("ctime_ns", "is_known"),
    [(10**18 + 1, True), (10**18, False), (1 << 62, False)],
    ids=["fine", "coarse", "just now"],
)
def test_only_a_time_that_would_tell_counts(ctime_ns: int, is_known: bool) -> None:
    status = os.stat_result((0o100644, 1, 1, 1, 0, 0, 1, 0, 0, 0), {"st_ctime_ns": ctime_ns, "st_mtime_ns": 1})
    old_file, new_file = (FileContent(FileState("file", 0o644, name, 1), data=b"x") for name in ("old", "new"))
    seen_files = SeenFiles()
    seen_files.note("a", status, old_file, new_file)
    assert (seen_files.get_old_bytes("a", old_file.state, status) == b"x") is is_known
    assert seen_files.get_old_bytes("a", new_file.state, status) is None
    assert seen_files.get_new_bytes("new") == b"x"
