"""`treadle run` with a program as its model: an answer in words, and a failure (M-06, M-07, L-18)."""

import sys
from pathlib import Path

from tests.scenario.command_line import CommandLine

KEY = "sk-test-51a0c3d9e7b2f4a6c8d0"


def program(path: Path, code: str) -> str:
    path.write_text(f"#!{sys.executable}\nimport os, sys\n{code}\n")
    path.chmod(0o755)
    return str(path)


def test_an_answer_of_a_program(cli: CommandLine, tmp_path: Path) -> None:
    code = "asked = sys.stdin.read()\nprint(asked.count('### User'), os.environ.get('OPENAI_API_KEY'))"
    env = {"TREADLE_COMMAND_COUNT": program(tmp_path / "count", code), "OPENAI_API_KEY": KEY}
    first = cli("run", "Hi.", "--model", "command:count", "--json", env=env)
    assert (first.code, [data["content"] for data in first.of("assistant.message")]) == (0, ["1 None"])
    assert [data["kind"] for data in first.of("model.notice")] == ["no_tools"]
    usage = first.of("assistant.turn_end")[0]["usage"]
    assert (usage["estimated"], usage["input"] > 0) == (True, True)


def test_a_program_that_fails(cli: CommandLine, tmp_path: Path) -> None:
    path = program(tmp_path / "broken", "sys.exit('no such model: gpt-9')")
    ended = cli("run", "Hi.", "--model", f"command:{path}", "--json")
    assert ended.code == 1
    assert "no such model: gpt-9" in ended.of("session.error")[0]["message"]
    assert ended.of("assistant.turn_retry") == []
