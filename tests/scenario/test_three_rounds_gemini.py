"""`treadle run` against the fake Gemini server: the same task with the same result, as the Gemini API and as Vertex AI;
signatures go back after a kill, and a chat that another model began goes on (M-03, M-10, M-11, M-13, faults 8, 24)."""

import signal
from pathlib import Path

import msgspec
import pytest

from tests.scenario.command_line import CommandLine, Ended
from tests.scenario.three_rounds import DONE, PROMPT, REPLIES, outcome, prepare, three_rounds
from treadle.models.gemini_request import STAND_IN
from treadle.testing.fake_gemini import FakeGemini, Reply
from treadle.testing.fake_openai import FakeOpenAI

MODEL = "gemini:gemini-3.8-flash"
KEY = "AIzaTest51a0c3d9e7b2f4a6"
THINKING = [msgspec.structs.replace(reply, thinking=f"Step {at}: ü") for at, reply in enumerate(REPLIES)]


def folder(path: Path) -> CommandLine:
    path.mkdir()
    return CommandLine(path)


@pytest.mark.parametrize("model", [MODEL, "gemini:gemini-2.5-pro", "vertex:gemini-3.8-flash"])
def test_the_same_task_gives_the_same_result(tmp_path: Path, model: str) -> None:
    with FakeOpenAI(REPLIES) as other:
        wanted = three_rounds(folder(tmp_path / "o"), "openai:gpt-4.1", {"OPENAI_BASE_URL": other.base_url})
    with FakeGemini(REPLIES) as fake:
        env = {"GEMINI_API_KEY": KEY, "GEMINI_BASE_URL": fake.base_url}
        vertex = {"GOOGLE_ACCESS_TOKEN": KEY, "GOOGLE_CLOUD_PROJECT": "p", "GOOGLE_VERTEX_BASE_URL": fake.base_url}
        cli = folder(tmp_path / "g")
        done = three_rounds(cli, model, env | vertex)
    assert done == wanted
    assert done._replace(results=()) == DONE
    assert len(fake.requests) == 4
    assert all(KEY.encode() not in path.read_bytes() for path in cli.files())  # M-13


def test_signatures_are_recorded_and_go_back_after_a_kill(cli: CommandLine) -> None:  # M-10, D-01
    prepare(cli)
    with FakeGemini(THINKING) as fake:
        env = {"GEMINI_BASE_URL": fake.base_url}
        faults = {"TREADLE_FAULTS": "kill@tool.write_after"}
        killed = cli("run", PROMPT, "--model", MODEL, "--json", env=env | faults)
        assert killed.code == -signal.SIGKILL
        resumed = cli("resume", "last", "--json", env=env)
        exported = cli("export", "last")
    done = outcome(cli, Ended(resumed.code, exported.out, ""))
    assert (done.code, done.files, done.said) == (0, DONE.files, DONE.said)
    assert "model.notice" not in exported.types  # nothing was refused: the fake checks every signature on its part
    thoughts = [block["text"] for data in exported.of("assistant.message") for block in data["reasoning"]]
    assert "".join(thoughts) == "".join(reply.thinking for reply in THINKING)
    parts = [part for content in fake.requests[-1]["contents"] for part in content["parts"]]
    signed = [part["thoughtSignature"] for part in parts if "functionCall" in part]
    assert len(set(signed) - {STAND_IN}) == 3


def test_a_chat_that_another_model_began_goes_on(cli: CommandLine) -> None:  # fault 24
    with FakeOpenAI(REPLIES) as other, FakeGemini(lambda request: Reply(text="Gladly.")) as fake:
        env = {"OPENAI_BASE_URL": other.base_url, "GEMINI_BASE_URL": fake.base_url}
        three_rounds(cli, "openai:gpt-4.1", env)
        ended = cli("run", "Thanks.", "--chat", "last", "--model", MODEL, "--json", env=env)
    assert ended.code == 0
    assert ended.of("assistant.message")[-1]["content"] == "Gladly."
    assert "model.notice" not in ended.types
    parts = [part for content in fake.requests[-1]["contents"] for part in content["parts"]]
    assert [part["thoughtSignature"] for part in parts if "functionCall" in part] == [STAND_IN] * 3


def test_a_limit_of_a_minute_is_waited_for(cli: CommandLine) -> None:  # M-11, fault 8
    details = [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "0.01s"}]
    error = {"code": 429, "message": "You exceeded your current quota", "details": details}
    spoiled = b'data: {"candidates":[{"content":{"parts":[{"text":"half"}]},"finishReason":"MALFORMED_FUNCTION_CALL"}],'
    spoiled += b'"usageMetadata":{"promptTokenCount":9,"candidatesTokenCount":1}}\n\n'
    script = [Reply(status=429, error=error), Reply(raw=spoiled), Reply(text="whole")]
    with FakeGemini(script, in_order=True) as fake:
        ended = cli("run", "Hi.", "--model", MODEL, "--json", env={"GEMINI_BASE_URL": fake.base_url})
    assert ended.code == 0
    retries = [(data["class"], data["usage"]["input"]) for data in ended.of("assistant.turn_retry")]
    assert retries == [("rate_limit", 0), ("cut_stream", 9)]
    assert [data["content"] for data in ended.of("assistant.message")] == ["whole"]
    assert "assistant.reset" in ended.types


def test_the_last_answer_at_the_turn_cap(cli: CommandLine) -> None:  # L-03
    prepare(cli)
    with FakeGemini([REPLIES[0], Reply(text="I saw 21.")]) as fake:
        options = ("--max-turns", "1", "--on-limit", "answer", "--json")
        ended = cli("run", PROMPT, "--model", MODEL, *options, env={"GEMINI_BASE_URL": fake.base_url})
    assert ended.code == 53
    assert ended.of("assistant.message")[-1]["content"] == "I saw 21."
    assert "tools" not in fake.requests[1]
