"""Which folder a run works in (S-02)."""

import os
from pathlib import Path

import pytest

from treadle.errors import InvalidInput
from treadle.frontends.cli.options import resolve_project_root


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "user"
    (folder / "project" / "src").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(folder))
    return folder


def test_named_over_git_root_over_working_directory(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inner = home / "project" / "src"
    monkeypatch.chdir(inner)
    assert resolve_project_root(None) == inner
    (home / "project" / ".git").write_text("gitdir: elsewhere", encoding="utf-8")  # as in a worktree
    assert resolve_project_root(None) == home / "project"
    assert resolve_project_root(".") == inner
    assert resolve_project_root("~/project") == home / "project"


def test_everything_is_refused_unless_forced(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    link = home.parent / "link"
    link.symlink_to(home)
    for everything in ("/", str(home), str(link)):
        with pytest.raises(InvalidInput, match="--force-root"):
            resolve_project_root(everything)
        assert resolve_project_root(everything, force=True) == Path(everything).resolve()
    (home / ".git").mkdir()
    monkeypatch.chdir(home / "project")
    with pytest.raises(InvalidInput, match="your home folder"):
        resolve_project_root(None)


def test_a_root_must_be_a_folder(home: Path) -> None:
    (home / "file").touch()
    for wrong in (home / "file", home / "missing"):
        with pytest.raises(InvalidInput, match="is no folder"):
            resolve_project_root(str(wrong))


def test_a_root_must_have_a_name_that_can_be_recorded(home: Path) -> None:
    odd = os.fsdecode(os.fsencode(home) + b"/caf\xe9")
    os.mkdir(odd)
    with pytest.raises(InvalidInput, match=r"caf\\udce9, is not valid UTF-8"):
        resolve_project_root(odd)
