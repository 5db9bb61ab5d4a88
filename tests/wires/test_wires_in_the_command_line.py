"""Cases that say how a run ends are played through the real command line: exit code and last words (L-11, M-11)."""

import msgspec
import pytest

from tests.scenario.command_line import CommandLine, Ended
from tests.wires.case import Case, all_cases, encode_reply, reach
from treadle.testing.fake_http import FakeResponse, Headers, ThreadedServer, json_answer

RUNS = [(model, case) for model, case in all_cases() if case.run is not None]


def run(cli: CommandLine, model: str, case: Case, *options: str) -> Ended:
    """One run against a server that gives the case's replies in their order, and then the last again."""
    replies = list(case.all_replies)

    def answer(_method: str, path: str, _headers: Headers, _body: bytes) -> FakeResponse:
        if path.endswith("/api/show"):
            return json_answer(404, {"error": "unknown"})
        reply = replies.pop(0) if len(replies) > 1 else replies[0]
        return encode_reply(reply, lines=model.startswith("ollama:"))

    with ThreadedServer(answer) as server:
        return cli("run", "Hi.", "--model", model, *options, env=reach(model, f"{server.url}/v1"))


@pytest.mark.parametrize(("model", "case"), [pytest.param(model, case, id=case.name) for model, case in RUNS])
def test_run(cli: CommandLine, model: str, case: Case) -> None:
    ended, shown = run(cli, model, case, "--json"), run(cli, model, case)
    assert case.run is not None
    assert (ended.code, shown.code) == (case.run.exit, case.run.exit), ended.err + shown.err
    assert case.run.says in shown.out + shown.err
    (end,) = ended.of("session.run_end")
    assert end["reason"] == {0: "done", 1: "error", 54: "incomplete"}[case.run.exit], msgspec.json.encode(end)


HELLO = Case(
    "hello",
    "https://platform.openai.com/docs/api-reference/chat-streaming",
    events=['{"choices":[{"index":0,"delta":{"content":"Hello."},"finish_reason":"stop"}]}', "[DONE]"],
)


def test_a_budget_without_a_price_is_refused(cli: CommandLine) -> None:  # L-11
    ended = run(cli, "openai:some-model", HELLO, "--budget-usd", "0.01")
    assert ended.code == 1
    assert "the price of openai:some-model is unknown" in ended.err
    assert "Hello." not in ended.out
    assert run(cli, "openai:some-model", HELLO, "--budget-tokens", "100000").code == 0
    assert run(cli, "vllm:some-model", HELLO, "--budget-usd", "0.01").code == 0  # on a machine of the user
    (cli.home / "models.toml").write_text('["openai:some-model"]\nprice_input = 1.0\nprice_output = 2.0\n')
    priced = run(cli, "openai:some-model", HELLO, "--budget-usd", "0.5")
    assert (priced.code, "Hello." in priced.out) == (0, True)
