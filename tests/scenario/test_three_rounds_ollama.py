"""`treadle run` against the fake Ollama: the same task with the same result, also after a kill; and what a user is told
who has no server, no model, or no room (M-04, D-02)."""

import signal
import socket
from pathlib import Path

import msgspec

from tests.scenario.command_line import CommandLine, Ended
from tests.scenario.three_rounds import DONE, PROMPT, REPLIES, in_words, outcome, prepare, three_rounds
from treadle.testing.fake_ollama import FakeOllama, Reply
from treadle.testing.fake_openai import FakeOpenAI

MODEL = "ollama:qwen3:8b"
THINKING = [msgspec.structs.replace(reply, thinking=f"Step {at}: ü") for at, reply in enumerate(REPLIES)]


def folder(path: Path) -> CommandLine:
    path.mkdir()
    return CommandLine(path)


def test_the_same_task_gives_the_same_result(tmp_path: Path) -> None:
    with FakeOpenAI(REPLIES) as other:
        wanted = three_rounds(folder(tmp_path / "o"), "openai:gpt-4.1", {"OPENAI_BASE_URL": other.base_url})
    with FakeOllama(REPLIES) as fake:
        done = three_rounds(folder(tmp_path / "l"), MODEL, {"OLLAMA_HOST": fake.url.removeprefix("http://")})
    assert done == wanted
    assert done._replace(results=()) == DONE
    assert (len(fake.requests), fake.shown) == (4, ["qwen3:8b"])


def test_the_same_task_with_a_model_that_cannot_call_tools(cli: CommandLine) -> None:  # M-07
    with FakeOllama([in_words(reply) for reply in REPLIES], capabilities=["completion"]) as fake:
        done = three_rounds(cli, "ollama:gemma3", {"OLLAMA_HOST": fake.url})
    assert done._replace(results=(), said=[], shown="") == DONE._replace(said=[], shown="")
    assert [text.strip() for text in done.said] == DONE.said
    assert not any("tools" in request for request in fake.requests)


def test_thinking_is_recorded_and_stays_here_after_a_kill(cli: CommandLine) -> None:  # M-10, D-01
    prepare(cli)
    with FakeOllama(THINKING) as fake:
        env = {"OLLAMA_HOST": fake.url}
        killed = cli("run", PROMPT, "--model", MODEL, "--json", env=env | {"TREADLE_FAULTS": "kill@tool.write_after"})
        assert killed.code == -signal.SIGKILL
        resumed = cli("resume", "last", "--json", env=env)
        exported = cli("export", "last")
    done = outcome(cli, Ended(resumed.code, exported.out, ""))
    assert (done.code, done.files, done.said) == (0, DONE.files, DONE.said)
    thoughts = [block["text"] for data in exported.of("assistant.message") for block in data["reasoning"]]
    assert thoughts == [reply.thinking for reply in THINKING]
    assert "Step" not in str(fake.requests)
    tools = [message for message in fake.requests[-1]["messages"] if message["role"] == "tool"]
    assert [message["tool_name"] for message in tools] == ["read_file", "write_file", "run_command"]


def test_every_call_asks_for_the_window_that_the_user_chose(cli: CommandLine) -> None:
    """Another one would make the server load the model anew each time."""
    prepare(cli)
    silent = [Reply(calls=REPLIES[0].calls), Reply(text="")]

    def script(request: dict[str, object]) -> Reply:
        return silent[min(1, len(fake.requests) - 1)] if "tools" in request else Reply(text="It read a file.")

    with FakeOllama(script) as fake:
        env = {"OLLAMA_HOST": fake.url, "TREADLE_CONTEXT_WINDOW": "12000"}
        ended = cli("run", PROMPT, "--model", MODEL, "--json", env=env)
    assert ended.code == 0
    assert [data["purpose"] for data in ended.of("session.model_call")] == ["summary"]
    assert {request["options"]["num_ctx"] for request in fake.requests} == {12_000}
    assert len(fake.requests) == 3


def test_what_a_user_is_told(cli: CommandLine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        nobody = f"127.0.0.1:{taken.getsockname()[1]}"
    env = {"OLLAMA_HOST": nobody, "TREADLE_RETRY_BASE_S": "0"}
    ended = cli("run", "Hi.", "--model", MODEL, "--json", env=env)
    assert ended.code == 1
    assert "ollama serve" in ended.of("session.error")[0]["message"]
    assert len(ended.of("assistant.turn_retry")) == 5
    with FakeOllama([Reply(text="Hi.")], models=["llama3.2"]) as fake:
        ended = cli("run", "Hi.", "--model", MODEL, "--json", env={"OLLAMA_HOST": fake.url})
        assert (ended.code, ended.of("assistant.turn_retry")) == (1, [])
        assert "ollama pull qwen3:8b" in ended.of("session.error")[0]["message"]
