"""`treadle run` with a program as its model: the same task as with all others, calls in the text; an answer in words
only; and a failure (M-06, M-07, M-13)."""

import json
import sys
from pathlib import Path

from tests.scenario.command_line import CommandLine
from tests.scenario.three_rounds import DONE, REPLIES, in_words, three_rounds

KEY = "sk-test-51a0c3d9e7b2f4a6c8d0"


def program(path: Path, code: str) -> str:
    path.write_text(f"#!{sys.executable}\nimport json, os, sys\n{code}\n")
    path.chmod(0o755)
    return str(path)


def test_the_same_task_gives_the_same_result(cli: CommandLine, tmp_path: Path) -> None:
    texts = json.dumps([in_words(reply).text for reply in REPLIES])
    code = f"said = json.loads({texts!r})\nprint(said[sys.stdin.read().count('### Assistant\\n') - 1])"
    path = program(tmp_path / "talker", code)
    outcome = three_rounds(cli, "command:talker", {"TREADLE_COMMAND_TALKER": path, "OPENAI_API_KEY": KEY})
    assert (outcome.code, outcome.files, outcome.calls) == (DONE.code, DONE.files, DONE.calls)
    assert [text.strip() for text in outcome.messages] == DONE.messages
    assert [finish for *_, finish in outcome.turns] == [finish for *_, finish in DONE.turns]


def test_an_answer_in_words(cli: CommandLine, tmp_path: Path) -> None:  # M-13: and no key
    code = "print(sys.stdin.read().count('### User'), os.environ.get('OPENAI_API_KEY'))"
    env = {"TREADLE_COMMAND_COUNT": program(tmp_path / "count", code), "OPENAI_API_KEY": KEY}
    run_result = cli("run", "Hi.", "--model", "command:count", "--json", env=env)
    assert (run_result.code, [data["content"] for data in run_result.of("assistant.message")]) == (0, ["1 None"])
    assert [data["kind"] for data in run_result.of("model.notice")] == ["consent", "rung"]
    usage = run_result.of("assistant.turn_end")[0]["usage"]
    assert (usage["estimated"], usage["input"] > 0) == (True, True)


def test_a_program_that_fails_is_not_run_again(cli: CommandLine, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    path = program(tmp_path / "broken", f"open({str(runs)!r}, 'a').write('x')\nsys.exit('no such model: gpt-9')")
    run_result = cli("run", "Hi.", "--model", f"command:{path}", "--json")
    assert run_result.code == 1
    assert "no such model: gpt-9" in run_result.of("session.error")[0]["message"]
    assert runs.read_text() == "x"
