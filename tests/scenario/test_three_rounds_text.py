"""`treadle run` with tools called in the text: the same task with the same result as by protocol, forced, found out,
and with calls that are cut off (M-07, P-04, L-15)."""

from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from tests.scenario.command_line import CommandLine
from tests.scenario.kit import Recording
from tests.scenario.three_rounds import DONE, PROMPT, REPLIES, in_words, outcome, prepare, three_rounds
from treadle import Agent
from treadle.models.scripted import Say, ScriptedModel, Turn
from treadle.protocol import events as e
from treadle.testing.fake_anthropic import FakeAnthropic
from treadle.testing.fake_gemini import FakeGemini
from treadle.testing.fake_model import FakeModelServer, Reply
from treadle.testing.fake_ollama import FakeOllama
from treadle.testing.fake_openai import FakeOpenAI
from treadle.testing.fake_responses import FakeResponses
from treadle.types import JsonObject

TEXT_REPLIES = [msgspec.structs.replace(in_words(reply), chunk_size=5) for reply in REPLIES]
SERVERS: dict[str, tuple[type[FakeModelServer], str, str]] = {
    "openai": (FakeOpenAI, "openai:small", "OPENAI_BASE_URL"),
    "responses": (FakeResponses, "openai-responses:small", "OPENAI_BASE_URL"),
    "anthropic": (FakeAnthropic, "anthropic:small", "ANTHROPIC_BASE_URL"),
    "gemini": (FakeGemini, "gemini:small", "GEMINI_BASE_URL"),
    "ollama": (FakeOllama, "ollama:small", "OLLAMA_HOST"),
}


def folder(path: Path) -> CommandLine:
    path.mkdir()
    return CommandLine(path)


@pytest.mark.parametrize("server", SERVERS)
def test_the_same_task_with_the_text_rung_forced(server: str, tmp_path: Path) -> None:
    kind, model, variable = SERVERS[server]
    with FakeOpenAI(REPLIES) as other:
        wanted = three_rounds(folder(tmp_path / "native"), "openai:gpt-4.1", {"OPENAI_BASE_URL": other.base_url})
    with kind(TEXT_REPLIES) as fake:  # type: ignore[call-arg, arg-type]
        env = {variable: getattr(fake, "base_url", fake.url)}
        done = three_rounds(folder(tmp_path / "text"), model, env, "--tool-calls", "text")
    assert done == wanted
    assert done._replace(results=()) == DONE
    assert len(fake.requests) == 4
    assert not any(request.get("tools") for request in fake.requests)


def test_a_server_that_refuses_tools(cli: CommandLine) -> None:
    def script(request: JsonObject) -> Reply:
        if request.get("tools"):
            return Reply(status=400, error={"message": "small does not support tools"})
        messages = request["messages"]
        return TEXT_REPLIES[sum(message["role"] == "assistant" for message in messages)]

    prepare(cli)
    with FakeOpenAI(script) as fake:
        ended = cli("run", PROMPT, "--model", "openai:small", "--json", env={"OPENAI_BASE_URL": fake.base_url})
    assert outcome(cli, ended)._replace(results=()) == DONE
    assert len(fake.requests) == 5  # it is asked once only
    notices = ended.of("model.notice")
    assert [notice["kind"] for notice in notices] == ["rung"]
    assert "openai:small calls tools in its text" in notices[0]["text"]
    bodies = [msgspec.json.encode(request["messages"]) for request in fake.requests[1:]]
    for before, after in pairwise(bodies):
        assert after.startswith(before[:-1])  # L-21


def test_plain_only_answers(cli: CommandLine) -> None:
    with FakeOpenAI([Reply(text="I cannot.")]) as fake:
        env = {"OPENAI_BASE_URL": fake.base_url, "TREADLE_RUNG": "plain"}
        ended = cli("run", PROMPT, "--model", "openai:small", "--json", env=env)
    assert ended.code == 0
    assert "tools" not in fake.requests[0]
    assert "<tool_call>" not in fake.requests[0]["messages"][0]["content"]


async def test_a_writing_call_that_was_cut_off_is_not_run(tmp_path: Path) -> None:  # P-04
    cut = '<tool_call>{"name": "write_file", "arguments": {"path": "a.txt", "content": "one\\ntw'
    looked = '<tool_call>{"name": "list_directory", "arguments": {"path": "."'
    model = Recording(ScriptedModel([Say(cut), Say(looked), Say(cut + 'o\\n"}}</tool_call>'), Say("Done.")]))
    async with Agent(model=model) as agent:
        chat = agent.chat(root=tmp_path, rung="text")
        events = [event.data async for event in chat.send("Write it.") if not event.ephemeral]
    results = [event for event in events if isinstance(event, e.ExecutionComplete)]
    assert [result.success for result in results] == [False, True, True]  # reading may be guessed, writing may not
    assert "Send it again, whole" in results[0].error
    assert (tmp_path / "a.txt").read_text() == "one\ntwo\n"
    assert "Send it again, whole" in str(model.turns()[1][-1])


async def test_the_marker_of_the_end_works_on_the_text_rung(tmp_path: Path) -> None:  # L-15
    call = '<tool_call>{"name": "list_directory", "arguments": {"path": "."}}</tool_call>'
    model = ScriptedModel([Turn((Say(f"[T]\n{call}"),), chunk=1), Turn((Say("Nothing.[TASK_COMPLETE]"),), chunk=2)])
    async with Agent(model=model) as agent:
        chat = agent.chat(root=tmp_path, rung="text", completion="marker")
        events = [event async for event in chat.send("Look.")]
    said = [event.data.content for event in events if isinstance(event.data, e.AssistantMessage)]
    assert said == ["[T]", "Nothing."]
    assert "".join(event.data.text for event in events if isinstance(event.data, e.MessageDelta)) == "[T]Nothing."
    assert any(isinstance(event.data, e.TaskComplete) for event in events)
