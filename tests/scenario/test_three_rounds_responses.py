"""`treadle run` against the fake Responses server: the same task with the same result, and reasoning that goes back
after a kill (M-05, M-10, D-02)."""

import signal
from pathlib import Path

import msgspec

from tests.scenario.command_line import CommandLine, Ended
from tests.scenario.three_rounds import DONE, PROMPT, REPLIES, outcome, prepare, three_rounds
from treadle.testing.fake_openai import FakeOpenAI
from treadle.testing.fake_responses import FakeResponses, Reply

MODEL = "openai-responses:gpt-5"
KEY = "sk-test-51a0c3d9e7b2f4a6c8d0"
THINKING = [msgspec.structs.replace(reply, thinking=f"Step {at}.\n\nü") for at, reply in enumerate(REPLIES)]


def folder(path: Path) -> CommandLine:
    path.mkdir()
    return CommandLine(path)


def test_the_same_task_gives_the_same_result(tmp_path: Path) -> None:
    with FakeOpenAI(REPLIES) as other:
        wanted = three_rounds(folder(tmp_path / "o"), "openai:gpt-4.1", {"OPENAI_BASE_URL": other.base_url})
    with FakeResponses(REPLIES) as fake:
        env = {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": fake.base_url}
        cli = folder(tmp_path / "r")
        done = three_rounds(cli, MODEL, env)
    assert done == wanted
    assert done._replace(results=()) == DONE
    assert len(fake.requests) == 4
    assert all(KEY.encode() not in path.read_bytes() for path in cli.files())  # M-13


def test_reasoning_is_recorded_and_goes_back_after_a_kill(cli: CommandLine) -> None:  # M-10, D-01
    prepare(cli)
    with FakeResponses(THINKING) as fake:
        env = {"OPENAI_BASE_URL": fake.base_url}
        faults = {"TREADLE_FAULTS": "kill@tool.write_after"}
        killed = cli("run", PROMPT, "--model", MODEL, "--json", env=env | faults)
        assert killed.code == -signal.SIGKILL
        resumed = cli("resume", "last", "--json", env=env)
        exported = cli("export", "last")
    done = outcome(cli, Ended(resumed.code, exported.out, ""))
    assert (done.code, done.files, done.said) == (0, DONE.files, DONE.said)
    assert "model.notice" not in exported.types  # nothing was refused
    thoughts = [block["text"] for data in exported.of("assistant.message") for block in data["reasoning"]]
    assert thoughts == [reply.thinking for reply in THINKING]
    sent = [item for item in fake.requests[-1]["input"] if item["type"] == "reasoning"]
    assert ["\n\n".join(part["text"] for part in item["summary"]) for item in sent] == thoughts[:3]


def test_a_failure_in_the_middle_is_asked_again_without_showing_text_twice(cli: CommandLine) -> None:  # M-11, fault 8
    begun = b"".join(
        b"data: %b\n\n" % data
        for data in (
            b'{"type":"response.output_text.delta","output_index":0,"delta":"half"}',
            b'{"type":"response.failed","response":{"status":"failed","usage":{"input_tokens":9,"output_tokens":1},'
            b'"error":{"code":"server_error","message":"The server had an error"}}}',
        )
    )
    with FakeResponses([Reply(raw=begun), Reply(text="whole")], in_order=True) as fake:
        ended = cli("run", "Hi.", "--model", MODEL, "--json", env={"OPENAI_BASE_URL": fake.base_url})
    assert ended.code == 0
    retry = ended.of("assistant.turn_retry")[0]
    assert (retry["class"], retry["usage"]["input"]) == ("overloaded", 9)
    assert [data["content"] for data in ended.of("assistant.message")] == ["whole"]
    assert "assistant.reset" in ended.types
