"""Where the secret files of a project are looked for, and when again (S-18)."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from treadle.adapters.policy import secret_files
from treadle.adapters.policy.secret_files import find_secrets

KEY = "-----BEGIN PRIVATE KEY-----\n"


class Project:
    def __init__(self, root: Path) -> None:
        self.root = root
        self._top = os.open(root, os.O_RDONLY)

    def write(self, name: str, text: str = "NAME=value\n") -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def settle(self) -> None:
        """Wait until the folders count as unchanged."""
        folders = [self.root, *(path for path in self.root.rglob("*") if path.is_dir())]
        newest = max(path.stat().st_ctime_ns for path in folders)
        time.sleep(max(0, newest + secret_files._SETTLED_NS + 10_000_000 - time.time_ns()) / 1e9)
        self.secrets()

    def secrets(self) -> set[str]:
        return set(find_secrets(str(self.root), self._top))


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    monkeypatch.setattr(secret_files, "_REMEMBERED_S", 0.0)
    new_project = Project(tmp_path)
    yield new_project
    os.close(new_project._top)


def test_built_folders_are_searched_and_installed_packages_are_not(project: Project) -> None:
    for name in ("build/id_rsa", "dist/app/.env", "target/x/.netrc", "src/.env"):
        project.write(name)
    for name in ("node_modules/x/.env", "vendor/x/id_rsa", ".venv/lib/site-packages/x/.env"):
        project.write(name)
    assert project.secrets() == {"build/id_rsa", "dist/app/.env", "target/x/.netrc", "src/.env"}


def test_built_folders_come_last(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(50):
        project.write(f"build/f{number}", "x")
    project.write("src/a/b/c/.env")
    project.write("build/a/.env")
    monkeypatch.setattr(secret_files, "_MOST_ENTRIES", 20)
    assert project.secrets() == {"src/a/b/c/.env"}


@pytest.mark.parametrize("name", [".env", "deep/down/.env", "new/.env"])
def test_a_file_that_comes_later_is_found(project: Project, name: str) -> None:
    project.write("deep/down/file")
    project.settle()
    project.write(name)
    os.utime((project.root / name).parent, (1, 1))  # the time of change stays
    assert project.secrets() == {name}


def test_a_file_that_comes_at_once_is_found(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer about deep folders is remembered; new files in the root and its own folders count at once."""
    monkeypatch.setattr(secret_files, "_REMEMBERED_S", 1e9)
    project.write("deep/down/.env")
    project.settle()
    project.write(".env")
    project.write("deep/.netrc", "machine x\n")
    assert project.secrets() == {".env", "deep/.netrc", "deep/down/.env"}
    for path in (".env", "deep/.netrc", "deep/down/.env"):
        (project.root / path).unlink()
    project.secrets()
    secret_files._get_search.cache_clear()
    for number in range(3):
        project.write(f"folder{number}/.env")
        assert len(project.secrets()) == number + 1


def test_what_a_file_holds_is_read_anew(project: Project) -> None:
    project.write("server.pem", "-----BEGIN CERTIFICATE-----\n")
    project.write(".env", "")
    project.settle()
    assert project.secrets() == set()
    project.write("server.pem", KEY)
    project.write(".env")
    assert project.secrets() == {"server.pem", ".env"}


def test_folders_that_did_not_change_are_not_listed_again(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    project.write("deep/down/.env")
    project.settle()

    def refuse(*_: object) -> None:
        raise AssertionError("listed again")

    monkeypatch.setattr(os, "scandir", refuse)
    assert project.secrets() == {"deep/down/.env"}


def test_a_link_hides_the_file_that_it_leads_to(project: Project) -> None:
    project.write("config/plain", KEY)
    project.write("config/certificate", "-----BEGIN CERTIFICATE-----\n")
    (project.root / "server.key").symlink_to("config/plain")
    (project.root / "other.key").symlink_to("config/certificate")
    (project.root / ".env").symlink_to("/etc/hostname")
    assert project.secrets() == {"config/plain"}


def test_copies_of_secret_files_are_secret(project: Project) -> None:  # S-18
    copies = {".env~", "#.env#", ".env.swp", ".env-prod", "id_rsa.bak", ".id_rsa.swp", ".dev.vars", "master.key"}
    for name in (*copies, "app.py~", "notes.bak", "example.env", "id_rsa.pub"):
        project.write(name)
    project.write("prod.env", "DB_PASSWORD=hunter2hunter\n")
    project.write("public.env", "NAME=value\n")
    assert project.secrets() == copies | {"prod.env"}
