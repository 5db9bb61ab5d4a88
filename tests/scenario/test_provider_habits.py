"""`treadle run` with what only some providers do: thinking that must come back, tokens that end, signatures of another
model's calls, windows that a server must be told (M-01, M-03, M-04, M-07, M-10, M-11)."""

import socket
from typing import Any

import msgspec
import pytest

from tests.fake_copilot import FakeCopilot
from tests.scenario.command_line import CommandLine
from tests.scenario.providers import PROVIDERS, signatures
from tests.scenario.three_rounds import DONE, PROMPT, REPLIES, in_words, prepare, three_rounds
from treadle.adapters.models.gemini.adapter import STAND_IN
from treadle.base.types import JsonObject
from treadle.testing.fake_gemini import FakeGemini
from treadle.testing.fake_model import Reply
from treadle.testing.fake_ollama import FakeOllama
from treadle.testing.fake_openai import FakeOpenAI

pytestmark = pytest.mark.thorough(one_of=8)

GEMINI, OLLAMA = PROVIDERS["gemini"].model, PROVIDERS["ollama"].model


def test_thinking_goes_back_out_of_the_log(cli: CommandLine) -> None:
    thoughts = ["First I look.", "", "Now I run “it”.", "Done."]

    def reply(request: JsonObject) -> Reply:
        messages: Any = request["messages"]
        returned = [message.get("reasoning_content") for message in messages if message["role"] == "assistant"]
        if returned != thoughts[: len(returned)]:
            return Reply(status=400, error={"message": f"reasoning_content must be passed back, not {returned}"})
        return msgspec.structs.replace(REPLIES[len(returned)], thinking=thoughts[len(returned)])

    with FakeOpenAI(reply) as fake:
        result = three_rounds(cli, "deepseek:deepseek-flash", {"DEEPSEEK_BASE_URL": fake.base_url})
    assert result._replace(results=()) == DONE
    assert len(fake.requests) == 4


def test_a_token_that_ends_at_every_turn(cli: CommandLine) -> None:  # M-11
    replies = iter(REPLIES)

    def reply(_: JsonObject) -> Reply:
        fake.expire()
        return next(replies)

    with FakeCopilot(reply) as fake:
        result = three_rounds(cli, "copilot:gpt-4.1", fake.env)
    assert result._replace(results=()) == DONE
    assert fake.exchanges == 4


def test_a_refused_token_says_what_to_do(cli: CommandLine) -> None:
    with FakeCopilot(REPLIES) as fake:
        run_result = cli(
            "run", "Hi.", "--model", "copilot:gpt-4.1", "--json", env={**fake.env, "COPILOT_GITHUB_TOKEN": "x" * 9}
        )
    assert run_result.code == 1
    error = run_result.of("session.error")[0]
    assert error["class"] == "auth"
    assert "Bad credentials" in error["message"]
    assert "COPILOT_GITHUB_TOKEN" in error["message"]


def test_a_chat_that_another_model_began_goes_on(cli: CommandLine) -> None:  # fault 24
    with FakeOpenAI(REPLIES) as fake_openai, FakeGemini(lambda request: Reply(text="Gladly.")) as fake:
        env = {"OPENAI_BASE_URL": fake_openai.base_url, "GEMINI_BASE_URL": fake.base_url}
        three_rounds(cli, "openai:gpt-4.1", env)
        run_result = cli("run", "Thanks.", "--chat", "last", "--model", GEMINI, "--json", env=env)
    assert run_result.code == 0
    assert run_result.of("assistant.message")[-1]["content"] == "Gladly."
    assert "model.notice" not in run_result.types
    assert signatures(fake) == [STAND_IN] * 3


def test_the_same_task_with_a_model_that_cannot_call_tools(cli: CommandLine) -> None:  # M-07
    with FakeOllama([in_words(reply) for reply in REPLIES], capabilities=["completion"]) as fake:
        result = three_rounds(cli, "ollama:gemma3", {"OLLAMA_HOST": fake.url})
    assert result._replace(results=(), messages=[], streamed_text="") == DONE._replace(messages=[], streamed_text="")
    assert [text.strip() for text in result.messages] == DONE.messages
    assert not any("tools" in request for request in fake.requests)


def test_every_call_asks_for_the_window_that_the_user_chose(cli: CommandLine) -> None:
    """Another one would make the server load the model anew each time."""
    prepare(cli)
    silent = [Reply(calls=REPLIES[0].calls), Reply(text="")]

    def script(request: dict[str, object]) -> Reply:
        return silent[min(1, len(fake.requests) - 1)] if "tools" in request else Reply(text="It read a file.")

    with FakeOllama(script) as fake:
        env = {"OLLAMA_HOST": fake.url, "TREADLE_CONTEXT_WINDOW": "12000"}
        run_result = cli("run", PROMPT, "--model", OLLAMA, "--json", env=env)
    assert run_result.code == 0
    assert [data["purpose"] for data in run_result.of("session.model_call")] == ["summary"]
    assert {request["options"]["num_ctx"] for request in fake.requests} == {12_000}
    assert len(fake.requests) == 3


def test_what_a_user_is_told(cli: CommandLine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        free_address = f"127.0.0.1:{listener.getsockname()[1]}"
    env = {"OLLAMA_HOST": free_address, "TREADLE_RETRY_BASE_S": "0"}
    run_result = cli("run", "Hi.", "--model", OLLAMA, "--json", env=env)
    assert run_result.code == 1
    assert "ollama serve" in run_result.of("session.error")[0]["message"]
    assert len(run_result.of("assistant.turn_retry")) == 1  # a server that does not run is tried once more
    with FakeOllama([Reply(text="Hi.")], models=["llama3.2"]) as fake:
        run_result = cli("run", "Hi.", "--model", OLLAMA, "--json", env={"OLLAMA_HOST": fake.url})
        assert (run_result.code, run_result.of("assistant.turn_retry")) == (1, [])
        assert "ollama pull qwen3:8b" in run_result.of("session.error")[0]["message"]
