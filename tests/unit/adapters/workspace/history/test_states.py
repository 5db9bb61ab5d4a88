"""The state of a path, as it is recorded and compared: never through a link, never opening what might act (S-01)."""

import os
import socket
from pathlib import Path

import pytest

from treadle.adapters.workspace.history.states import (
    Counting,
    FileContent,
    Folders,
    read_file_content,
    read_path_state,
    split_path,
)
from treadle.adapters.workspace.root import Root
from treadle.errors import OutsideRoot
from treadle.protocol.files import DiffStat, FileState, encode_path

EMPTY = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    (root / "d").mkdir(parents=True)
    (root / "d").chmod(0o750)
    (root / "file").write_bytes(b"")
    (root / "file").chmod(0o4711)
    (root / "link").symlink_to("file")
    (root / "dangling").symlink_to("no\nwhere")
    (root / "up").symlink_to("d")
    (root / "out").symlink_to("..")
    os.mkfifo(root / "fifo", 0o600)
    with socket.socket(socket.AF_UNIX) as unix_socket:
        unix_socket.bind(str(root / "socket"))
    return root


STATES = {
    "file": FileState("file", 0o4711, EMPTY, 0),
    "d": FileState("directory", 0o750),
    "link": FileState("link", target="file"),
    "dangling": FileState("link", target="no\nwhere"),
    "fifo": FileState("fifo", 0o600),
    "nothing": None,
    "nothing/below": None,
    "file/below": None,
}


@pytest.mark.parametrize("path", STATES)
def test_what_lies_there(project: Path, path: str) -> None:
    with Folders(str(project)) as folders:
        assert folders.read_state(path) == STATES[path]
        assert [other_path for other_path in STATES if folders.matches_state(path, STATES[other_path])] == [
            other_path for other_path in STATES if STATES[other_path] == STATES[path]
        ]


def test_a_socket_is_only_known_to_be_there(project: Path) -> None:
    state = read_path_state(Root(str(project)), "socket")
    assert state is not None
    assert state.kind == "other"


def test_names_that_are_no_text(project: Path) -> None:
    name = os.fsdecode(b"\xff\n" + b"x" * 253)
    (project / name).symlink_to(os.fsdecode(b"\xfe"))
    with Folders(str(project)) as folders:
        assert folders.read_state(encode_path(name)) == FileState("link", target=encode_path("\udcfe"))


def test_recorded_paths_go_through_no_link(project: Path) -> None:
    (project / "d" / "x").write_bytes(b"x")
    with Folders(str(project)) as folders:
        assert folders.read_state("d/x") is not None
        assert folders.read_state("up/x") is None
        assert folders.read_state("out/project") is None


def test_paths_of_callers_go_through_links_that_stay_inside(project: Path) -> None:
    (project / "d" / "x").write_bytes(b"x")
    root = Root(str(project))
    assert read_path_state(root, "up/x") == read_path_state(root, str(project / "d" / "x"))
    with pytest.raises(OutsideRoot):
        read_path_state(root, "out/project")


@pytest.mark.parametrize("path", ["", ".", "..", "a/../b", "/a", "a/", "a//b", "a\0b"])
def test_what_nobody_would_record_is_refused(path: str) -> None:
    with pytest.raises(OutsideRoot):
        split_path(path)


def test_folders_are_found_anew_after_they_were_replaced(project: Path) -> None:
    (project / "d" / "x").write_bytes(b"x")
    with Folders(str(project)) as folders:
        assert folders.read_state("d/x") is not None
        (project / "d").rename(project / "e")
        folders.forget()
        assert folders.read_state("d/x") is None
        assert folders.read_state("e/x") is not None


def test_no_descriptor_stays_open(project: Path) -> None:
    def count() -> int:
        return len(os.listdir("/proc/self/fd"))

    fd_count = count()
    for _ in range(3):
        with Folders(str(project)) as folders:
            for path in STATES:
                folders.read_state(path)
        read_path_state(Root(str(project)), "file")
    assert count() == fd_count


def test_a_very_deep_path(tmp_path: Path) -> None:
    """Longer than what the system takes in one piece."""
    names = ["n" * 200] * 25
    fd = os.open(tmp_path, os.O_RDONLY)
    for name in names:
        os.mkdir(name, dir_fd=fd)
        below = os.open(name, os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    os.close(os.open("file", os.O_CREAT | os.O_WRONLY, 0o600, dir_fd=fd))
    os.close(fd)
    with Folders(str(tmp_path)) as folders:
        assert folders.read_state("/".join([*names, "file"])) == FileState("file", 0o600, EMPTY, 0)


def test_where_a_path_leads(project: Path) -> None:
    root = Root(str(project))
    assert root.locate("up/new/deep/x").path == "d/new/deep/x"
    assert root.locate("up/new/deep/x").missing == ("d/new", "d/new/deep")
    assert root.locate("link").path == "file"
    assert root.locate("d/x").missing == ()
    assert root.locate("./d/../file").path == "file"
    with pytest.raises(OutsideRoot):
        root.locate("out/x")


def read_content(path: Path, data: bytes, size_seen: int | None = None) -> FileContent:
    """The content of a file that had another size when its status was read."""
    path.write_bytes(data if size_seen is None else data[:size_seen])
    status = os.stat(path)
    path.write_bytes(data)
    return read_file_content(-1, "", status, 0o644, lambda: os.open(path, os.O_RDONLY))


LARGE = b"".join(b"line %d\n" % number for number in range(40_000))


@pytest.mark.parametrize(
    ("old", "new", "size_seen", "expected"),
    [
        (b"the only copy\n", b"kept\n", 0, (1, 1)),
        (b"the only copy\n", b"kept\n", 2, (1, 1)),
        (b"the only copy\n", LARGE, None, (40_000, 1)),
        (b"line 7\n", LARGE, None, (0, 0)),
        (LARGE, LARGE + b"one more\n", None, (0, 0)),
        (LARGE, LARGE.upper(), None, (40_000, 40_000)),
        (LARGE, b"\0" * len(LARGE), None, (0, 40_000)),
        (b"\0" * 9, LARGE, None, (40_000, 0)),
    ],
)
def test_lines_of_overwritten_files_count_as_removed(
    old: bytes, new: bytes, size_seen: int | None, expected: tuple[int, int], tmp_path: Path
) -> None:
    """S-16, W-10: by these lines the policy finds files of which nothing is left, also while a command writes them."""
    old_content, new_content = read_content(tmp_path / "old", old), read_content(tmp_path / "new", new, size_seen)
    assert Counting().stat(old_content, new_content) == DiffStat(*expected)


def test_overwritten_files_beyond_the_most_that_are_compared_count_as_removed(tmp_path: Path) -> None:
    """S-16: changes of many ignored files before it do not hide that the only copy of a file is overwritten."""
    counting = Counting()
    old_content, new_content = read_content(tmp_path / "old", b"1\n2\n"), read_content(tmp_path / "new", b"1\n3\n")
    stats = [counting.stat(old_content, new_content) for _ in range(401)]
    assert set(stats[:400]) == {DiffStat(1, 1)}
    assert stats[400] == DiffStat(2, 2)
