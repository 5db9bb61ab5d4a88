"""`treadle apply`: a patch or a fenced block, from a file, standard input or a chat's last answer (L-18, U-07)."""

from pathlib import Path

import pytest

from tests.scenario.command_line import CommandLine

pytestmark = pytest.mark.thorough(one_of=8)

UNIFIED = """--- a/a.txt
+++ b/a.txt
@@ -1,2 +1,2 @@
 one
-two
+zwei
"""
ENVELOPE = """*** Begin Patch
*** Update File: a.txt
@@
 one
-two
+zwei
*** Add File: b.txt
+new
*** End Patch
"""
ANSWER = '[[turn]]\ntext = "Like this:\\n\\n```python\\nprint(1)\\n```\\n"\n'


@pytest.fixture
def file(cli: CommandLine) -> Path:
    path = cli.project / "a.txt"
    path.write_text("one\ntwo\n")
    return path


@pytest.mark.parametrize("patch", [UNIFIED, ENVELOPE, f"Take this:\n\n```diff\n{UNIFIED}```\n"])
def test_a_patch_is_shown_applied_and_undone(cli: CommandLine, file: Path, patch: str) -> None:
    preview = cli("apply", "--preview", input=patch)
    assert (preview.code, file.read_text()) == (0, "one\ntwo\n")
    assert "-two\n+zwei\n" in preview.out
    assert "nothing was changed" in preview.err
    assert cli("chats", "--json").out == ""
    apply_result = cli("apply", input=patch)
    assert (apply_result.code, file.read_text()) == (0, "one\nzwei\n")
    assert "applied: " in apply_result.err
    assert cli("undo", "-y").code == 0
    assert file.read_text() == "one\ntwo\n"
    assert not (cli.project / "b.txt").exists()


def test_all_of_it_or_nothing(cli: CommandLine, file: Path) -> None:
    other_patch = "--- a/missing.txt\n+++ b/missing.txt\n@@ -1 +1 @@\n-x\n+y\n"
    refused = cli("apply", input=UNIFIED + other_patch)
    assert refused.code == 1
    assert "missing.txt does not exist" in refused.err
    assert file.read_text() == "one\ntwo\n"
    (cli.folder / "fix.patch").write_text(UNIFIED)
    apply_result = cli("apply", str(cli.folder / "fix.patch"), "--json").lines[0]
    assert (apply_result["applied"], [each["path"] for each in apply_result["files"]]) == (True, ["a.txt"])
    again = cli("apply", str(cli.folder / "fix.patch"))
    assert (again.code, "already" in again.err) == (1, True)


def test_a_block_becomes_a_file(cli: CommandLine) -> None:
    two = "```\none\n```\nor\n```\ntwo\n```\n"
    unsaid = cli("apply", "--to", "x.py", input=two)
    assert (unsaid.code, "--block 1 to 2" in unsaid.err) == (2, True)
    assert cli("apply", "--to", "x.py", "--block", "2", input=two).code == 0
    assert (cli.project / "x.py").read_text() == "two\n"
    plain = cli("apply", input="no patch at all")
    assert (plain.code, "--to PATH" in plain.err) == (2, True)
    outside = cli("apply", "--to", "../x.py", input=two, env={"X": "1"})
    assert outside.code == 2


def test_the_last_answer_of_a_chat(cli: CommandLine) -> None:
    cli("run", "How?", "--model", cli.script(ANSWER))
    apply_result = cli("apply", "--chat", "last", "--to", "src/one.py", "--json").lines[0]
    assert (cli.project / "src/one.py").read_text() == "print(1)\n"
    assert [chat["chat"] for chat in cli("chats", "--json").lines] == [apply_result["chat"]]  # it is in that chat's log


def test_sensitive_files_need_a_yes(cli: CommandLine) -> None:  # S-06
    apply_result = cli("apply", "--to", ".env", input="A=1\n")
    assert apply_result.code == 1
    assert not (cli.project / ".env").exists()
    assert cli("apply", "--to", ".env", "--yes", input="A=1\n").code == 0
    assert (cli.project / ".env").read_text() == "A=1\n"


def test_what_makes_no_sense_is_refused(cli: CommandLine, file: Path) -> None:
    assert cli("apply", "-n", "-y", input=UNIFIED).code == 2
    assert cli("apply", "--chat", "last", "--root", ".", input=UNIFIED).code == 2
    assert cli("apply", "nowhere.patch").code == 2
    assert cli("apply", "--block", "3", "--to", "x", input="```\na\n```\n").code == 2
    assert file.read_text() == "one\ntwo\n"
