"""`treadle try`: what a command would do, and nothing done (W-09)."""

import hashlib
import json
import os
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

import pytest

from tests.scenario.command_line import SOURCES, TIMEOUT_S, CommandLine
from tests.unit.adapters.sandbox.grounds import NOBODY, becoming, grounds, missing, python_for_everyone

DESTROY = "rm -rf src && git clean -fdx"


def repository(root: Path, user: int | None = None) -> None:
    """A real one, with something of everything that is lost easily."""
    (root / "src/deep").mkdir(parents=True)
    for number in range(8):
        (root / f"src/deep/{number}.py").write_text(f"print({number})\n")
    (root / "run.sh").write_text("#!/bin/sh\n")
    (root / "run.sh").chmod(0o755)
    (root / ".gitignore").write_text("*.o\n")
    (root / "link").symlink_to("nowhere")
    if user is not None:
        for path in root.rglob("*"):
            os.chown(path, user, user, follow_symlinks=False)
    git = ["git", "-c", "user.name=n", "-c", "user.email=e@example.org", "-C", str(root)]
    quiet = {"PATH": os.environ["PATH"], "GIT_CONFIG_GLOBAL": os.devnull, "HOME": str(root)}
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "first"]):
        subprocess.run([*git, *words], check=True, env=quiet, **becoming(user))
    (root / "untracked.txt").write_text("only here\n")
    (root / "built.o").write_bytes(b"\0\1")
    (root / "empty").mkdir()


def state(root: Path) -> dict[str, tuple[object, ...]]:
    """Every byte, mode, link and time."""
    found: dict[str, tuple[object, ...]] = {}
    for path in [root, *sorted(root.rglob("*"))]:
        status = path.lstat()
        held = os.readlink(path) if path.is_symlink() else ""
        data = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() and not path.is_symlink() else ""
        found[str(path)] = (status.st_mode, status.st_uid, status.st_mtime_ns, status.st_ctime_ns, held, data)
    return found


@pytest.fixture
def views() -> None:
    if why := missing("view"):
        pytest.skip(why)


@pytest.mark.usefixtures("views")
def test_the_worst_is_shown_and_does_not_happen(cli: CommandLine) -> None:
    repository(cli.project)
    before = state(cli.project)
    ended = cli("try", DESTROY)
    assert ended.code == 0, ended.err
    assert "Removing untracked.txt" in ended.out
    assert "\n[exit " in ended.out
    assert "D src/ (8 files) -8" in ended.out
    assert "D untracked.txt -1" in ended.out
    assert "-only here" in ended.out
    assert "[1 ignored file]" in ended.out
    assert "D empty/" in ended.out
    assert "nothing in the project was changed" in ended.err
    assert state(cli.project) == before
    assert not list(cli.home.glob("try-*"))


def test_the_same_as_an_ordinary_user() -> None:
    if why := missing("view", NOBODY):
        pytest.skip(why)
    libraries = f"{SOURCES}{os.pathsep}{sysconfig.get_path('purelib')}"
    become = becoming(NOBODY)
    with grounds(NOBODY) as place:
        repository(place.root, NOBODY)
        (place.root / "closed").write_text("x\n")
        (place.root / "closed").chmod(0)
        place.give()
        before = state(place.root)
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(place.folder),
            "PYTHONPATH": libraries,
            "TREADLE_HOME": str(place.folder / "home"),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        python = python_for_everyone()
        if subprocess.run(
            [python, "-c", "import click, msgspec, treadle.library.agent"],
            env=environment,
            capture_output=True,
            **become,
        ).returncode:
            pytest.skip("what Treadle needs cannot be read by everyone here")

        def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
            return subprocess.run(
                [python, "-m", "treadle", "try", *arguments],
                cwd=place.root,
                env=environment,
                capture_output=True,
                text=True,
                timeout=TIMEOUT_S,
                **become,
            )

        ended = run(DESTROY)
        assert ended.returncode == 0, ended.stderr
        assert "D src/ (8 files) -8" in ended.stdout
        assert state(place.root) == before
        odd = run("mkdir -p a/b; echo x > a/b/c; chmod 0 a/b/c; chmod 0 a/b; chmod 0 a; id -u", "--json")
        assert odd.returncode == 0, odd.stderr
        told: dict[str, Any] = json.loads(odd.stdout)
        assert told["output"] == str(NOBODY)
        modes = {file["path"]: file["after"].get("mode", 0) for file in told["files"]}
        assert modes == {"a": 0, "a/b": 0, "a/b/c": 0}
        assert state(place.root) == before


@pytest.mark.usefixtures("views")
def test_as_json(cli: CommandLine) -> None:
    (cli.project / "a").write_text("one\n")
    ended = cli("try", "echo out; echo two >> a; mkfifo p; exit 3", "--json")
    assert ended.code == 0
    [told] = ended.lines
    assert (told["ending"], told["code"], told["output"]) == ("exited", 3, "out")
    assert (told["added"], told["removed"]) == (1, 0)
    assert [(file["path"], file["action"]) for file in told["files"]] == [("a", "modified")]
    assert [file["path"] for file in told["uncaptured"]] == ["p"], "no FIFO becomes a part of a project (S-16)"
    assert sorted(os.listdir(cli.project)) == ["a"]


@pytest.mark.usefixtures("views")
def test_what_changes_nothing_says_so(cli: CommandLine) -> None:
    ended = cli("try", "ls")
    assert (ended.code, ended.out) == (0, "[exit 0]\nIt changes nothing in the project.\n")


@pytest.mark.usefixtures("views")
def test_it_runs_where_one_is_and_names_are_inert(cli: CommandLine) -> None:  # S-12
    (cli.project / "sub").mkdir()
    ended = cli("try", "cd sub; pwd; touch $'\\x1b[31mred'", "--root", str(cli.project))
    assert f"{cli.project}/sub" in ended.out
    assert "\x1b" not in ended.out


@pytest.mark.usefixtures("views")
def test_a_command_that_takes_too_long_is_stopped(cli: CommandLine) -> None:
    ended = cli("try", "touch made; sleep 1000", "--timeout", "0.5")
    assert ended.code == 0
    assert "took too long" in ended.out
    assert "A made" in ended.out
    assert os.listdir(cli.project) == []


def test_where_no_view_works_nothing_runs(cli: CommandLine) -> None:
    ended = cli("try", "touch made", env={"TREADLE_SANDBOX": "none"})
    assert ended.code == 1
    assert "no copy-on-write view" in ended.err
    assert os.listdir(cli.project) == []
    assert not list(cli.home.glob("try-*"))
