"""Cases that say how a run ends are played through the real command line: exit code and last words (L-11, M-11)."""

from socket import socket
from time import monotonic
from typing import Any, get_args

import msgspec
import pytest

from tests.scenario.command_line import CommandLine, CommandResult
from tests.unit.adapters.models.test_reasoning_effort import greeting
from tests.wires.case import Case, Reply, all_cases, all_servers, encode_reply, reach
from treadle.chat.assembly import CALLS
from treadle.errors import ModelErrorKind
from treadle.testing.fake_http import (
    END,
    FakeResponse,
    Headers,
    ThreadedServer,
    encode_chunk,
    encode_head,
    make_json_answer,
)

pytestmark = pytest.mark.thorough(one_of=12)

RUNS = [(model, case) for model, case in all_cases() if case.run is not None]


def run(
    cli: CommandLine, model: str, case: Case, *options: str, bodies: list[dict[str, Any]] | None = None
) -> CommandResult:
    """One run against a server that gives the case's replies in their order, and then the last again. The requests are
    added to `bodies`."""
    replies = list(case.all_replies)

    def answer(method: str, path: str, _headers: Headers, body: bytes) -> FakeResponse:
        if path.endswith("/api/show") or method == "GET":
            return make_json_answer(404, {"error": "unknown"})
        if bodies is not None:
            bodies.append(msgspec.json.decode(body))
        reply = replies.pop(0) if len(replies) > 1 else replies[0]
        return encode_reply(reply, lines=model.startswith("ollama:"))

    with ThreadedServer(answer) as server:
        return cli("run", "Hi.", "--model", model, *options, env=reach(model, f"{server.url}/v1"))


@pytest.mark.parametrize(("model", "case"), [pytest.param(model, case, id=case.name) for model, case in RUNS])
def test_run(cli: CommandLine, model: str, case: Case) -> None:
    json_result, text_result = run(cli, model, case, "--json"), run(cli, model, case)
    assert case.run is not None
    assert (json_result.code, text_result.code) == (case.run.exit, case.run.exit), json_result.err + text_result.err
    assert case.run.says in text_result.out + text_result.err
    (end,) = json_result.of("session.run_end")
    assert end["reason"] == {0: "done", 1: "error", 54: "incomplete"}[case.run.exit], msgspec.json.encode(end)


INCOMPLETE = ("length", "content_filter", "refusal")


def pick_sweep() -> list[tuple[str, Case, int, str]]:
    """For each server the first case of each ending and of each error kind: with the exit code, and the error class."""
    picked: dict[tuple[str, str], tuple[str, Case, int, str]] = {}
    for server in all_servers():
        for case in server.case:
            model, answer, error = case.model or server.model, case.answer, case.error
            if case.run is not None or case.cut or case.effort or case.earlier or len(case.replies) > 1:
                continue
            if error is not None and not error.retry_after:
                picked.setdefault((server.server, error.kind), (model, case, 1, error.kind))
            elif answer is not None and answer.finish and not (answer.calls or answer.cut):
                code = 54 if answer.finish in INCOMPLETE or not (answer.text or "").strip() else 0
                picked.setdefault((server.server, answer.finish), (model, case, code, ""))
    return list(picked.values())


SWEEP = pick_sweep()


@pytest.mark.parametrize(("model", "case", "code", "kind"), [pytest.param(*each, id=each[1].name) for each in SWEEP])
def test_each_ending_and_error_of_each_server(cli: CommandLine, model: str, case: Case, code: int, kind: str) -> None:
    result = run(cli, model, case, "--json")
    assert result.code == code, result.err
    assert [error["class"] for error in result.of("session.error")] == ([kind] if kind else [])


def test_each_error_kind_and_each_ending_is_run() -> None:  # M-11
    """The last three need a server of another kind and have tests below."""
    kinds = {case.error.kind for _, case in RUNS if case.error} | {kind for *_, kind in SWEEP}
    assert kinds - {""} | {"network", "silence", "answer_limit"} == set(get_args(ModelErrorKind))
    swept = {case.answer.finish for _, case, *_ in [*RUNS, *SWEEP] if case.answer}
    assert swept >= {"stop", "pause_turn", *INCOMPLETE}


CUT_CALLS = [(model, case) for model, case in all_cases() if case.answer and case.answer.cut and case.answer.cut[-1]]


@pytest.mark.parametrize(("model", "case"), [pytest.param(*each, id=each[1].name) for each in CUT_CALLS])
def test_a_call_that_was_cut_is_not_run(cli: CommandLine, model: str, case: Case) -> None:  # M-08
    """With a tool that takes an empty call: the model is told that its call was cut, and answers in words."""
    events = [event.replace("list_files", "list_directory") for event in case.events]
    bodies: list[dict[str, Any]] = []
    replies = [Reply(events=events), greeting(model)]
    result = run(cli, model, Case("cut", replies=replies), "--json", bodies=bodies)
    completion = result.of("tool.execution_complete")[-1]
    assert not completion["success"]
    assert len(bodies) == 2
    assert "cut off" in str(bodies[1])


@pytest.mark.parametrize(
    "name", ["groq-tool-use-failed-is-asked-again", "ollama-cannot-parse-its-model", "llamacpp-cannot-parse-its-model"]
)
def test_a_call_that_the_server_could_not_read_is_asked_for_again(cli: CommandLine, name: str) -> None:  # M-07
    """The next request still offers the tools by the protocol."""
    ((model, case),) = ((model, case) for model, case in all_cases() if case.name == name)
    bodies: list[dict[str, Any]] = []
    result = run(cli, model, Case("again", replies=[*case.all_replies, greeting(model)]), "--json", bodies=bodies)
    assert result.code == 0, result.err
    assert [retry["class"] for retry in result.of("assistant.turn_retry")] == ["cut_stream"]
    assert [bool(body.get("tools")) for body in bodies] == [True, True]
    assert "rung" not in [notice["kind"] for notice in result.of("model.notice")]


def test_a_server_that_says_nothing(cli: CommandLine) -> None:  # L-08
    def answer(_method: str, _path: str, _headers: Headers, _body: bytes) -> FakeResponse:
        return FakeResponse((encode_head(200, "text/event-stream") + encode_chunk(b": ping\n\n"), END), every_s=60)

    cli.environment |= {"TREADLE_SILENCE_S": "0.3", "TREADLE_RETRY_LIMIT_S": "0.1"}
    with ThreadedServer(answer) as server:
        env = reach("openai:some-model", f"{server.url}/v1")
        result = cli("run", "Hi.", "--model", "openai:some-model", "--json", env=env)
    assert (result.code, result.of("session.error")[0]["class"]) == (1, "silence")


def test_an_answer_over_a_limit(cli: CommandLine) -> None:  # M-08
    call = '{"choices":[{"index":0,"delta":{"tool_calls":[{"index":%d,"id":"c%d","function":{"name":"x"}}]}}]}'
    case = Case("many", events=[call % (number, number) for number in range(CALLS + 1)])
    bodies: list[dict[str, Any]] = []
    result = run(cli, "openai:some-model", case, "--json", bodies=bodies)
    assert (result.code, result.of("session.error")[0]["class"]) == (1, "answer_limit")
    assert len(bodies) == 1
    assert not result.of("tool.execution_start")


HELLO = Case(
    "hello",
    events=['{"choices":[{"index":0,"delta":{"content":"Hello."},"finish_reason":"stop"}]}', "[DONE]"],
)


def test_a_budget_without_a_price_is_refused(cli: CommandLine) -> None:  # L-11
    result = run(cli, "openai:some-model", HELLO, "--budget-usd", "0.01")
    assert result.code == 1
    assert "the price of openai:some-model is unknown" in result.err
    assert "Hello." not in result.out
    assert run(cli, "openai:some-model", HELLO, "--budget-tokens", "100000").code == 0
    assert run(cli, "vllm:some-model", HELLO, "--budget-usd", "0.01").code == 0  # on a machine of the user
    (cli.home / "models.toml").write_text('["openai:some-model"]\nprice_input = 1.0\nprice_output = 2.0\n')
    priced = run(cli, "openai:some-model", HELLO, "--budget-usd", "0.5")
    assert (priced.code, "Hello." in priced.out) == (0, True)


@pytest.mark.parametrize(
    ("model", "variable", "hint"),
    [
        ("ollama:some-model", "OLLAMA_HOST", "ollama serve"),
        ("llamacpp:some-model", "LLAMACPP_BASE_URL", "llama-server -m MODEL.gguf"),
        ("lmstudio:some-model", "LMSTUDIO_BASE_URL", "lms server start"),
        ("vllm:some-model", "VLLM_BASE_URL", "vllm serve MODEL"),
        ("openai:some-model", "OPENAI_BASE_URL", "check the base URL"),
    ],
)
def test_a_refused_connection_fails_within_seconds(cli: CommandLine, model: str, variable: str, hint: str) -> None:
    with socket() as unused_socket:
        unused_socket.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused_socket.getsockname()[1]}"
    del cli.environment["TREADLE_RETRY_BASE_S"]  # as users have it
    start_time = monotonic()
    result = cli("run", "Hi.", "--model", model, env={variable: f"http://{address}/v1", "OPENAI_API_KEY": "k"})
    assert monotonic() - start_time < 30  # 2 seconds of waiting; the rest is for a busy machine
    assert result.code == 1
    assert result.err.count("retry ") == 1
    assert address in result.err
    assert hint in result.err


DOWN = Case("down", status=503, body='{"error":{"message":"Service unavailable"}}')


def test_a_provider_that_stays_down_is_given_up(cli: CommandLine) -> None:  # M-11
    """The first failure is told at once; three waits of 2, 4 and 8 seconds are cut short here by a smaller base."""
    cli.environment["TREADLE_RETRY_BASE_S"] = "0.2"
    result = run(cli, "openai:some-model", DOWN, "--json")
    assert [retry["attempt"] for retry in result.of("assistant.turn_retry")] == [1, 2, 3, 4, 5]
    cli.environment["TREADLE_RETRY_LIMIT_S"] = "2"
    result = run(cli, "openai:some-model", DOWN, "--json")
    assert [retry["attempt"] for retry in result.of("assistant.turn_retry")] == [1, 2, 3]
    assert (result.code, result.of("session.error")[0]["class"]) == (1, "overloaded")
    text_result = run(cli, "openai:some-model", DOWN)
    assert "retry 1 (overloaded)" in text_result.err


def test_an_openrouter_model_without_a_price_is_held_to_its_budget_by_the_cost_that_is_told(cli: CommandLine) -> None:
    """L-11: the cost that the server reports counts; the second call is not made."""
    call = '{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"c1","function":{"name":"list_files"}}]}}]}'
    cost = '{"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":9,"cost":0.02}}'
    case = Case("cost", events=[call, cost, "[DONE]"])
    result = run(cli, "openrouter:acme/new-model", case, "--budget-usd", "0.01", "--json")
    assert result.code == 55
    assert len(result.of("assistant.turn_start")) == 1
