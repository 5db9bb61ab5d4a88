"""The lists of what is guarded by default (S-03)."""

import os
import subprocess
from pathlib import Path

from treadle.adapters.sandbox import places


def test_git_and_treadles_own_are_protected_whether_they_exist_or_not(tmp_path: Path) -> None:
    paths = {os.path.relpath(path, tmp_path) for path in places.find_protected_paths(str(tmp_path))}
    assert paths == {".git/hooks", ".git/config", ".git/config.worktree", ".git/commondir", ".treadle"}


def test_submodules_and_worktrees_are_protected_too(tmp_path: Path) -> None:
    for name in ("one", "deep/two", "one/modules/three"):
        module = tmp_path / ".git" / "modules" / name
        module.mkdir(parents=True)
        (module / "HEAD").touch()
    worktree = tmp_path / ".git" / "worktrees" / "w"
    worktree.mkdir(parents=True)
    (worktree / "commondir").write_text("../..")
    paths = {os.path.relpath(path, tmp_path / ".git") for path in places.find_protected_paths(str(tmp_path))}
    assert {"modules/one/hooks", "modules/deep/two/config", "modules/one/modules/three/hooks"} <= paths
    assert "worktrees/w/commondir" in paths


def test_the_stand_ins_are_to_git_as_if_they_were_not_there(tmp_path: Path) -> None:
    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=tmp_path, check=True, capture_output=True, text=True).stdout

    git("init", "-q")
    git("config", "user.name", "n")
    git("config", "user.email", "n@example.org")
    for name in ("config.worktree", "commondir"):
        (tmp_path / ".git" / name).write_bytes(places.STAND_INS[name])
    (tmp_path / "a").write_text("a")
    git("add", "a")
    git("commit", "-qm", "first")
    assert git("status", "--short") == ""
    assert git("log", "--format=%s") == "first\n"


def test_hidden_are_treadles_data_and_the_keys_that_exist(tmp_path: Path) -> None:
    home, own_folder = tmp_path / "home", tmp_path / "own"
    (home / ".ssh").mkdir(parents=True)
    own_folder.mkdir()
    (home / ".netrc").symlink_to(own_folder / "netrc")
    assert places.find_hidden_paths(str(own_folder), user_home=str(home)) == (
        str(own_folder),
        str(home / ".ssh"),
        str(own_folder / "netrc"),
    )
