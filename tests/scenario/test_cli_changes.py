"""All views of the changes agree with each other, and caches are folded (W-04)."""

from pathlib import Path

import pytest

from tests.scenario.command_line import CommandLine
from tests.scenario.test_cli_undo import Here
from treadle.frontends.presentation.notices import MINUS

pytestmark = pytest.mark.thorough(one_of=8)

DONE = '[[turn]]\ntext = "Done."\n'


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Here:
    command_line = Here(tmp_path)
    command_line.monkeypatch, command_line.captured = monkeypatch, capfd
    return command_line


def edits(*pairs: tuple[str, str]) -> str:
    one = '[[turn]]\ncall = [{{ name = "edit_file", args = {{ path = "a.txt", old_str = "{}", new_str = "{}" }} }}]\n'
    return "".join(one.format(*pair) for pair in pairs)


def runs(command: str) -> str:
    return f"[[turn]]\ncall = [{{ name = \"run_command\", args = {{ command = '{command}' }} }}]\n"


def test_a_line_that_was_changed_twice_is_one_changed_line(cli: CommandLine) -> None:
    (cli.project / "a.txt").write_text("one\ntwo\n")
    run_result = cli("run", "Go.", "--model", cli.script(edits(("two", "zwei"), ("zwei", "deux")) + DONE))
    in_all = f"1 file, +1 {MINUS}1"
    assert "   M a.txt +1 -1" in run_result.err.splitlines()
    assert f"changed in all: {in_all} · undo" in run_result.err
    assert f"changed in all: {in_all} · undo" in cli("show", "last").err
    assert in_all in cli("diff").err
    assert f"changed: {in_all}\n" in cli("review").out
    assert f"would undo: {in_all}" in cli("undo", "--preview").err


def test_what_was_changed_and_changed_back_is_no_change(cli: CommandLine) -> None:
    (cli.project / "a.txt").write_text("one\ntwo\n")
    run_result = cli("run", "Go.", "--model", cli.script(edits(("two", "zwei"), ("zwei", "two")) + DONE))
    assert "changed in all" not in run_result.err
    assert "has changed nothing" in cli("diff").err


def test_a_run_that_waited_ends_with_all_that_it_changed(cli: CommandLine) -> None:
    (cli.project / "a.txt").write_text("one\ntwo\n")
    asks = '[[turn]]\ncall = [{ name = "ask_user", args = { question = "Which?" } }]\n'
    script = cli.script(edits(("two", "zwei")) + asks + edits(("zwei", "deux")) + DONE)
    waits = cli("run", "Go.", "--model", script, "--interactive")
    assert "waits for someone" in waits.err
    assert f"changed in all: 1 file, +1 {MINUS}1" in cli("resume", "last", "--answer", "This.").err


def test_caches_are_one_line_without_a_gitignore(cli: CommandLine) -> None:
    make = "mkdir -p .mypy_cache .pytest_cache && echo x > .mypy_cache/a && echo y > .pytest_cache/b && echo z > c"
    script = cli.script(runs(make) + DONE)
    run_result = cli("run", "Go.", "--model", script, "--mode", "autopilot", "--auto-approve-commands")
    folded = "2 files in .mypy_cache, .pytest_cache"
    assert f"   [{folded}]" in run_result.err.splitlines()
    in_all = f"1 file, +1 {MINUS}0; {folded}"
    assert f"changed in all: {in_all} · undo" in run_result.err
    for view in (cli("diff"), cli("diff", "--stat"), cli("review")):
        assert f"[{folded}]\n" in view.out
        assert "A .mypy_cache" not in view.out
        assert in_all in view.out + view.err
    everything = cli("diff", "--caches")
    assert "A .mypy_cache/a +1\n" in everything.out
    assert f"3 files, +3 {MINUS}0" in everything.err
    assert "A .mypy_cache/a +1\n" in cli("review", "--caches").out
    assert cli("undo").code == 0
    assert [path.name for path in cli.project.iterdir()] == []


def test_what_gitignore_names_is_counted_in_diff_review_and_undo(cli: CommandLine) -> None:
    (cli.project / ".gitignore").write_text("*.o\n")
    script = cli.script(runs("echo x > a.o && echo y > b.c") + DONE)
    run_result = cli("run", "Go.", "--model", script, "--mode", "autopilot", "--auto-approve-commands")
    in_all = f"1 file, +1 {MINUS}0; 1 ignored file"
    assert in_all in run_result.err
    for view in (cli("diff"), cli("review")):
        assert "[1 ignored file]\n" in view.out
        assert "A a.o" not in view.out
        assert in_all in view.out + view.err
    assert "A a.o +1" in cli("diff", "--caches").out
    assert f"undone: 1 file, +0 {MINUS}1; 1 ignored file" in cli("undo").err
    assert not (cli.project / "a.o").exists()
    assert f"redone: {in_all}" in cli("redo").err
    assert f"kept: {in_all}" in cli("keep").err


def test_a_refused_command_is_in_every_view(cli: CommandLine) -> None:
    waits = cli("run", "Go.", "--model", cli.script(runs("touch x") + DONE), "--mode", "confirm", "--interactive")
    assert "waits for someone" in waits.err
    denied = cli("resume", "last", "--deny", "--feedback", "Not now.")
    assert denied.code == 0
    for view_text in (denied.out, cli("show", "last").out):
        assert "run_command touch x …" in view_text
    assert "$ touch x  (" in cli("review", "last").out
    assert not (cli.project / "x").exists()
