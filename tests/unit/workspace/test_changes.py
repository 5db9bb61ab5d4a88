"""Removing, renaming, making and marking, as undo and patches need it: never through a link, never outside (S-01)."""

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from treadle.errors import OutsideRoot, ToolError
from treadle.workspace.paths.resolve import open_beneath
from treadle.workspace.paths.root import Root


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "canary").mkdir()
    (tmp_path / "canary" / "secret").write_bytes(b"outside")
    root = tmp_path / "project"
    (root / "src").mkdir(parents=True)
    (root / "src" / "a.txt").write_bytes(b"inside\n")
    return root


@pytest.fixture(params=["openat2", "walk"])
def root(project: Path, request: pytest.FixtureRequest):
    if request.param == "openat2" and open_beneath() is None:
        pytest.skip("the kernel has no openat2")
    yield Root(str(project), openat2=request.param == "openat2")
    canary = project.parent / "canary"
    assert [(each.name, each.read_bytes()) for each in canary.iterdir()] == [("secret", b"outside")]
    assert stat.S_IMODE(canary.stat().st_mode) != 0o711


CHANGES: dict[str, Callable[[Root, str], object]] = {
    "remove": lambda root, path: root.remove(path),
    "rename from": lambda root, path: root.rename(path, "src/new"),
    "rename to": lambda root, path: root.rename("src/a.txt", path),
    "make_directory": lambda root, path: root.make_directory(path),
    "remove_directory": lambda root, path: root.remove_directory(path),
    "read_link": lambda root, path: root.read_link(path),
    "make_link": lambda root, path: root.make_link(path, "src"),
    "chmod": lambda root, path: root.chmod(path, 0o711),
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
    elif change is CHANGES["make_directory"]:
        assert root.make_directory(".") is False
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


def test_renaming_moves_links_as_they_are_and_makes_parents(root: Root, project: Path) -> None:
    (project / "out").symlink_to("../canary/secret")
    root.rename("out", "deep/down/link")
    assert os.readlink(project / "deep/down/link") == "../canary/secret"
    root.rename("src", "lib")
    assert (project / "lib" / "a.txt").read_bytes() == b"inside\n"
    (project / "b").write_bytes(b"b")
    root.rename("b", "lib/a.txt")
    assert (project / "lib" / "a.txt").read_bytes() == b"b"
    with pytest.raises(ToolError, match="does not exist"):
        root.rename("none", "x")


def test_directories_are_made_with_their_parents_and_removed_when_empty(root: Root, project: Path) -> None:
    assert root.make_directory("a/b/c", 0o750) is True
    assert root.make_directory("a/b/c") is False
    assert stat.S_IMODE((project / "a/b/c").stat().st_mode) == 0o750
    with pytest.raises(ToolError, match="not empty"):
        root.remove_directory("a/b")
    root.remove_directory("a/b/c")
    assert not (project / "a/b/c").exists()
    with pytest.raises(ToolError, match="not a directory"):
        root.make_directory("src/a.txt")
    with pytest.raises(ToolError, match="not a directory"):
        root.remove_directory("src/a.txt")
    (project / "link").symlink_to("src")
    with pytest.raises(ToolError, match="not a directory"):
        root.remove_directory("link")


def test_links_may_point_anywhere_but_replace_nothing(root: Root, project: Path) -> None:
    for target in ("src/a.txt", "../canary/secret", "/etc/passwd", "nowhere"):
        name = f"links/{target.replace('/', '_')}"
        root.make_link(name, target)
        assert root.read_link(name) == target
        assert os.readlink(project / name) == target
    with pytest.raises(ToolError, match="exists already"):
        root.make_link("src/a.txt", "x")
    with pytest.raises(ToolError, match="not a symbolic link"):
        root.read_link("src/a.txt")
    for target in ("", "a\0b"):
        with pytest.raises(ToolError, match="cannot be a link"):
            root.make_link("x", target)


def test_modes_are_set_on_files_and_directories_only(root: Root, project: Path) -> None:
    (project / "src" / "a.txt").chmod(0)
    root.chmod("src/a.txt", 0o640)
    root.chmod("src", 0o700)
    assert stat.S_IMODE((project / "src" / "a.txt").stat().st_mode) == 0o640
    assert stat.S_IMODE((project / "src").stat().st_mode) == 0o700
    (project / "link").symlink_to("../canary")
    with pytest.raises(ToolError, match="symbolic link"):
        root.chmod("link", 0o711)


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
