"""The command line shows neither internal names of the program nor escapes in place of line ends (U-10)."""

import re
from pathlib import Path

import pytest

from tests.scenario.command_line import NO_LOCAL_SERVER, CommandLine

pytestmark = pytest.mark.thorough(one_of=8)

INTERNAL = re.compile(r"requires_action|awaiting_action|\bpending\b|\\n|\\t|session\.[a-z]|tool\.execution|Traceback")
TWO_LINES = r"echo one\necho two > made.txt"
ASK = f'[[turn]]\ncall = [{{ name = "run_command", args = {{ command = "{TWO_LINES}" }} }}]\n'
QUESTION = '[[turn]]\ncall = [{ name = "ask_user", args = { question = "First line?\\nSecond line?" } }]\n'
DONE = '[[turn]]\ntext = "Done."\n'
COMMANDS = (
    ["chats"],
    ["show", "last"],
    ["pending"],
    ["undo", "last", "--yes"],
    ["redo", "last"],
    ["keep", "last"],
    ["diff", "last"],
    ["review", "last"],
    ["jobs"],
    ["run", "More.\nAnd more.", "--chat", "last"],
    ["resume", "last"],
    ["approve"],
    ["stop", "last"],
    ["resume", "last"],
    ["chats"],
    ["undo", "nosuchchat"],
    ["approve", "nosuchchat"],
)


@pytest.mark.thorough(one_of=8)
@pytest.mark.parametrize("script", [ASK, QUESTION], ids=["approval", "question"])
def test_a_chat_that_waits(cli: CommandLine, script: str) -> None:
    model = cli.script(script + DONE)
    first = cli("run", "Line one.\nLine two.", "--model", model, "--mode", "confirm", "--interactive")
    assert first.code == 56
    texts = {"run": first.out + first.err}
    for words in COMMANDS:
        result = cli(*words)
        texts[" ".join(words)] = f"{result.out}{result.err}"
    assert {words: INTERNAL.findall(text) for words, text in texts.items() if INTERNAL.search(text)} == {}


def test_a_chat_that_was_killed(cli: CommandLine) -> None:
    faults = {"TREADLE_FAULTS": "kill@tool.edit_after"}
    (cli.project / "a.py").write_text("x = 1\n")
    edit = '[[turn]]\ncall = [{ name = "edit_file", args = { path = "a.py", old_str = "1", new_str = "2" } }]\n'
    assert cli("run", "Edit.", "--model", cli.script(edit + DONE), env=faults).code == -9
    texts = {}
    for words in (["chats"], ["show", "last"], ["undo", "last", "--yes"], ["run", "More.", "--chat", "last"]):
        result = cli(*words)
        texts[" ".join(words)] = f"{result.out}{result.err}"
    assert {words: INTERNAL.findall(text) for words, text in texts.items() if INTERNAL.search(text)} == {}


def test_no_model_names_the_choices(cli: CommandLine, tmp_path: Path) -> None:
    run_result = cli("run", "Hi.", env=NO_LOCAL_SERVER)
    assert run_result.code == 2
    assert INTERNAL.findall(run_result.err) == []
    for choice in ("export OPENAI_API_KEY=…", "Ollama", "--model provider:name", "treadle demo"):
        assert choice in run_result.err
    two = cli("run", "Hi.", env={**NO_LOCAL_SERVER, "OPENAI_API_KEY": "x" * 20, "XAI_API_KEY": "y" * 20})
    assert two.code == 2
    assert "--model openai:" in two.err
    assert "--model xai:" in two.err
