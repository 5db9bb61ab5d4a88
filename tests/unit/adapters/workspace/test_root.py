"""Paths stay inside the root, also with links on the way (S-01, fault 19)."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.writing import history, write
from treadle.adapters.workspace.root import Root
from treadle.base import file_system
from treadle.errors import OutsideRoot, ToolError
from treadle.ports.workspace import Child, Workspace, escape_name

SECRET = b"outside"


def test_it_is_a_workspace(root: Root) -> None:
    workspace: Workspace = root
    assert workspace.path == root.path


@pytest.mark.parametrize("path", ["src/a.txt", "./src//a.txt", "src/../src/a.txt"])
def test_ways_to_say_the_same_path(root: Root, path: str) -> None:
    assert root.read_bytes(path) == b"inside\n"
    assert root.to_relative(path) == "src/a.txt"


def test_an_absolute_path_inside_the_root_is_fine(root: Root, project: Path) -> None:
    assert root.read_bytes(str(project / "src" / "a.txt")) == b"inside\n"
    assert root.to_relative(str(project)) == "."


def test_an_absolute_path_through_a_linked_root_is_fine(project: Path, tmp_path: Path) -> None:
    (tmp_path / "alias").symlink_to(project)
    root = Root(str(tmp_path / "alias"))
    assert root.read_bytes(str(tmp_path / "alias" / "src" / "a.txt")) == b"inside\n"
    assert root.read_bytes(str(project / "src" / "a.txt")) == b"inside\n"


@pytest.mark.parametrize(
    "path",
    [
        "..",
        "../canary/secret",
        "src/../../canary/secret",
        "src/../../project/src/a.txt",
        "/etc/passwd",
        "/proc/self/root/etc/passwd",
        "//etc/passwd",
    ],
)
def test_paths_that_lead_outside_are_refused(root: Root, path: str) -> None:
    for use in (root.read_bytes, root.hash_file, root.stat, root.listdir, root.resolve_directory, root.to_relative):
        with pytest.raises(OutsideRoot):
            use(path)
    with pytest.raises(OutsideRoot):
        write(root, path, b"x")


def test_a_sibling_whose_name_begins_like_the_root_is_outside(project: Path) -> None:
    (project.parent / "project2").mkdir()
    with pytest.raises(OutsideRoot):
        Root(str(project)).stat(str(project.parent / "project2"))


def test_dots_in_a_name_are_legal(root: Root, project: Path) -> None:
    write(root, "foo..bar/...", b"x")
    assert (project / "foo..bar" / "...").read_bytes() == b"x"


@pytest.mark.parametrize("target", ["../canary/secret", "/etc/passwd", "src/../../canary/secret"])
def test_a_linked_file_outside_is_neither_read_nor_written(root: Root, project: Path, target: str) -> None:
    (project / "link").symlink_to(target)
    with pytest.raises(OutsideRoot):
        root.read_bytes("link")
    with pytest.raises(OutsideRoot):
        write(root, "link", b"x")
    assert (project / "link").is_symlink()


@pytest.mark.parametrize("target", ["../canary", "/tmp", "/"])
def test_a_linked_directory_outside_is_not_entered(root: Root, project: Path, target: str) -> None:
    (project / "dir").symlink_to(target)
    for use in (root.read_bytes, root.stat, root.hash_file):
        with pytest.raises(OutsideRoot):
            use("dir/secret")
    with pytest.raises(OutsideRoot):
        write(root, "dir/new", b"x")
    with pytest.raises(OutsideRoot):
        root.listdir("dir")


def test_links_that_stay_inside_are_followed_and_kept(root: Root, project: Path) -> None:
    (project / "rel").symlink_to("src/a.txt")
    (project / "abs").symlink_to(project / "src")
    (project / "src" / "up").symlink_to("../src")
    assert root.read_bytes("rel") == b"inside\n"
    assert root.read_bytes("abs/a.txt") == b"inside\n"
    assert root.read_bytes("src/up/up/a.txt") == b"inside\n"
    assert root.resolve_directory("abs") == str(project / "src")
    write(root, "rel", b"new")
    assert (project / "rel").is_symlink()
    assert (project / "src" / "a.txt").read_bytes() == b"new"


def test_dot_dot_after_a_link_means_the_parent_of_its_target(root: Root, project: Path) -> None:
    (project / "src" / "deep").mkdir()
    (project / "jump").symlink_to("src/deep")
    assert root.read_bytes("jump/../a.txt") == b"inside\n"


def test_dangling_links(root: Root, project: Path) -> None:
    (project / "dangling").symlink_to("nowhere")
    assert root.stat("dangling") is None
    assert root.hash_file("dangling") is None
    with pytest.raises(ToolError, match="does not exist"):
        root.read_bytes("dangling")
    (project / "out").symlink_to("../canary/new")
    with pytest.raises(OutsideRoot):
        write(root, "out", b"x")


def test_a_circle_of_links_ends(root: Root, project: Path) -> None:
    (project / "a").symlink_to("b")
    (project / "b").symlink_to("a")
    with pytest.raises(ToolError, match="too many"):
        root.read_bytes("a")


@pytest.mark.timeout(120)
def test_special_files_are_refused_without_hanging(root: Root, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(project / "fifo")
    monkeypatch.chdir(project)  # a socket's address is short
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind("socket")
        for name in ("fifo", "socket"):
            with pytest.raises(ToolError, match="not a regular file"):
                root.read_bytes(name)
            with pytest.raises(ToolError, match="not a regular file"):
                write(root, name, b"x")
    assert Child("fifo", "other") in root.listdir(".")


@pytest.mark.parametrize("name", ["new\nline", "esc\x1b[31m", "ü", "u\u0308", "x" * 255, "-rf", " ", "a\\b"])
def test_odd_names_work_and_are_shown_inert(root: Root, project: Path, name: str) -> None:
    write(root, name, b"x")
    assert (project / name).read_bytes() == b"x"
    assert name in {child.name for child in root.listdir(".")}
    assert escape_name(name).isprintable()


@pytest.mark.parametrize(("path", "words"), [("x" * 256, "too long"), ("a\0b", "NUL"), ("src/a.txt/b", "not a dir")])
def test_impossible_paths_are_explained(root: Root, path: str, words: str) -> None:
    with pytest.raises(ToolError, match=words):
        write(root, path, b"x")
    with pytest.raises(ToolError, match=words):
        root.read_bytes(path)


def test_a_name_that_is_not_utf8_is_listed(root: Root, project: Path) -> None:
    (Path(os.fsdecode(os.fsencode(project) + b"/bad\xff"))).write_bytes(b"")
    names = [escape_name(child.name) for child in root.listdir(".")]
    assert "bad\\udcff" in names


def test_writing_keeps_the_mode_and_makes_parents(root: Root, project: Path) -> None:  # T-02
    script = project / "run.sh"
    script.write_bytes(b"old")
    script.chmod(0o751)
    write(root, "run.sh", b"new")
    assert script.read_bytes() == b"new"
    assert script.stat().st_mode & 0o7777 == 0o751
    write(root, "a/b/c", b"x", 0o600)
    assert (project / "a/b/c").stat().st_mode & 0o7777 == 0o600


def test_a_new_file_has_the_mode_of_the_umask(root: Root, project: Path) -> None:
    old_umask = os.umask(0o027)
    try:
        write(root, "new", b"x")
    finally:
        os.umask(old_umask)
    assert (project / "new").stat().st_mode & 0o7777 == 0o640


NOBODY = 65534


@contextmanager
def drop_privileges() -> Iterator[None]:
    """Root may write anything: run as another user for once."""
    if os.geteuid():
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


def test_a_file_that_its_owner_made_read_only_is_not_replaced() -> None:
    with TemporaryDirectory() as folder:  # pytest's own folder is closed to others
        Path(folder).chmod(0o755)
        file = Path(folder, "a.txt")
        file.write_bytes(b"old")
        file.chmod(0o444)
        if not os.geteuid():
            os.chown(folder, NOBODY, -1)
            os.chown(file, NOBODY, -1)
        with drop_privileges(), pytest.raises(ToolError, match="read-only"):
            write(Root(folder), "a.txt", b"new")
        assert file.read_bytes() == b"old"


def test_a_hard_link_to_a_file_outside_is_replaced_not_written_through(root: Root, project: Path) -> None:
    os.link(project.parent / "canary" / "secret", project / "hard")
    write(root, "hard", b"mine")
    assert (project / "hard").read_bytes() == b"mine"


def test_a_file_outside_may_be_read_by_a_hard_link(root: Root, project: Path) -> None:
    os.link(project.parent / "canary" / "secret", project / "hard")
    assert root.read_bytes("hard") == SECRET


def test_names_are_taken_as_they_are(root: Root, project: Path) -> None:
    """Neither case nor the form of an accent is folded: names that the file system tells apart stay apart."""
    for name in ("Readme", "README", "\u00fc", "u\u0308"):
        write(root, name, name.encode())
    for name in ("Readme", "README", "\u00fc", "u\u0308"):
        assert root.read_bytes(name) == name.encode()
    assert root.stat("readme") is None


def test_directories_are_no_files(root: Root) -> None:
    for path in ("src", "."):
        with pytest.raises(ToolError, match="directory"):
            root.read_bytes(path)
        with pytest.raises(ToolError, match="directory"):
            write(root, path, b"x")
    with pytest.raises(ToolError, match="not a directory"):
        root.listdir("src/a.txt")


def test_a_write_that_dies_leaves_the_old_file_and_can_be_swept(root: Root, project: Path) -> None:  # fault 3
    death = (
        "import os, sys; from treadle.base import file_system; from treadle.adapters.workspace.root import Root\n"
        "from tests.writing import write\n"
        "file_system.install_fault_hook(lambda name: os._exit(9) if name == 'transaction.ready' else None)\n"
        "write(Root(sys.argv[1]), 'src/a.txt', b'half', name='c/1.0')"
    )
    stage = project.with_name("project.home") / "snapshots" / "stage"
    assert subprocess.run([sys.executable, "-c", death, str(project)], check=False).returncode == 9
    assert (project / "src" / "a.txt").read_bytes() == b"inside\n"
    assert len(list(stage.iterdir())) == 1
    assert not history(root).is_unfinished("c/1.0", ())
    assert list(stage.iterdir()) == []
    assert [p.name for p in (project / "src").iterdir()] == ["a.txt"]


def test_a_write_that_fails_leaves_nothing_beside_the_file(root: Root, project: Path) -> None:
    def fail(name: str) -> None:
        if name == "transaction.ready":
            raise OSError(28, "No space left on device")

    file_system.install_fault_hook(fail)
    try:
        with pytest.raises(ToolError, match="No space left"):
            write(root, "src/a.txt", b"new")
    finally:
        file_system.install_fault_hook(None)
    assert [p.name for p in (project / "src").iterdir()] == ["a.txt"]
    assert root.read_bytes("src/a.txt") == b"inside\n"


def test_limits_and_missing_files(root: Root) -> None:
    with pytest.raises(ToolError, match="at most 3"):
        root.read_bytes("src/a.txt", 3)
    with pytest.raises(ToolError, match="does not exist"):
        root.read_bytes("src/none")
    for path in ("none", "none/deep"):
        assert root.stat(path) is None
        assert root.hash_file(path) is None
    with pytest.raises(ToolError, match="not a directory"):
        Root("/does/not/exist")
    with pytest.raises(ToolError, match="no project root"):
        Root("")


def test_no_descriptor_is_left_open(root: Root, project: Path) -> None:
    (project / "out").symlink_to("/etc")
    fd_count = len(os.listdir("/dev/fd"))
    for path in ("src/a.txt", "src/../src/a.txt", "none", "../x", "out/passwd", "src"):
        for use in (root.read_bytes, root.stat, root.listdir):
            with suppress(ToolError):
                use(path)
    assert len(os.listdir("/dev/fd")) == fd_count
