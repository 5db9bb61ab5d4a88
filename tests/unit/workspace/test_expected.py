"""Writes and removals that carry the hash they expect, to the very moment they happen (W-07, fault 21)."""

import hashlib
import os
from pathlib import Path

import pytest

from treadle import faultpoint
from treadle.errors import Conflict, ToolError
from treadle.workspace.root import Root


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.fixture
def root(tmp_path: Path) -> Root:
    return Root(str(tmp_path))


def test_what_is_expected_is_replaced(root: Root, tmp_path: Path) -> None:
    root.write_atomic("d/a", b"one", expected=None)
    root.write_atomic("d/a", b"two", expected=sha(b"one"))
    assert (tmp_path / "d/a").read_bytes() == b"two"
    root.remove("d/a", expected=sha(b"two"))
    assert os.listdir(tmp_path / "d") == []


@pytest.mark.parametrize("expected", [None, sha(b"other")])
def test_what_is_not_expected_stays(root: Root, tmp_path: Path, expected: str | None) -> None:
    (tmp_path / "a").write_bytes(b"the user's")
    with pytest.raises(Conflict, match="a was changed by someone else"):
        root.write_atomic("a", b"new", expected=expected)
    with pytest.raises(Conflict):
        root.remove("a", expected=sha(b"other"))
    assert (tmp_path / "a").read_bytes() == b"the user's"
    assert os.listdir(tmp_path) == ["a"]


def test_what_should_be_there_and_is_not(root: Root, tmp_path: Path) -> None:
    with pytest.raises(Conflict):
        root.write_atomic("a", b"new", expected=sha(b"old"))
    with pytest.raises(ToolError):
        root.remove("a", expected=sha(b"old"))
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("before", [None, b"old"])
def test_a_change_between_the_bytes_and_the_step(root: Root, tmp_path: Path, before: bytes | None) -> None:
    if before is not None:
        (tmp_path / "a").write_bytes(before)
    faultpoint.install(lambda name: name == "workspace.temp_written" and (tmp_path / "a").write_bytes(b"the user's"))
    try:
        with pytest.raises(Conflict):
            root.write_atomic("a", b"new", expected=None if before is None else sha(before))
    finally:
        faultpoint.install(None)
    assert (tmp_path / "a").read_bytes() == b"the user's"
    assert os.listdir(tmp_path) == ["a"]


def test_a_new_file_where_there_are_no_hard_links(root: Root, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_args: object, **_more: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    root.write_atomic("a", b"one", expected=None)
    assert (tmp_path / "a").read_bytes() == b"one"
    with pytest.raises(Conflict):
        root.write_atomic("a", b"two", expected=None)
    assert os.listdir(tmp_path) == ["a"]


def test_a_link_in_the_place_of_the_file(root: Root, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"old")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(Conflict):
        root.remove("b", expected=sha(b"old"))  # the link itself has no bytes
    root.write_atomic("b", b"new", expected=sha(b"old"))  # a write goes to the file behind it
    assert (tmp_path / "a").read_bytes() == b"new"


def test_chunks_are_the_file(root: Root, tmp_path: Path) -> None:
    data = os.urandom(3_000_000)
    (tmp_path / "a").write_bytes(data)
    pieces = list(root.chunks("a"))
    assert b"".join(pieces) == data
    assert len(pieces) > 1
    with pytest.raises(ToolError, match="does not exist"):
        list(root.chunks("none"))
