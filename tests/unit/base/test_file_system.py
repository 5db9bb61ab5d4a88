import os
import subprocess
import sys
from pathlib import Path

import pytest

from treadle.base.file_system import create_file, find_path_below, is_below, replace_file

CORNERS = [
    ("/a", "/a", "."),
    ("/a/", "/a", "."),
    ("/a", "/a/", "."),
    ("/a//", "/a", "."),
    ("/a/b", "/a", "b"),
    ("/a/b", "/a///", "b"),
    ("/a/b/c/", "/a", "b/c"),
    ("/a//b", "/a", "b"),
    ("/a//etc", "/a", "etc"),
    ("/", "/", "."),
    ("/a", "/", "a"),
    ("/a/../b", "/a", "../b"),
    ("a/b", "a", "b"),
    ("/ab", "/a", None),
    ("/a.b", "/a", None),
    ("/", "/a", None),
    ("/b/a", "/a", None),
    ("a", "/a", None),
    ("a", "/", None),
    ("/a", "a", None),
    ("../a", "a", None),
    ("", "/", None),
    ("", "", None),
    ("/a", "", None),
    ("/A", "/a", None),
]


@pytest.mark.parametrize(("path", "folder", "below"), CORNERS)
def test_what_is_below_a_folder(path: str, folder: str, below: str | None) -> None:
    assert is_below(path, folder) is (below is not None)
    assert find_path_below(path, folder) == below


@pytest.mark.parametrize("sync", [False, True])
def test_a_file_is_replaced_whole_and_nothing_is_left_beside_it(tmp_path: Path, sync: bool) -> None:
    file = tmp_path / "file"
    replace_file(str(file), b"one", sync=sync)
    assert file.stat().st_mode & 0o777 == 0o600
    replace_file(str(file), b"two", sync=sync, mode=0o644)
    assert (file.read_bytes(), file.stat().st_mode & 0o777) == (b"two", 0o644)
    assert os.listdir(tmp_path) == ["file"]


def test_what_cannot_be_written_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(IsADirectoryError):
        replace_file(str(tmp_path / "folder"), b"data")
    with pytest.raises(FileNotFoundError):
        replace_file(str(tmp_path / "none" / "file"), b"data")
    assert os.listdir(tmp_path) == ["folder"]


def test_a_file_is_created_once(tmp_path: Path) -> None:
    file = tmp_path / "file"
    assert create_file(str(file), b"first", sync=True)
    assert not create_file(str(file), b"second")
    assert file.read_bytes() == b"first"
    assert os.listdir(tmp_path) == ["file"]


def test_the_programs_beside_a_command_can_load_it_alone() -> None:
    code = (
        "import os, sys; package = type(sys)('treadle'); package.__path__ = [sys.argv[1]]; "
        "sys.modules['treadle'] = package; before = set(sys.modules); import treadle.base.file_system; "
        "print(sorted(set(sys.modules) - before))"
    )
    folder = str(Path(__file__).parents[3] / "src" / "treadle")
    ran = subprocess.run([sys.executable, "-I", "-S", "-c", code, folder], capture_output=True, text=True, check=True)
    assert ran.stdout == "['treadle.base', 'treadle.base.file_system']\n"
