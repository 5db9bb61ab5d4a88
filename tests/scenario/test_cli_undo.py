"""Undo from the command line shows, undoes, redoes and keeps the changes of a run (W-02, W-03, W-04, W-06)."""

import json
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.scenario.command_line import CommandLine, CommandResult
from tests.scenario.test_cli_dialogue import person
from treadle.frontends.cli.group import invoke
from treadle.frontends.presentation.notices import MINUS

pytestmark = pytest.mark.thorough(one_of=8)

LINES = [f"line {number}\n" for number in range(1, 21)]
WORK = """
[[turn]]
call = [{ name = "write_file", args = { path = "made/new.txt", content = "agent\\n" } }]
[[turn]]
call = [
    { name = "edit_file", args = { path = "a.txt", old_str = "line 2\\n", new_str = "two\\n" } },
    { name = "edit_file", args = { path = "a.txt", old_str = "line 18\\n", new_str = "eighteen\\n" } },
]
[[turn]]
text = "Done."
"""
MORE = '[[turn]]\ncall = [{ name = "write_file", args = { path = "b.txt", content = "more\\n" } }]\n'
DONE = '[[turn]]\ntext = "Done."\n'


def text(*edits: tuple[int, str]) -> str:
    lines = list(LINES)
    for number, line in edits:
        lines[number - 1] = line
    return "".join(lines)


AGENT = text((2, "two\n"), (18, "eighteen\n"))


class Here(CommandLine):
    """The same command line in this process: most of what is seen here needs no other."""

    monkeypatch: pytest.MonkeyPatch
    captured: pytest.CaptureFixture[str]

    def __call__(self, *arguments: str, env: Mapping[str, str] | None = None, input: str = "") -> CommandResult:
        with self.monkeypatch.context() as patch:
            for name, value in (self.environment | dict(env or {})).items():
                patch.setenv(name, value)
            patch.chdir(self.project)
            self.captured.readouterr()
            code = invoke(list(arguments))
        output = self.captured.readouterr()
        return CommandResult(code, output.out, output.err)


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Here:
    command_line = Here(tmp_path)
    command_line.monkeypatch, command_line.captured = monkeypatch, capfd
    return command_line


@pytest.fixture
def elsewhere(tmp_path: Path) -> CommandLine:
    """In processes of its own."""
    return CommandLine(tmp_path)


@pytest.fixture
def chat(cli: CommandLine) -> str:
    """A run has been; two hunks in one file, and a new file in a new folder."""
    (cli.project / "a.txt").write_text(text())
    run_result = cli("run", "Do the work.", "--model", cli.script(WORK), "--json")
    assert run_result.code == 0
    assert (cli.project / "a.txt").read_text() == AGENT
    return str(run_result.events[0]["chat"])


def files(cli: CommandLine) -> dict[str, str]:
    return {str(path.relative_to(cli.project)): path.read_text() for path in cli.project.rglob("*") if path.is_file()}


def test_a_run_ends_with_what_it_changed_and_the_way_back(cli: CommandLine) -> None:  # W-04
    (cli.project / "a.txt").write_text(text())
    run_result = cli("run", "Do the work.", "--model", cli.script(WORK))
    lines = run_result.err.splitlines()
    assert "   A made/new.txt +1" in lines
    assert "   M a.txt +2 -2" in lines
    assert any(f"changed in all: 2 files, +3 {MINUS}2 · undo: treadle undo c_" in line for line in lines)


def test_undo_and_redo_bring_everything_back_and_again(cli: CommandLine, chat: str) -> None:
    preview = cli("undo", "--preview")
    assert (preview.code, preview.out) == (0, "M a.txt +2 -2\nD made/new.txt -1\n")
    assert f"would undo: 2 files, +2 {MINUS}3; nothing was changed" in preview.err
    assert (cli.project / "a.txt").read_text() == AGENT
    undone = cli("undo")
    assert (undone.code, undone.out) == (0, preview.out)
    assert files(cli) == {"a.txt": text()}
    assert not (cli.project / "made").exists()  # the folder, too
    again = cli("undo")
    assert (again.code, again.out) == (0, "")
    assert "nothing to undo" in again.err
    redone = json.loads(cli("redo", "--json").out)
    assert [file["path"] for file in redone["files"]] == ["a.txt", "made", "made/new.txt"]
    assert files(cli) == {"a.txt": AGENT, "made/new.txt": "agent\n"}
    nothing = cli("redo")
    assert nothing.code == 2
    assert "no undo in this chat that could be redone" in nothing.err


@pytest.mark.parametrize("command", [("undo", "--yes"), ("keep",), ("diff",), ("review",)])
def test_a_word_that_is_neither_chat_nor_file_is_an_error(
    cli: CommandLine, chat: str, command: tuple[str, ...]
) -> None:  # W-02
    result = cli(*command, "nosuchchat")
    assert (result.code, result.out) == (1, "")
    assert "nosuchchat is neither a chat nor a file here; see: treadle chats" in result.err
    assert (cli.project / "a.txt").read_text() == AGENT
    assert cli("undo", "made/new.txt", "--yes").code == 0
    assert cli(*command, "made/new.txt").code == 0, "it is gone, but the chat has changed it"


def test_a_diff_has_numbers_and_they_are_those_of_undo_and_keep(cli: CommandLine, chat: str) -> None:
    diff_result = cli("diff", "a.txt")
    assert "@@ -1,5 +1,5 @@ hunk 1\n" in diff_result.out
    assert "@@ -15,6 +15,6 @@ hunk 2\n" in diff_result.out
    diff_files = cli("diff", chat, "--json").lines
    assert [(file["path"], file["added"], file["removed"]) for file in diff_files] == [
        ("made", 0, 0),
        ("made/new.txt", 1, 0),
        ("a.txt", 2, 2),
    ]
    assert [hunk["number"] for hunk in diff_files[2]["hunks"]] == [1, 2]
    assert cli("keep", "--hunk", "a.txt:2").code == 0
    assert cli("diff", "a.txt", "--stat").out == "M a.txt +1 -1\n"
    assert cli("undo").code == 0
    assert files(cli) == {"a.txt": text((18, "eighteen\n"))}
    assert cli("undo", "--even-kept", "--hunk", "a.txt:1").code == 0
    assert files(cli) == {"a.txt": text()}


def test_an_edit_by_somebody_else_is_left_alone_or_merged(cli: CommandLine, chat: str) -> None:
    mine = AGENT.replace("line 10\n", "mine\n")
    (cli.project / "a.txt").write_text(mine)
    refused = cli("undo", "a.txt")
    assert refused.code == 1
    assert refused.out.startswith("✗ a.txt was not changed: it has changed since\n")
    assert "    +mine\n" in refused.out
    assert "--merge" in refused.err
    assert (cli.project / "a.txt").read_text() == mine
    merged = cli("undo", "--merge")
    assert merged.code == 0
    assert files(cli) == {"a.txt": text((10, "mine\n"))}


def test_runs_are_undone_by_their_numbers_and_back_to_a_message(cli: CommandLine, chat: str) -> None:
    model = cli.script(WORK + MORE + DONE, "more.toml")
    assert cli("run", "And more.", "--chat", chat, "--model", model).code == 0
    runs = cli("diff", "--runs", "--json").lines
    assert [(run["run"], run["task"]) for run in runs] == [(1, "Do the work."), (2, "And more.")]
    assert cli("diff", "--stat").out == "A b.txt +1\n"
    assert cli("diff", "--all", "--stat").out == "A made/new.txt +1\nM a.txt +2 -2\nA b.txt +1\n"
    assert cli("undo", "--run", "1", "made").code == 0
    assert set(files(cli)) == {"a.txt", "b.txt"}
    wrong = cli("undo", "--to", "3")
    assert wrong.code == 1
    assert f"they are: {runs[0]['message']} 'Do the work.'; {runs[1]['message']} 'And more.'" in wrong.err
    assert cli("undo", "--to", str(runs[1]["message"]), "--files").code == 0
    assert files(cli) == {"a.txt": AGENT}
    assert len(json.loads(cli("show", chat, "--json").out)["messages"]) > 5
    assert cli("undo", "--to", str(runs[0]["message"])).code == 0
    assert files(cli) == {"a.txt": text()}
    assert json.loads(cli("show", chat, "--json").out)["messages"] == []


def test_a_review_tells_a_run_in_one_piece(cli: CommandLine) -> None:
    look = '[[turn]]\ncall = [{ name = "run_command", args = { command = "printf x > seen; touch y" } }]\n'
    result = cli("run", "Do \x1b[31mthis.", "--model", cli.script(look + WORK.split("[[turn]]")[0] + DONE), "--json")
    assert result.code == 0
    way = result.of("tool.execution_complete")[0]["effect"]
    review_lines = cli("review", "last").out.splitlines()
    assert review_lines[1] == "> Do \\x1b[31mthis."
    assert review_lines[2].startswith("$ printf x > seen; touch y  (exit 0")
    assert review_lines[2].endswith({"view": "on a copy, then committed)", "direct": "written through)"}[way])
    assert f"changed: 2 files, +1 {MINUS}0" in review_lines
    assert "+x" in review_lines


def test_names_and_texts_are_inert(cli: CommandLine) -> None:  # S-12
    (cli.project / "a.txt").write_text(text())
    script = """
    [[turn]]
    call = [{ name = "write_file", args = { path = "e\\u001b[31m.txt", content = "\\u001b]0;x\\u0007\\n" } }]
    """
    cli("run", "Do it.", "--model", cli.script(script + DONE))
    for words in (("diff",), ("review",), ("undo", "-n"), ("undo",), ("redo",), ("keep",)):
        result = cli(*words)
        assert "\x1b" not in result.out + result.err
        assert "e\\x1b[31m.txt" in result.out


def test_what_cannot_be_done_is_said(cli: CommandLine, chat: str) -> None:
    for words, code, sentence in [
        (("undo", "c_nowhere"), 1, "there is no chat 'c_nowhere'"),
        (("undo", "/etc/passwd"), 2, "is outside the project"),
        (("undo", "--hunk", "a.txt"), 2, "write PATH:N"),
        (("undo", "--hunk", "a.txt:" + "1" * 5_000), 2, "write PATH:N"),
        (("undo", "--hunk", "a.txt:7"), 1, "There is no hunk 7: the difference has 2"),
        (("undo", "--hunk", "b.txt:1"), 1, "Nothing of this chat is left to undo in b.txt"),
        (("undo", "a.txt", "--hunk", "a.txt:1"), 2, "either files or hunks"),
        (("undo", "--run", "9"), 2, "there is no run 9"),
        (("undo", "--files"), 2, "belong to --to"),
    ]:
        result = cli(*words)
        assert (result.code, result.out) == (code, "")
        assert sentence in result.err
    assert (cli.project / "a.txt").read_text() == AGENT
    elsewhere = cli("undo", env={"TREADLE_HOME": str(cli.folder / "other")})
    assert elsewhere.code == 1
    assert "no chat has worked in" in elsewhere.err


def test_a_chat_that_is_at_work_is_not_undone(elsewhere: CommandLine) -> None:
    faults = {"TREADLE_FAULTS": "kill@model.before_call#2"}
    elsewhere("run", "Write.", "--model", elsewhere.script(MORE + DONE), env=faults)
    assert (elsewhere.project / "b.txt").exists()
    refused = elsewhere("undo")
    assert refused.code == 1
    assert "undo when it is idle" in refused.err
    assert elsewhere("resume", "last").code == 0
    assert elsewhere("undo").code == 0
    assert not (elsewhere.project / "b.txt").exists()


def test_an_earlier_run_is_undone_below_a_later_one(cli: CommandLine, chat: str) -> None:  # W-02, W-03
    def edit(old: str, new: str) -> str:
        args = f'{{ path = "a.txt", old_str = "{old}", new_str = "{new}" }}'
        return f'[[turn]]\ncall = [{{ name = "edit_file", args = {args} }}]\n'

    more = WORK + edit("line 10", "ten") + DONE
    assert cli("run", "Ten.", "--chat", chat, "--model", cli.script(more, "ten.toml")).code == 0
    undone = cli("undo", "--run", "1", "a.txt")
    assert (undone.code, undone.out) == (0, "M a.txt +2 -2\n")
    assert (cli.project / "a.txt").read_text() == text((10, "ten\n"))
    assert cli("diff", "--run", "2", "--stat").out == "M a.txt +1 -1\n"
    assert cli("redo").code == 0
    more += edit("eighteen", "XVIII") + DONE
    assert cli("run", "Eighteen.", "--chat", chat, "--model", cli.script(more, "eighteen.toml")).code == 0
    refused = cli("undo", "--run", "1", "a.txt")
    assert refused.code == 1
    assert refused.out.startswith(
        "✗ a.txt was not changed: run 3 changed it later, and both changed the same lines (at 18)"
    )
    assert "--merge" not in refused.err
    assert (cli.project / "a.txt").read_text() == text((2, "two\n"), (10, "ten\n"), (18, "XVIII\n"))
    assert cli("undo").code == 0
    assert cli("undo", "--run", "1").code == 0
    assert files(cli) == {"a.txt": text((10, "ten\n"))}


@pytest.mark.thorough(one_of=8)
def test_very_many_files_are_all_counted(cli: CommandLine) -> None:  # W-04, D-06
    many = "for i in $(seq 1 250); do echo $i > f$i; done"
    script = f'[[turn]]\ncall = [{{ name = "run_command", args = {{ command = "{many}" }} }}]\n' + DONE
    result = cli("run", "Make many.", "--model", cli.script(script), "--mode", "autopilot", "--auto-approve-commands")
    assert f"changed in all: 250 files, +250 {MINUS}0" in result.err
    assert f"250 files, +250 {MINUS}0" in cli("diff", "--stat").err
    assert f"undone: 250 files, +0 {MINUS}250" in cli("undo").err
    assert f"redone: 250 files, +250 {MINUS}0" in cli("redo").err
    assert f"kept: 250 files, +250 {MINUS}0" in cli("keep").err
    assert f"changed in all: 250 files, +250 {MINUS}0" in cli("show", "last").err


KILLS = ("transaction.ready", "transaction.put", "restore.after")


def at_work(elsewhere: CommandLine) -> str:
    """A chat with two runs: the one of `WORK`, and one that makes b.txt. Its id."""
    (elsewhere.project / "a.txt").write_text(text())
    run_result = elsewhere("run", "Do the work.", "--model", elsewhere.script(WORK), "--json")
    chat = str(run_result.events[0]["chat"])
    model = elsewhere.script(WORK + MORE + DONE, "more.toml")
    assert elsewhere("run", "And more.", "--chat", chat, "--model", model).code == 0
    return chat


@pytest.mark.parametrize("point", KILLS)
def test_a_killed_undo_is_completed_by_asking_again(elsewhere: CommandLine, point: str) -> None:  # W-02, fault 3
    chat = at_work(elsewhere)
    assert elsewhere("undo", "--run", "1", env={"TREADLE_FAULTS": f"kill@{point}"}).code < 0
    again = elsewhere("undo", "--run", "1")
    assert again.code == 0, again
    assert "the undo that was begun before and did not end is completed first" in again.err
    assert (again.out, files(elsewhere)) == ("M a.txt +2 -2\nD made/new.txt -1\n", {"a.txt": text(), "b.txt": "more\n"})
    assert f"undone: 2 files, +2 {MINUS}3 · back: treadle redo {chat}" in again.err
    assert elsewhere("redo").code == 0
    assert files(elsewhere) == {"a.txt": AGENT, "made/new.txt": "agent\n", "b.txt": "more\n"}


def test_a_killed_undo_of_the_last_run_takes_no_other_run_back(elsewhere: CommandLine) -> None:  # fault 3
    at_work(elsewhere)
    assert elsewhere("undo", env={"TREADLE_FAULTS": "kill@transaction.removed"}).code < 0
    assert not (elsewhere.project / "b.txt").exists()
    show_result = elsewhere("show", "last")
    assert "an unfinished undo · complete it: treadle resume" in show_result.err
    again = elsewhere("undo", "--json")
    assert (again.code, [file["path"] for file in again.lines[0]["files"]]) == (0, ["b.txt"])
    assert files(elsewhere) == {"a.txt": AGENT, "made/new.txt": "agent\n"}


@pytest.mark.thorough(one_of=8)
def test_a_preview_and_another_request_complete_what_was_begun(elsewhere: CommandLine) -> None:  # fault 3
    at_work(elsewhere)
    killed = {"TREADLE_FAULTS": "kill@transaction.put"}
    assert elsewhere("undo", "--run", "1", env=killed).code < 0
    preview = elsewhere("undo", "--preview", "--run", "1")
    assert preview.code == 0
    assert "completed first" in preview.err
    assert "nothing to undo" in preview.err
    assert elsewhere("redo", env=killed).code < 0
    again = elsewhere("redo")
    assert again.code == 0, again
    assert set(files(elsewhere)) == {"a.txt", "made/new.txt", "b.txt"}
    assert elsewhere("undo", "--run", "1", env=killed).code < 0
    assert elsewhere("redo").code == 0  # of the undo that it completes first
    assert set(files(elsewhere)) == {"a.txt", "made/new.txt", "b.txt"}
    assert elsewhere("undo").code == 0
    assert elsewhere("redo", env={"TREADLE_FAULTS": "kill@transaction.put"}).code < 0
    assert elsewhere("undo").code == 0  # of the last run, which the redo brought back
    assert files(elsewhere) == {"a.txt": AGENT, "made/new.txt": "agent\n"}


def test_on_a_terminal_somebody_is_asked(cli: CommandLine, chat: str) -> None:
    with person(cli, "undo") as someone:
        someone.sees(f"undo 2 files, +2 {MINUS}3? [y/N]")
        someone.types("n")
        assert someone.leaves() == 1
    assert (cli.project / "a.txt").read_text() == AGENT
    with person(cli, "undo") as someone:
        someone.sees("[y/N]")
        someone.types("y")
        assert someone.leaves() == 0
    assert files(cli) == {"a.txt": text()}


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_a_run_may_have_a_branch_of_its_own(cli: CommandLine) -> None:  # W-06
    subprocess.run(["git", "init", "-q", "-b", "main"], cwd=cli.project, check=True)
    run_result = cli("run", "Write.", "--model", cli.script(MORE + DONE), "--git-branch", "--json")
    branches = run_result.of("git.branch_created")
    assert [(each["branch"], each["previous"]) for each in branches] == [
        (f"treadle/{run_result.events[0]['chat']}-{run_result.of('checkpoint.created')[0]['message']}", "main")
    ]
    head = (cli.project / ".git/HEAD").read_text()
    assert head == f"ref: refs/heads/{branches[0]['branch']}\n"
    looked = cli("run", "Look.", "--model", cli.script(DONE, "look.toml"), "--git-branch", "--json")
    assert looked.of("git.branch_created") == []  # nothing was to be changed
