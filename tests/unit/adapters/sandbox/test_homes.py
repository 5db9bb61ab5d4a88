"""The visible parts of a home, and the folder that stands for it (S-18)."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from treadle.adapters.sandbox.places import find_private_home
from treadle.base.file_system import is_below
from treadle.ports.sandbox import PrivateHome


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "user"
    (folder / "project").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(folder))
    return folder


def find_home(home: Path, root: Path | None = None, *extra_paths: str, **env: str) -> PrivateHome:
    home_view = find_private_home(str(root or home / "project"), {"HOME": str(home), **env}, extra_paths)
    assert home_view is not None
    return home_view


def visible(home: Path, home_view: PrivateHome) -> set[str]:
    return {os.path.relpath(path, home) for path in home_view.visible if is_below(path, str(home))}


def make(home: Path, *names: str) -> None:
    for name in names:
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")


def test_tools_are_visible_by_name_and_all_else_is_not(home: Path) -> None:
    make(home, ".cargo/bin/cargo", ".cargo/credentials.toml", ".ssh/id_rsa", ".pyenv/version", "notes", ".npmrc")
    home_view = find_home(home)
    assert visible(home, home_view) == {".cargo/bin", ".pyenv"}
    assert home_view.path == home_view.covered[0] == str(home)
    assert home_view.variables == {"CARGO_HOME": f"{home}/.cargo", "PYENV_ROOT": f"{home}/.pyenv"}


def test_caches_stand_apart(home: Path) -> None:
    make(home, ".cargo/registry/a", ".m2/repository/a", ".m2/settings.xml", ".cache/pip/a", ".cache/chats/a")
    caches = {os.path.relpath(path, home) for path in find_home(home).caches if is_below(path, str(home))}
    assert caches == {".cargo/registry", ".m2/repository", ".cache/pip"}


@pytest.mark.parametrize(("text", "is_visible"), [("[build]\njobs = 4\n", True), ("[registry]\ntoken = 'x'\n", False)])
def test_settings_with_a_secret_are_hidden(home: Path, text: str, is_visible: bool) -> None:
    make(home, ".cargo/config.toml")
    (home / ".cargo/config.toml").write_text(text)
    assert (".cargo/config.toml" in visible(home, find_home(home))) == is_visible


def test_what_the_path_and_variables_name(home: Path) -> None:
    make(home, "bin/tool", "java/bin/java", "envs/a/bin/python", "project/.venv/bin/python")
    path = os.pathsep.join((f"{home}/bin", f"{home}/project/.venv/bin", str(home), "relative", "/usr/bin"))
    home_view = find_home(home, PATH=path, JAVA_HOME=f"{home}/java", VIRTUAL_ENV=f"{home}/envs/a")
    assert visible(home, home_view) == {"bin", "java", "envs/a"}, "neither the home itself nor a part of the project"


def test_what_the_user_adds_and_the_keys_in_it(home: Path) -> None:
    make(home, "data/a", "data/id_ed25519", "data/credentials.json", "other/b")
    home_view = find_home(home, None, "data", f"{home}/other", "~", "..")
    assert visible(home, home_view) == {"data", "other"}
    assert {os.path.basename(path) for path in home_view.keys} == {"id_ed25519", "credentials.json"}


def test_a_project_that_is_a_home_or_holds_one(home: Path) -> None:
    for root in (home, home.parent):
        assert find_private_home(str(root), {"HOME": str(home)}) is None


def test_the_repository_around_the_project(home: Path) -> None:
    make(home, "mono/.git/HEAD", "mono/packages/a/x")
    assert visible(home, find_home(home, home / "mono/packages/a")) == {"mono"}
    make(home, ".git/HEAD")
    assert visible(home, find_home(home)) == set(), "a home that is a repository is a home all the same"


def test_a_file_that_names_a_repository_opens_no_other_folder(home: Path) -> None:
    make(home, ".ssh/HEAD", ".ssh/commondir", ".ssh/gitdir")
    (home / "project/.git").write_text(f"gitdir: {home}/.ssh\n")
    assert visible(home, find_home(home)) == set()


def test_a_home_by_another_name(home: Path, tmp_path: Path) -> None:
    make(home, ".pyenv/version")
    (tmp_path / "link").symlink_to(home)
    home_view = find_private_home(str(home / "project"), {"HOME": str(tmp_path / "link")})
    assert home_view is not None
    assert home_view.path == str(home)
    assert f"{home}/.pyenv" in home_view.visible


@pytest.mark.skipif(sys.platform != "linux", reason="git is there")
def test_git_settings_name_neither_programs_nor_addresses(home: Path) -> None:
    settings = {"user.name": 'A "B" C', "user.email": "a@b", "alias.x": "!touch y", "credential.helper": "!z"}
    for name, value in {**settings, "url.https://t@h/.insteadOf": "x", "safe.directory": "*"}.items():
        subprocess.run(["git", "config", "--global", name, value], check=True, env={**os.environ, "HOME": str(home)})
    (home / "copy").write_text(find_home(home).gitconfig)
    line = ["git", "config", "--file", str(home / "copy"), "--list"]
    listed = subprocess.run(line, capture_output=True, text=True, check=True).stdout.splitlines()
    assert listed == ['user.name=A "B" C', "user.email=a@b", "safe.directory=*"]
