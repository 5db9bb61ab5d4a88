"""`treadle run` against the fake server of every provider: the same task with the same result, by protocol and in text,
with thinking and after a kill, at the turn cap, and when the provider fails (M-01 to M-07, M-10, M-11, M-13, D-02)."""

import signal

import msgspec
import pytest

from tests.faults.chance import some
from tests.scenario.command_line import CommandLine, CommandResult
from tests.scenario.providers import PROVIDERS, RETURNED
from tests.scenario.three_rounds import DONE, PROMPT, REPLIES, TaskOutcome, in_words, outcome, prepare, three_rounds
from treadle.testing.fake_model import Reply

pytestmark = pytest.mark.thorough(one_of=8)

THINKING = [msgspec.structs.replace(reply, thinking=f"Step {at}.\n\nü") for at, reply in enumerate(REPLIES)]
IN_TEXT = [msgspec.structs.replace(in_words(reply), chunk_size=5) for reply in REPLIES]


@pytest.fixture(scope="module")
def expected_outcome(tmp_path_factory: pytest.TempPathFactory) -> TaskOutcome:
    """The result of the task with OpenAI's protocol."""
    openai = PROVIDERS["openai"]
    with openai.make(REPLIES) as fake:
        return three_rounds(CommandLine(tmp_path_factory.mktemp("openai")), openai.model, openai.env(fake))


@pytest.mark.parametrize("name", PROVIDERS)
def test_the_same_task_gives_the_same_result(name: str, cli: CommandLine, expected_outcome: TaskOutcome) -> None:
    provider = PROVIDERS[name]
    with provider.make(REPLIES) as fake:
        result = three_rounds(cli, provider.model, provider.env(fake))
    assert result == expected_outcome
    assert result._replace(results=()) == DONE
    assert len(fake.requests) == 4
    assert provider.has_expected_requests(fake)
    stored_bytes = b"".join(path.read_bytes() for path in cli.files())
    assert not [secret for secret in provider.secrets if secret.encode() in stored_bytes]  # M-13


@pytest.mark.parametrize("name", some([*PROVIDERS], 2, "text rung"))
def test_the_same_task_with_the_text_rung_forced(
    name: str, cli: CommandLine, expected_outcome: TaskOutcome
) -> None:  # M-07
    provider = PROVIDERS[name]
    with provider.make(IN_TEXT) as fake:
        result = three_rounds(cli, provider.model, provider.env(fake), "--tool-calls", "text")
    assert result == expected_outcome
    assert result._replace(results=()) == DONE
    assert len(fake.requests) == 4
    assert not any(request.get("tools") for request in fake.requests)


@pytest.mark.parametrize("name", RETURNED)
def test_thinking_is_recorded_and_goes_back_after_a_kill(name: str, cli: CommandLine) -> None:  # M-10, D-01
    provider = PROVIDERS[name]
    prepare(cli)
    with provider.make(THINKING) as fake:
        env = provider.env(fake)
        faults = {"TREADLE_FAULTS": "kill@tool.write_after"}
        killed = cli("run", PROMPT, "--model", provider.model, "--json", env={**env, **faults})
        assert killed.code == -signal.SIGKILL
        resumed = cli("resume", "last", "--json", env=env)
        exported = cli("export", "last")
    result = outcome(cli, CommandResult(resumed.code, exported.out, ""))
    assert (result.code, result.files, result.messages) == (0, DONE.files, DONE.messages)
    assert "model.notice" not in exported.types  # nothing was refused: the fakes check what must come back
    messages = exported.of("assistant.message")
    thoughts = ["".join(block["text"] for block in data["reasoning"]) for data in messages]
    assert thoughts == [reply.thinking for reply in THINKING]
    assert RETURNED[name](fake, thoughts[:3])


@pytest.mark.parametrize("name", ["anthropic", "gemini"])
def test_the_last_answer_at_the_turn_cap(name: str, cli: CommandLine) -> None:  # L-03
    provider = PROVIDERS[name]
    prepare(cli)
    with provider.make([REPLIES[0], Reply(text="I saw 21.")]) as fake:
        options = ("--max-turns", "1", "--on-limit", "answer", "--json")
        run_result = cli("run", PROMPT, "--model", provider.model, *options, env=provider.env(fake))
    assert run_result.code == 53
    assert run_result.of("assistant.message")[-1]["content"] == "I saw 21."
    first, last = fake.requests
    if name == "anthropic":  # the tools stay for the sake of the cache
        assert last["tool_choice"] == {"type": "none"}
        assert last["tools"] == first["tools"]
    else:
        assert "tools" not in last


OVERLOADED = b"".join(
    b"event: %b\ndata: %b\n\n" % (kind, data)
    for kind, data in [
        (b"message_start", b'{"type":"message_start","message":{"usage":{"input_tokens":9,"output_tokens":1}}}'),
        (b"content_block_delta", b'{"type":"content_block_delta","index":0,"delta":{"text":"half"}}'),
        (b"error", b'{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}'),
    ]
)
FAILED = (
    b'data: {"type":"response.output_text.delta","output_index":0,"delta":"half"}\n\n'
    b'data: {"type":"response.failed","response":{"status":"failed","usage":{"input_tokens":9,"output_tokens":1},'
    b'"error":{"code":"server_error","message":"The server had an error"}}}\n\n'
)
SPOILED = (
    b'data: {"candidates":[{"content":{"parts":[{"text":"half"}]},"finishReason":"MALFORMED_FUNCTION_CALL"}],'
    b'"usageMetadata":{"promptTokenCount":9,"candidatesTokenCount":1}}\n\n'
)
MINUTE = [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "0.01s"}]
LIMITED = Reply(status=429, error={"code": 429, "message": "You exceeded your current quota", "details": MINUTE})


@pytest.mark.parametrize(
    ("name", "failures", "retries"),
    [
        ("anthropic", [Reply(raw=OVERLOADED)], [("overloaded", 9)]),
        ("responses", [Reply(raw=FAILED)], [("overloaded", 9)]),
        ("gemini", [LIMITED, Reply(raw=SPOILED)], [("rate_limit", 0), ("cut_stream", 9)]),
    ],
)
def test_a_failure_in_the_middle_is_asked_again_without_showing_text_twice(
    name: str, failures: list[Reply], retries: list[tuple[str, int]], cli: CommandLine
) -> None:  # M-11, fault 8
    provider = PROVIDERS[name]
    replies = iter([*failures, Reply(text="whole")])
    with provider.make(lambda _: next(replies)) as fake:
        run_result = cli("run", "Hi.", "--model", provider.model, "--json", env=provider.env(fake))
    assert run_result.code == 0
    assert [(data["class"], data["usage"]["input"]) for data in run_result.of("assistant.turn_retry")] == retries
    assert [data["content"] for data in run_result.of("assistant.message")] == ["whole"]
    assert "assistant.reset" in run_result.types
