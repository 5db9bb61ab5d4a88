"""Writing and removing, as patches need it: never outside (S-01)."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.writing import write
from treadle.adapters.workspace.root import Root
from treadle.errors import OutsideRoot, ToolError
from treadle.ports.workspace import FileStat

CHANGES: dict[str, Callable[[Root, str], object]] = {
    "remove": lambda root, path: write(root, path, None),
    "write": lambda root, path: write(root, path, b"x"),
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
            with pytest.raises(ToolError, match="directory"):
                change(root, path)


def test_a_file_is_removed_and_the_folder_stays(root: Root, project: Path) -> None:
    write(root, "src/a.txt", None)
    assert list((project / "src").iterdir()) == []


def test_what_an_entry_tells(root: Root, project: Path) -> None:
    file = project / "src" / "a.txt"
    file.chmod(0o754)
    assert root.inspect("src/a.txt") == FileStat("file", 7, 0o754)
    for path in ("none", "none/deep"):
        assert root.inspect(path) is None
