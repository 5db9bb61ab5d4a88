"""The order of calls decides what survives a power cut: the bytes of a file are synced before it gets its name, and
the folder after that (T-02, W-01, W-08). A name whose bytes were never synced is an empty file after the cut."""

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.unit.adapters.workspace.trees import Bench, Node, build
from tests.writing import history, write
from treadle.adapters.tools.builtin.file_tool import build_change, compute_sha256, list_file_changes, plan_changes
from treadle.adapters.workspace.history import staging
from treadle.adapters.workspace.history.journal import Journal, Journals
from treadle.adapters.workspace.history.snapshots import ProjectSnapshots
from treadle.adapters.workspace.paths import entries
from treadle.adapters.workspace.root import Root
from treadle.base.home_file import HomeFile

Inode = tuple[int, int]


class Calls:
    """The requests to the disk, in order: `sync` of a file or folder, and `name` for a file in a folder."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, Inode, Inode, str]] = []

    def problems(self) -> list[str]:
        messages = []
        for place, (kind, file, folder, name) in enumerate(self.seen):
            if kind != "name" or "/left/" in name:  # a cache, whose bytes are verified when they are read
                continue
            if not any(call[:2] == ("sync", file) for call in self.seen[: self._by(place)]):
                messages.append(f"{name} got its name before its bytes were synced")
            cache = "/trees/" in name  # whose name may be lost
            if not cache and not any(call[:2] == ("sync", folder) for call in self.seen[place:]):
                messages.append(f"the folder of {name} was not synced after it got its name")
        return messages

    def _by(self, place: int) -> int:
        """By when the bytes of a name are synced: of an old file that is kept itself, before the change is made."""
        later = (at for at, call in enumerate(self.seen) if at > place and call[3] and "/objects/" not in call[3])
        return next(later, len(self.seen)) if "/objects/" in self.seen[place][3] else place

    @property
    def names(self) -> list[str]:
        return [name for kind, _, _, name in self.seen if kind == "name"]


def _inode(status: os.stat_result) -> Inode:
    return status.st_dev, status.st_ino


@contextmanager
def watch_calls() -> Iterator[Calls]:
    """Every call goes through to the real one, and is written down."""
    calls = Calls()
    plain: dict[str, Callable[..., Any]] = {name: getattr(os, name) for name in ("fsync", "rename", "replace", "link")}

    def fsync(fd: int) -> None:
        calls.seen.append(("sync", _inode(os.fstat(fd)), (0, 0), ""))
        plain["fsync"](fd)

    def naming(call_name: str) -> Callable[..., None]:
        def name(source: Any, goal: Any, **at: Any) -> None:
            plain[call_name](source, goal, **at)
            note_name(at.get("dst_dir_fd"), goal)

        return name

    def note_name(fd: int | None, goal: Any) -> None:
        status = os.stat(goal, dir_fd=fd, follow_symlinks=False)
        folder = os.stat(os.path.dirname(goal) or ".", dir_fd=fd)
        if stat.S_ISREG(status.st_mode):
            calls.seen.append(("name", _inode(status), _inode(folder), os.fsdecode(goal)))

    def exchange_entries(source: int, name: str, folder: int, goal: str) -> bool:
        if is_exchanged := entries.exchange_entries(source, name, folder, goal):
            note_name(folder, goal)
        return is_exchanged

    patched = {"fsync": fsync, **{call_name: naming(call_name) for call_name in ("rename", "replace", "link")}}
    for name, call in patched.items():
        setattr(os, name, call)
    staging.exchange_entries = exchange_entries
    try:
        yield calls
    finally:
        staging.exchange_entries = entries.exchange_entries
        for name, call in plain.items():
            setattr(os, name, call)


def write_new_file(folder: Path) -> None:
    write(Root(str(folder)), "new.txt", b"new")


def overwritten(folder: Path) -> None:
    (folder / "old.txt").write_text("old")
    write(Root(str(folder)), "old.txt", b"new")


def decide_journal(folder: Path) -> None:
    Journals(folder / "journals").decide(Journal("c_1/1.0", str(folder), "commit"))


def apply_patch(folder: Path) -> None:
    (folder / "old.txt").write_text("old")
    root = Root(str(folder))
    planned = plan_changes(
        root,
        [build_change("old.txt", b"old", b"new", pre=compute_sha256(b"old")), build_change("b", None, b"b", pre=None)],
    )
    history(root).change("c_1/1.0", list_file_changes(planned), {compute_sha256(data): data for data in (b"new", b"b")})


def capture_project(folder: Path) -> None:
    (folder / "old.txt").write_text("old")
    ProjectSnapshots(Root(str(folder)), folder.parent / "home").capture("c_1/1.0")


class Content(msgspec.Struct, frozen=True):
    word: str = ""


def set_down(folder: Path) -> None:
    HomeFile(folder / "rules.json", Content).change(lambda _old: Content("new"))


@pytest.mark.parametrize(
    "step",
    [write_new_file, overwritten, decide_journal, apply_patch, capture_project, set_down],
    ids=lambda each: each.__name__,
)
def test_bytes_are_synced_before_a_file_gets_its_name_and_its_folder_after_that(
    step: Callable[[Path], None], tmp_path: Path
) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    with watch_calls() as calls:
        step(folder)
    assert calls.names, "nothing was written"
    assert calls.problems() == []


def test_a_set_of_changes_is_synced_before_it_is_decided_and_made(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    build(bench.project, {b"edited": Node("file", 0o644, b"old")})
    build(bench.goal, {b"edited": Node("file", 0o644, b"new"), b"made": Node("file", 0o600, b"made")})
    with watch_calls() as calls:
        bench.commit()
    file_names = [name for name in calls.names if name in ("edited", "made")]
    (journal,) = [place for place, call in enumerate(calls.seen) if call[3].endswith(".json")]
    assert file_names == ["edited", "made"]
    for kind, file, folder, name in calls.seen[journal:]:
        if kind == "name" and name in file_names:
            synced = [place for place, call in enumerate(calls.seen) if call[:2] == ("sync", file)]
            assert synced, f"{name} was never synced"
            assert synced[0] < journal, f"{name} was synced after it was decided"
            assert ("sync", folder) in [call[:2] for call in calls.seen[journal:]]
