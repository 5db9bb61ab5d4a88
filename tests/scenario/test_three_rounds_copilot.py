"""`treadle run` against the fake Copilot: the same task with the same result on both of its protocols, with tokens that
end in between and are found nowhere afterwards (M-01, M-11, M-13)."""

import pytest

from tests.scenario.command_line import CommandLine
from tests.scenario.three_rounds import DONE, REPLIES, three_rounds
from treadle.testing.fake_copilot import GITHUB_TOKEN, FakeCopilot, Reply
from treadle.types import JsonObject


@pytest.mark.parametrize("name", ["gpt-4.1", "gpt-5.3-codex"])
def test_the_same_task_gives_the_same_result(cli: CommandLine, name: str) -> None:
    with FakeCopilot(REPLIES, only_responses=["gpt-5.3-codex"]) as fake:
        done = three_rounds(cli, f"copilot:{name}", fake.env)
    assert done._replace(results=()) == DONE
    assert fake.exchanges == 1
    assert {path for path in fake.paths} == {"/chat/completions" if name == "gpt-4.1" else "/responses"}
    assert [headers["x-initiator"] for headers in fake.headers] == ["user", "agent", "agent", "agent"]
    kept = b"".join(path.read_bytes() for path in cli.files())
    assert GITHUB_TOKEN.encode() not in kept
    assert b"tid=" not in kept


def test_a_token_that_ends_at_every_turn(cli: CommandLine) -> None:  # M-11
    taken = iter(REPLIES)

    def reply(_: JsonObject) -> Reply:
        fake.expire()
        return next(taken)

    with FakeCopilot(reply) as fake:
        done = three_rounds(cli, "copilot:gpt-4.1", fake.env)
    assert done._replace(results=()) == DONE
    assert fake.exchanges == 4


def test_a_refused_token_says_what_to_do(cli: CommandLine) -> None:
    with FakeCopilot(REPLIES) as fake:
        ended = cli(
            "run", "Hi.", "--model", "copilot:gpt-4.1", "--json", env={**fake.env, "COPILOT_GITHUB_TOKEN": "x" * 9}
        )
    assert ended.code == 1
    error = ended.of("session.error")[0]
    assert error["class"] == "auth"
    assert "Bad credentials" in error["message"]
    assert "COPILOT_GITHUB_TOKEN" in error["message"]
