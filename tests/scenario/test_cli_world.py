"""Worlds from the command line (W-11 to W-13)."""

import pytest

from tests.scenario.command_line import CommandLine

pytestmark = pytest.mark.thorough(one_of=8)

SCRIPT = """
[[turn]]
call = [{ name = "write_file", args = { path = "new.txt", content = "new\\n" } },
        { name = "run_command", args = { command = "echo more >> old.txt" } }]
[[turn]]
text = "Done."
"""


@pytest.mark.thorough(one_of=8)
def test_a_run_in_a_world_is_looked_at_entered_committed_and_undone(cli: CommandLine) -> None:
    old = cli.project / "old.txt"
    old.write_text("old\n")
    ran = cli("run", "Go.", "--world", "--mode", "auto-edit", "--model", cli.script(SCRIPT))
    assert ran.code == 0, ran.err
    (world,) = cli("world", "list", "--json").lines
    assert f"into the project: treadle world commit {world['id']}" in ran.err
    assert [path.name for path in cli.project.iterdir()] == ["old.txt"]
    assert cli("world", "enter", world["id"], "--", "cat", "old.txt", "new.txt").out == "old\nmore\nnew\n"
    assert {file["path"] for file in cli("world", "show", world["id"], "--json").lines[0]["files"]} == {
        "new.txt",
        "old.txt",
    }
    (commit,) = cli("world", "commit", world["id"], "--json").lines
    assert old.read_text() == "old\nmore\n"
    assert cli("undo", commit["chat"], "--yes").code == 0
    assert old.read_text() == "old\n"
    assert [path.name for path in cli.project.iterdir()] == ["old.txt"]
    assert cli("world", "drop", world["id"]).code == 0
    assert cli("world", "list", "--json").lines == []


@pytest.mark.thorough(one_of=8)
def test_what_both_changed_is_refused_and_merged_by_a_rebase(cli: CommandLine) -> None:
    old = cli.project / "old.txt"
    old.write_text("".join(f"line {number}\n" for number in range(20)))
    assert cli("run", "Go.", "--world", "--mode", "auto-edit", "--model", cli.script(SCRIPT)).code == 0
    (world,) = cli("world", "list", "--json").lines
    old.write_text("first\n" + old.read_text())
    refused = cli("world", "commit", world["id"], "--yes")
    assert refused.code != 0
    assert f"treadle world rebase {world['id']}" in refused.err
    assert not (cli.project / "new.txt").exists()
    assert cli("world", "rebase", world["id"]).out == "merged old.txt\n"
    assert cli("world", "commit", world["id"], "--yes").code == 0
    assert old.read_text().startswith("first\nline 0\n")
    assert old.read_text().endswith("line 19\nmore\n")


SENSITIVE = """
[[turn]]
call = [{ name = "write_file", args = { path = "AGENTS.md", content = "obey\\n" } }]
[[turn]]
text = "Done."
"""


def test_a_commit_asks_about_sensitive_files(cli: CommandLine) -> None:  # W-12, S-06
    run_words = ("run", "Go.", "--world", "--mode", "auto-edit", "--model", cli.script(SENSITIVE))
    assert cli(*run_words, env={"TREADLE_AUTO_APPROVE_SENSITIVE_EDITS": "true"}).code == 0
    (world,) = cli("world", "list", "--json").lines
    waits = cli("world", "commit", world["id"], "--yes")
    assert waits.code != 0
    assert "treadle approve" in waits.err
    assert not (cli.project / "AGENTS.md").exists()
    (pending,) = cli("pending", "--json").lines
    assert cli("approve", pending["chat"]).code == 0
    assert (cli.project / "AGENTS.md").read_text() == "obey\n"


def test_a_world_that_is_not_there(cli: CommandLine) -> None:
    for words in (("show",), ("commit", "--yes"), ("rebase",), ("drop",), ("enter",)):
        result = cli("world", words[0], "world_none", *words[1:])
        assert result.code != 0
        assert "world_none" in result.err


WRITES = """
[[turn]]
call = [{ name = "write_file", args = { path = "b.txt", content = "made\\n" } }]

[[turn]]
text = "Done."
"""


@pytest.mark.thorough(one_of=8)
def test_a_world_is_entered_rebased_and_committed(cli: CommandLine) -> None:
    (cli.project / "a.txt").write_text("one\ntwo\nthree\n")
    ran = cli("run", "--model", cli.script(WRITES), "--world", "Write it.")
    assert ran.code == 0, ran.err
    assert not (cli.project / "b.txt").exists()
    (world,) = cli("world", "list", "--json").lines
    assert "+made" in cli("world", "show", world["id"]).out
    inside = cli("world", "enter", world["id"], "--", "sh", "-c", "cat b.txt; sed -i s/three/3/ a.txt; pwd; exit 7")
    assert (inside.code, inside.out) == (7, f"made\n{cli.project}\n")
    (cli.project / "a.txt").write_text("1\ntwo\nthree\n")
    refused = cli("world", "commit", "-y", world["id"])
    assert refused.code == 1
    assert "treadle world rebase" in refused.err
    assert "merged a.txt" in cli("world", "rebase", world["id"]).out
    committed = cli("world", "commit", "-y", world["id"])
    assert committed.code == 0, committed.err
    assert (cli.project / "a.txt").read_text() == "1\ntwo\n3\n"
    assert (cli.project / "b.txt").read_text() == "made\n"
    assert cli("undo", "-y").code == 0
    assert (cli.project / "a.txt").read_text() == "1\ntwo\nthree\n"
    assert not (cli.project / "b.txt").exists()
    assert cli("world", "drop", world["id"]).code == 0
    assert cli("world", "list", "--json").out == ""
    assert cli("world", "show", "nonsense").code == 1
