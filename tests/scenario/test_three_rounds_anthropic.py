"""`treadle run` against the fake Anthropic server: the same task with the same result, also with thinking, after a
kill, and at the turn cap (M-02, M-10, D-02, L-03)."""

import signal
from pathlib import Path

import msgspec

from tests.scenario.command_line import CommandLine, Ended
from tests.scenario.three_rounds import DONE, PROMPT, REPLIES, outcome, prepare, three_rounds
from treadle.testing.fake_anthropic import FakeAnthropic, Reply
from treadle.testing.fake_openai import FakeOpenAI

MODEL = "anthropic:claude-opus-5-5"
KEY = "sk-ant-test-51a0c3d9e7b2f4a6"
THINKING = [msgspec.structs.replace(reply, thinking=f"Step {at}: ü") for at, reply in enumerate(REPLIES)]


def folder(path: Path) -> CommandLine:
    path.mkdir()
    return CommandLine(path)


def test_the_same_task_gives_the_same_result(tmp_path: Path) -> None:
    with FakeOpenAI(REPLIES) as other:
        wanted = three_rounds(folder(tmp_path / "o"), "openai:gpt-4.1", {"OPENAI_BASE_URL": other.base_url})
    with FakeAnthropic(REPLIES) as fake:
        env = {"ANTHROPIC_API_KEY": KEY, "ANTHROPIC_BASE_URL": fake.base_url}
        cli = folder(tmp_path / "a")
        done = three_rounds(cli, MODEL, env)
    assert done == wanted
    assert done._replace(results=()) == DONE
    assert len(fake.requests) == 4
    assert all(KEY.encode() not in path.read_bytes() for path in cli.files())  # M-13


def test_thinking_is_recorded_and_goes_back_after_a_kill(cli: CommandLine) -> None:  # M-10, D-01
    prepare(cli)
    with FakeAnthropic(THINKING) as fake:
        env = {"ANTHROPIC_BASE_URL": fake.base_url}
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
    sent = [block for message in fake.requests[-1]["messages"] for block in message["content"]]
    assert [block["thinking"] for block in sent if block["type"] == "thinking"] == thoughts[:3]


def test_the_last_answer_at_the_turn_cap(cli: CommandLine) -> None:  # L-03
    prepare(cli)
    script = [REPLIES[0], Reply(text="I saw 21.")]
    with FakeAnthropic(script) as fake:
        env = {"ANTHROPIC_BASE_URL": fake.base_url}
        options = ("--max-turns", "1", "--on-limit", "answer", "--json")
        ended = cli("run", PROMPT, "--model", MODEL, *options, env=env)
    assert ended.code == 53
    assert ended.of("assistant.message")[-1]["content"] == "I saw 21."
    assert fake.requests[1]["tool_choice"] == {"type": "none"}
    assert fake.requests[1]["tools"] == fake.requests[0]["tools"]


def test_overload_in_the_middle_is_asked_again_without_showing_text_twice(cli: CommandLine) -> None:  # M-11, fault 8
    begun = b"".join(
        b"event: %b\ndata: %b\n\n" % (kind, data)
        for kind, data in [
            (b"message_start", b'{"type":"message_start","message":{"usage":{"input_tokens":9,"output_tokens":1}}}'),
            (b"content_block_delta", b'{"type":"content_block_delta","index":0,"delta":{"text":"half"}}'),
            (b"error", b'{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}'),
        ]
    )
    with FakeAnthropic([Reply(raw=begun), Reply(text="whole")], in_order=True) as fake:
        ended = cli("run", "Hi.", "--model", MODEL, "--json", env={"ANTHROPIC_BASE_URL": fake.base_url})
    assert ended.code == 0
    retry = ended.of("assistant.turn_retry")[0]
    assert (retry["class"], retry["usage"]["input"]) == ("overloaded", 9)
    assert [data["content"] for data in ended.of("assistant.message")] == ["whole"]
    assert "assistant.reset" in ended.types
