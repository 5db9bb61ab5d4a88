"""What is visible in a home, and what stands for it (S-18)."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from treadle.adapters.sandbox.homes import private_home
from treadle.base.file_system import is_below
from treadle.ports.sandbox import PrivateHome


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    made = tmp_path / "user"
    (made / "project").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(made))
    return made


def seen(home: Path, root: Path | None = None, *added: str, **env: str) -> PrivateHome:
    found = private_home(str(root or home / "project"), {"HOME": str(home), **env}, added)
    assert found is not None
    return found


def visible(home: Path, found: PrivateHome) -> set[str]:
    return {os.path.relpath(path, home) for path in found.visible if is_below(path, str(home))}


def make(home: Path, *names: str) -> None:
    for name in names:
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")


def test_tools_are_visible_by_name_and_all_else_is_not(home: Path) -> None:
    make(home, ".cargo/bin/cargo", ".cargo/credentials.toml", ".ssh/id_rsa", ".pyenv/version", "notes", ".npmrc")
    found = seen(home)
    assert visible(home, found) == {".cargo/bin", ".pyenv"}
    assert found.path == found.covered[0] == str(home)
    assert found.variables == {"CARGO_HOME": f"{home}/.cargo", "PYENV_ROOT": f"{home}/.pyenv"}


def test_caches_stand_apart(home: Path) -> None:
    make(home, ".cargo/registry/a", ".m2/repository/a", ".m2/settings.xml", ".cache/pip/a", ".cache/chats/a")
    caches = {os.path.relpath(path, home) for path in seen(home).caches if is_below(path, str(home))}
    assert caches == {".cargo/registry", ".m2/repository", ".cache/pip"}


@pytest.mark.parametrize(("text", "shown"), [("[build]\njobs = 4\n", True), ("[registry]\ntoken = 'x'\n", False)])
def test_settings_with_a_secret_are_hidden(home: Path, text: str, shown: bool) -> None:
    make(home, ".cargo/config.toml")
    (home / ".cargo/config.toml").write_text(text)
    assert (".cargo/config.toml" in visible(home, seen(home))) == shown


def test_what_the_path_and_variables_name(home: Path) -> None:
    make(home, "bin/tool", "java/bin/java", "envs/a/bin/python", "project/.venv/bin/python")
    path = os.pathsep.join((f"{home}/bin", f"{home}/project/.venv/bin", str(home), "relative", "/usr/bin"))
    found = seen(home, PATH=path, JAVA_HOME=f"{home}/java", VIRTUAL_ENV=f"{home}/envs/a")
    assert visible(home, found) == {"bin", "java", "envs/a"}, "neither the home itself nor a part of the project"


def test_what_the_user_adds_and_the_keys_in_it(home: Path) -> None:
    make(home, "data/a", "data/id_ed25519", "data/credentials.json", "other/b")
    found = seen(home, None, "data", f"{home}/other", "~", "..")
    assert visible(home, found) == {"data", "other"}
    assert {os.path.basename(path) for path in found.keys} == {"id_ed25519", "credentials.json"}


def test_a_project_that_is_a_home_or_holds_one(home: Path) -> None:
    for root in (home, home.parent):
        assert private_home(str(root), {"HOME": str(home)}) is None


def test_the_repository_around_the_project(home: Path) -> None:
    make(home, "mono/.git/HEAD", "mono/packages/a/x")
    assert visible(home, seen(home, home / "mono/packages/a")) == {"mono"}
    make(home, ".git/HEAD")
    assert visible(home, seen(home)) == set(), "a home that is a repository is a home all the same"


def test_a_file_that_names_a_repository_opens_no_other_folder(home: Path) -> None:
    make(home, ".ssh/HEAD", ".ssh/commondir", ".ssh/gitdir")
    (home / "project/.git").write_text(f"gitdir: {home}/.ssh\n")
    assert visible(home, seen(home)) == set()


def test_a_home_by_another_name(home: Path, tmp_path: Path) -> None:
    make(home, ".pyenv/version")
    (tmp_path / "link").symlink_to(home)
    found = private_home(str(home / "project"), {"HOME": str(tmp_path / "link")})
    assert found is not None
    assert found.path == str(home)
    assert f"{home}/.pyenv" in found.visible


@pytest.mark.skipif(sys.platform != "linux", reason="git is there")
def test_git_settings_name_neither_programs_nor_addresses(home: Path) -> None:
    settings = {"user.name": 'A "B" C', "user.email": "a@b", "alias.x": "!touch y", "credential.helper": "!z"}
    for name, value in {**settings, "url.https://t@h/.insteadOf": "x", "safe.directory": "*"}.items():
        subprocess.run(["git", "config", "--global", name, value], check=True, env={**os.environ, "HOME": str(home)})
    (home / "copy").write_text(seen(home).gitconfig)
    line = ["git", "config", "--file", str(home / "copy"), "--list"]
    listed = subprocess.run(line, capture_output=True, text=True, check=True).stdout.splitlines()
    assert listed == ['user.name=A "B" C', "user.email=a@b", "safe.directory=*"]
