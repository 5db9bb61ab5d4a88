"""A bound root stays one folder, even if its path leads to another one (S-01)."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.writing import history
from treadle.adapters.workspace.history.journal import Journal, Journals
from treadle.adapters.workspace.history.snapshots import ProjectSnapshots
from treadle.adapters.workspace.history.walk import Walk
from treadle.adapters.workspace.paths.resolve import identify, locate
from treadle.adapters.workspace.root import Root
from treadle.errors import RootChanged
from treadle.ports.workspace import Query
from treadle.protocol.files import FileChange

USES: list[Callable[[Root], object]] = [
    lambda root: root.read_bytes("a"),
    lambda root: root.stat("a"),
    lambda root: root.inspect("a"),
    lambda root: root.locate("a"),
    lambda root: root.resolve_directory("."),
    lambda root: root.listdir("."),
    lambda root: root.hash_file("a"),
    lambda root: root.locate("a", write=True),
    lambda root: history(root).read_state("a"),
    lambda root: history(root).change("c/1.0", (FileChange("a", "deleted"),), {}),
    lambda root: root.find("*"),
    lambda root: root.search(Query("x")),
    lambda root: Walk(None, lambda _fd: "", keep=False).visit_root(root),
    lambda root: Root(root.path, root.bound),
]


@pytest.mark.parametrize("openat2", [True, False])
@pytest.mark.parametrize("swap", ["link", "folder", "file"])
def test_no_use_of_a_root_reaches_what_took_its_place(tmp_path: Path, swap: str, openat2: bool) -> None:
    project, other_folder = tmp_path / "project", tmp_path / "other"
    for folder in (project, other_folder):
        folder.mkdir()
        (folder / "a").write_text("x\n")
    root = Root(str(project), identify(str(project)), openat2=openat2)
    assert root.read_bytes("a") == b"x\n"
    project.rename(tmp_path / "aside")
    if swap == "link":
        project.symlink_to(other_folder)
    elif swap == "folder":
        os.rename(other_folder, project)
    else:
        project.write_text("")
    for use in USES if swap != "file" else USES[:-1]:
        with pytest.raises(RootChanged):
            use(root)
    if swap != "file":
        with pytest.raises(RootChanged) as refused:  # a new process resolves the link anew, and does not tell where to
            Root(str(project), root.bound)
        assert str(project) in str(refused.value)
        assert str(other_folder) not in str(refused.value)


def test_a_root_that_comes_back_is_the_same(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    root = Root(str(project), identify(str(project)))
    project.rename(tmp_path / "aside")
    project.mkdir()
    with pytest.raises(RootChanged):
        root.listdir(".")
    project.rmdir()
    (tmp_path / "aside").rename(project)
    assert root.listdir(".") == []


def test_where_a_path_leads(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "link").symlink_to("project")
    assert locate(str(tmp_path / "link")) == locate(str(tmp_path / "project"))
    assert locate(str(tmp_path / "link")) == (str(tmp_path / "project"), identify(str(tmp_path / "project")))
    assert locate(str(tmp_path / "missing")) is None
    assert identify("nul\0") == ""
    assert identify(str(tmp_path)) != identify(str(tmp_path / "project"))


def test_changes_that_were_begun_are_completed_in_their_own_folder_only(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    root_id = identify(str(project))
    journals = Journals(tmp_path / "home" / "snapshots" / "journals")
    journals.decide(Journal("c/u", str(project), "restore", bound=root_id))
    project.rename(tmp_path / "aside")
    project.mkdir()
    [journal] = journals.list_unfinished()
    assert journal.bound == root_id
    with pytest.raises(RootChanged):
        ProjectSnapshots(Root(journal.root, journal.bound), tmp_path / "home")
