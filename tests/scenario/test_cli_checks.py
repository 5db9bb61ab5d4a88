"""Checks, instructions and hooks on the command line (L-16, E-03)."""

import stat

import pytest

from tests.scenario.command_line import CommandLine

pytestmark = pytest.mark.thorough(one_of=8)

DONE = '[[turn]]\ntext = "Done."\n'
WRITE = '[[turn]]\ncall = [{ name = "write_file", args = { path = "mended", content = "" } }]\n'
MENDED = "test -e mended || { echo it is broken; exit 3; }"


@pytest.mark.thorough(one_of=8)
def test_a_check_that_passes_in_the_end(cli: CommandLine) -> None:
    model = cli.script(DONE + WRITE + DONE)
    run_result = cli("run", "Do it.", "--model", model, "--check", MENDED, "--check", "true", "--json")
    assert run_result.code == 0
    assert [check["success"] for check in run_result.of("check.completed")] == [False, True, True, True]
    assert run_result.types[-1] == "session.idle"
    assert cli("replay", "last").code == 0  # D-07


def test_a_completion_that_is_refused_ends_with_1(cli: CommandLine) -> None:
    run_result = cli("run", "Do it.", "--model", cli.script(DONE * 4), "--check", "echo so broken; false")
    assert run_result.code == 1
    assert "check echo so broken; false" in run_result.out
    assert "so broken" in run_result.out
    assert "error (checks_failed): The completion was refused" in run_result.err


def test_checks_can_be_set_in_the_users_file_and_by_a_variable(cli: CommandLine) -> None:
    cli.home.mkdir(exist_ok=True)
    (cli.home / "config.toml").write_text('checks = ["echo from the file"]\n')
    model = cli.script(DONE)
    assert [c["command"] for c in cli("run", "Go.", "--model", model, "--json").of("check.started")] == [
        "echo from the file"
    ]
    env = {"TREADLE_CHECKS": "true\necho two"}
    run_result = cli("run", "Go.", "--model", model, "--json", env=env)
    assert [c["command"] for c in run_result.of("check.started")] == ["true", "echo two"]


def test_errors_in_changed_files_go_back_to_the_model(cli: CommandLine) -> None:
    call = '[[turn]]\ncall = [{ name = "write_file", args = { path = "a.py", content = "%s" } }]\n'
    model = cli.script(call % "def f(:" + DONE + call % "x = 1" + DONE)
    run_result = cli("run", "Do it.", "--model", model, "--json")
    assert run_result.code == 0
    first, second = run_result.of("check.completed")
    assert "a.py:1:7: error" in first["result"]
    assert second["success"]
    [check_message] = [message for message in run_result.of("user.message") if message["source"] == "check"]
    assert "a.py:1:7: error" in check_message["content"]


def test_a_project_instructs_and_a_hook_refuses(cli: CommandLine) -> None:
    (cli.project / "AGENTS.md").write_text("Use tabs.\n")
    cli.home.mkdir(exist_ok=True)
    guard = cli.folder / "guard"
    guard.write_text("#!/bin/sh\necho frozen >&2\nexit 2\n")
    guard.chmod(guard.stat().st_mode | stat.S_IXUSR)
    (cli.home / "config.toml").write_text(f'[[hooks]]\nwhen = "before"\ncommand = "{guard}"\n')
    run_result = cli("run", "Do it.", "--model", cli.script(WRITE + DONE), "--json")
    assert "Use tabs." in run_result.of("session.created")[0]["options"]["instructions"]
    assert "frozen" in run_result.of("tool.execution_complete")[0]["error"]
    assert not (cli.project / "mended").exists()


def test_a_broken_hook_in_the_file_is_no_start(cli: CommandLine) -> None:
    cli.home.mkdir(exist_ok=True)
    (cli.home / "config.toml").write_text('[[hooks]]\nwhen = "sometimes"\ncommand = "x"\n')
    run_result = cli("run", "Do it.", "--model", cli.script(DONE))
    assert run_result.code == 2
    assert "config.toml" in run_result.err


def test_nothing_of_a_hostile_project_is_honoured(cli: CommandLine) -> None:  # S-09, fault 28
    (cli.project / ".treadle").mkdir()
    (cli.project / ".treadle/hooks.toml").write_text('[[hooks]]\nwhen = "before"\ncommand = "touch ran"\n')
    (cli.project / ".treadle/config.toml").write_text('checks = ["touch ran"]\n')
    (cli.project / "config.toml").write_text('checks = ["touch ran"]\n')
    (cli.project / "AGENTS.md").write_text("checks = touch ran\n")
    assert cli("run", "Do it.", "--model", cli.script(WRITE + DONE)).code == 0
    assert not (cli.project / "ran").exists()
    assert (cli.project / "mended").exists()
