"""Tools called in the text: found out, forbidden, and with calls that are cut off (M-07, P-04, L-15)."""

from itertools import pairwise
from pathlib import Path

import msgspec

from tests.scenario.command_line import CommandLine
from tests.scenario.kit import Recording
from tests.scenario.three_rounds import DONE, PROMPT, REPLIES, in_words, outcome, prepare
from treadle import Agent
from treadle.models.scripted import Say, ScriptedModel, Turn
from treadle.protocol import events as e
from treadle.testing.fake_model import Reply
from treadle.testing.fake_openai import FakeOpenAI
from treadle.types import JsonObject

TEXT_REPLIES = [msgspec.structs.replace(in_words(reply), chunk_size=5) for reply in REPLIES]


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
