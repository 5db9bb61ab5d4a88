"""`treadle try` shows the effect of a command and changes nothing (W-09)."""

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

pytestmark = pytest.mark.thorough(one_of=8)

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
    entries: dict[str, tuple[object, ...]] = {}
    for path in [root, *sorted(root.rglob("*"))]:
        status = path.lstat()
        link_target = os.readlink(path) if path.is_symlink() else ""
        data = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() and not path.is_symlink() else ""
        entries[str(path)] = (status.st_mode, status.st_uid, status.st_mtime_ns, status.st_ctime_ns, link_target, data)
    return entries


@pytest.fixture
def views() -> None:
    if reason := missing("view"):
        pytest.skip(reason)


@pytest.mark.usefixtures("views")
def test_the_worst_is_shown_and_does_not_happen(cli: CommandLine) -> None:
    repository(cli.project)
    old_state = state(cli.project)
    try_result = cli("try", DESTROY)
    assert try_result.code == 0, try_result.err
    assert "Removing untracked.txt" in try_result.out
    assert "\n[exit " in try_result.out
    assert "D src/ (8 files) -8" in try_result.out
    assert "D untracked.txt -1" in try_result.out
    assert "-only here" in try_result.out
    assert "[1 ignored file]" in try_result.out
    assert "D empty/" in try_result.out
    assert "nothing in the project was changed" in try_result.err
    assert state(cli.project) == old_state
    assert not list(cli.home.glob("try-*"))


@pytest.mark.thorough(one_of=8)
def test_the_same_as_an_ordinary_user() -> None:
    if reason := missing("view", NOBODY):
        pytest.skip(reason)
    libraries = f"{SOURCES}{os.pathsep}{sysconfig.get_path('purelib')}"
    become = becoming(NOBODY)
    with grounds(NOBODY) as place:
        repository(place.root, NOBODY)
        (place.root / "closed").write_text("x\n")
        (place.root / "closed").chmod(0)
        place.give()
        old_state = state(place.root)
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

        process = run(DESTROY)
        assert process.returncode == 0, process.stderr
        assert "D src/ (8 files) -8" in process.stdout
        assert state(place.root) == old_state
        odd = run("mkdir -p a/b; echo x > a/b/c; chmod 0 a/b/c; chmod 0 a/b; chmod 0 a; id -u", "--json")
        assert odd.returncode == 0, odd.stderr
        report: dict[str, Any] = json.loads(odd.stdout)
        assert report["output"] == str(NOBODY)
        modes = {file["path"]: file["after"].get("mode", 0) for file in report["files"]}
        assert modes == {"a": 0, "a/b": 0, "a/b/c": 0}
        assert state(place.root) == old_state


@pytest.mark.usefixtures("views")
def test_as_json(cli: CommandLine) -> None:
    (cli.project / "a").write_text("one\n")
    try_result = cli("try", "echo out; echo two >> a; mkfifo p; exit 3", "--json")
    assert try_result.code == 0
    [report] = try_result.lines
    assert (report["ending"], report["code"], report["output"]) == ("exited", 3, "out")
    assert (report["added"], report["removed"]) == (1, 0)
    assert [(file["path"], file["action"]) for file in report["files"]] == [("a", "modified")]
    assert [file["path"] for file in report["uncaptured"]] == ["p"], "no FIFO becomes a part of a project (S-16)"
    assert sorted(os.listdir(cli.project)) == ["a"]


@pytest.mark.usefixtures("views")
def test_what_changes_nothing_says_so(cli: CommandLine) -> None:
    try_result = cli("try", "ls")
    assert (try_result.code, try_result.out) == (0, "[exit 0]\nIt changes nothing in the project.\n")


@pytest.mark.usefixtures("views")
def test_it_runs_where_one_is_and_names_are_inert(cli: CommandLine) -> None:  # S-12
    (cli.project / "sub").mkdir()
    try_result = cli("try", "cd sub; pwd; touch $'\\x1b[31mred'", "--root", str(cli.project))
    assert f"{cli.project}/sub" in try_result.out
    assert "\x1b" not in try_result.out


@pytest.mark.usefixtures("views")
def test_a_command_that_takes_too_long_is_stopped(cli: CommandLine) -> None:
    try_result = cli("try", "touch made; sleep 1000", "--timeout", "5")
    assert try_result.code == 0
    assert "took too long" in try_result.out
    assert "A made" in try_result.out
    assert os.listdir(cli.project) == []


def test_where_no_view_works_nothing_runs(cli: CommandLine) -> None:
    try_result = cli("try", "touch made", env={"TREADLE_SANDBOX": "none"})
    assert try_result.code == 1
    assert "no copy-on-write view" in try_result.err
    assert os.listdir(cli.project) == []
    assert not list(cli.home.glob("try-*"))
