"""Changes of single files are made only where the file is still what it was when they were thought out, to the very
moment they happen (W-07, fault 21)."""

import hashlib
import os
from pathlib import Path

import pytest

from tests.writing import write
from treadle.adapters.workspace.root import Root
from treadle.base import file_system
from treadle.errors import Conflict, ToolError


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "project").mkdir()
    return tmp_path / "project"


@pytest.fixture
def root(folder: Path) -> Root:
    return Root(str(folder))


def test_what_is_expected_is_replaced(root: Root, folder: Path) -> None:
    write(root, "d/a", b"one", expected=None)
    write(root, "d/a", b"two", expected=sha(b"one"))
    assert (folder / "d/a").read_bytes() == b"two"
    write(root, "d/a", None, expected=sha(b"two"))
    assert os.listdir(folder / "d") == []


@pytest.mark.parametrize("new_bytes", [None, b"new"])
@pytest.mark.parametrize("old_bytes", [None, b"old"])
def test_a_change_between_the_bytes_and_the_step(
    root: Root, folder: Path, old_bytes: bytes | None, new_bytes: bytes | None
) -> None:
    if old_bytes is not None:
        (folder / "a").write_bytes(old_bytes)
    elif new_bytes is None:
        return
    file_system.install_fault_hook(
        lambda name: name == "transaction.ready" and (folder / "a").write_bytes(b"the user's")
    )
    try:
        with pytest.raises(Conflict):
            write(root, "a", new_bytes)
    finally:
        file_system.install_fault_hook(None)
    assert (folder / "a").read_bytes() == b"the user's"
    assert os.listdir(folder) == ["a"]


def test_what_is_gone_at_the_last_moment_is_not_made_anew(root: Root, folder: Path) -> None:
    (folder / "a").write_bytes(b"old")
    file_system.install_fault_hook(lambda name: name == "transaction.ready" and (folder / "a").unlink(missing_ok=True))
    try:
        with pytest.raises(Conflict):
            write(root, "a", b"new")
    finally:
        file_system.install_fault_hook(None)
    assert os.listdir(folder) == []


def test_a_new_file_where_there_are_no_hard_links(root: Root, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_args: object, **_more: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    with monkeypatch.context() as patch:
        write(root, "first", b"one")  # the lock of the history is there from now on
        patch.setattr(os, "link", refuse)
        write(root, "a", b"one", expected=None)
    assert (folder / "a").read_bytes() == b"one"


def test_a_write_goes_to_the_file_behind_a_link(root: Root, folder: Path) -> None:
    (folder / "a").write_bytes(b"old")
    (folder / "b").symlink_to("a")
    write(root, "b", b"new")
    assert (folder / "a").read_bytes() == b"new"
    assert (folder / "b").is_symlink()


def test_chunks_are_the_file(root: Root, folder: Path) -> None:
    data = os.urandom(3_000_000)
    (folder / "a").write_bytes(data)
    pieces = list(root.read_chunks("a"))
    assert b"".join(pieces) == data
    assert len(pieces) > 1
    with pytest.raises(ToolError, match="does not exist"):
        list(root.read_chunks("none"))
