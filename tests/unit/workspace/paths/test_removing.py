"""Removing, as patches need it: never through a link, never outside (S-01)."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from treadle.errors import OutsideRoot, ToolError
from treadle.workspace.root import Root

CHANGES: dict[str, Callable[[Root, str], object]] = {
    "remove": lambda root, path: root.remove(path),
    "remove_directory": lambda root, path: root.remove_directory(path),
    "inspect": lambda root, path: root.inspect(path),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_nothing_outside_is_changed(root: Root, project: Path, change: Callable[[Root, str], object]) -> None:
    (project / "out").symlink_to("../canary")
    (project / "abs").symlink_to(project.parent / "canary")
    for path in ("../canary/secret", "../canary", "out/secret", "out/new", "abs/secret", "/etc/passwd", "src/../../x"):
        with pytest.raises(OutsideRoot):
            change(root, path)
    assert (project / "src" / "a.txt").read_bytes() == b"inside\n"


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_the_root_itself_is_not_changed(root: Root, change: Callable[[Root, str], object]) -> None:
    if change is CHANGES["inspect"]:
        entry = root.inspect(".")
        assert entry is not None
        assert entry.kind == "directory"
    else:
        for path in (".", "src/.."):
            with pytest.raises(ToolError, match="project root"):
                change(root, path)


def test_a_link_is_removed_and_not_what_it_points_to(root: Root, project: Path) -> None:
    (project / "out").symlink_to("../canary/secret")
    (project / "dir").symlink_to("../canary")
    (project / "dangling").symlink_to("nowhere")
    for name in ("out", "dir", "dangling"):
        entry = root.inspect(name)
        assert entry is not None
        assert entry.kind == "link"
        root.remove(name)
        assert root.inspect(name) is None
    root.remove("src/a.txt")
    assert list((project / "src").iterdir()) == []
    os.mkfifo(project / "fifo")
    root.remove("fifo")
    with pytest.raises(ToolError, match="does not exist"):
        root.remove("fifo")
    with pytest.raises(ToolError, match="is a directory"):
        root.remove("src")


def test_directories_are_removed_when_empty(root: Root, project: Path) -> None:
    (project / "a/b/c").mkdir(parents=True)
    with pytest.raises(ToolError, match="not empty"):
        root.remove_directory("a/b")
    root.remove_directory("a/b/c")
    assert not (project / "a/b/c").exists()
    with pytest.raises(ToolError, match="not a directory"):
        root.remove_directory("src/a.txt")
    (project / "link").symlink_to("src")
    with pytest.raises(ToolError, match="not a directory"):
        root.remove_directory("link")


def test_what_an_entry_tells(root: Root, project: Path) -> None:
    file = project / "src" / "a.txt"
    os.link(file, project / "second")
    file.chmod(0o754)
    found, entry = file.stat(), root.inspect("src/a.txt")
    assert entry is not None
    assert (entry.kind, entry.size, entry.mode, entry.nlink) == ("file", 7, 0o754, 2)
    assert (entry.mtime_ns, entry.ctime_ns) == (found.st_mtime_ns, found.st_ctime_ns)
    assert (entry.inode, entry.device) == (found.st_ino, found.st_dev)
    for path in ("none", "none/deep"):
        assert root.inspect(path) is None
