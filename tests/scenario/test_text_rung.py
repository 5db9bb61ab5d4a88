"""Tools called in the text: found out, forbidden, and with calls that are cut off (M-07, P-04, L-15)."""

from itertools import pairwise
from pathlib import Path
from typing import Literal

import msgspec
import pytest

from tests.scenario.command_line import CommandLine
from tests.scenario.kit import Recording
from tests.scenario.three_rounds import DONE, PROMPT, REPLIES, in_words, outcome, prepare
from treadle import Agent
from treadle.adapters.models.registry import ModelRegistry
from treadle.adapters.models.scripted import Say, ScriptedModel, Think, Turn
from treadle.base.types import JsonObject
from treadle.library.replay import replay
from treadle.ports.model import ModelInfo
from treadle.protocol import events as e
from treadle.protocol.options import ChatOptions
from treadle.testing.fake_model import Reply
from treadle.testing.fake_openai import FakeOpenAI

TEXT_REPLIES = [msgspec.structs.replace(in_words(reply), chunk_size=5) for reply in REPLIES]


def test_a_server_that_refuses_tools(cli: CommandLine) -> None:
    def script(request: JsonObject) -> Reply:
        if request.get("tools"):
            return Reply(status=400, error={"message": "small does not support tools"})
        messages = request["messages"]
        return TEXT_REPLIES[sum(message["role"] == "assistant" for message in messages)]

    prepare(cli)
    with FakeOpenAI(script) as fake:
        run_result = cli("run", PROMPT, "--model", "openai:small", "--json", env={"OPENAI_BASE_URL": fake.base_url})
    assert outcome(cli, run_result)._replace(results=()) == DONE
    assert len(fake.requests) == 5  # it is asked once only
    notices = run_result.of("model.notice")
    assert [notice["kind"] for notice in notices] == ["rung"]
    assert "openai:small calls tools in its text" in notices[0]["text"]
    bodies = [msgspec.json.encode(request["messages"]) for request in fake.requests[1:]]
    for earlier, later in pairwise(bodies):
        assert later.startswith(earlier[:-1])  # L-21


def test_plain_only_answers(cli: CommandLine) -> None:
    with FakeOpenAI([Reply(text="I cannot.")]) as fake:
        env = {"OPENAI_BASE_URL": fake.base_url, "TREADLE_RUNG": "plain"}
        run_result = cli("run", PROMPT, "--model", "openai:small", "--json", env=env)
    assert run_result.code == 0
    assert "tools" not in fake.requests[0]
    assert "<tool_call>" not in fake.requests[0]["messages"][0]["content"]


async def test_a_writing_call_that_was_cut_off_is_not_run(tmp_path: Path) -> None:  # P-04
    partial_call = '<tool_call>{"name": "write_file", "arguments": {"path": "a.txt", "content": "one\\ntw'
    looked = '<tool_call>{"name": "list_directory", "arguments": {"path": "."'
    model = Recording(
        ScriptedModel([Say(partial_call), Say(looked), Say(partial_call + 'o\\n"}}</tool_call>'), Say("Done.")])
    )
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
    contents = [event.data.content for event in events if isinstance(event.data, e.AssistantMessage)]
    assert contents == ["[T]", "Nothing."]
    assert "".join(event.data.text for event in events if isinstance(event.data, e.MessageDelta)) == "[T]Nothing."
    assert any(isinstance(event.data, e.TaskComplete) for event in events)


@pytest.mark.parametrize("rung", ["text", ""])
async def test_the_marker_is_chosen_by_itself_on_the_text_rung(tmp_path: Path, rung: Literal["text", ""]) -> None:
    """L-15: the model is told of it, and it is found in any letter case, in the text and in the thinking."""
    call = '<tool_call>{"name": "list_directory", "arguments": {"path": "."}}</tool_call>'
    steps = [
        Turn((Think("First I look, then [task_complete]."), Say(f"Looking.\n{call}")), chunk=1),
        Turn((Think("That was all. [Task_Complete]"), Say("Nothing there. [TASK_")), chunk=2),
    ]
    info = ModelInfo("scripted", "words", native_tools=bool(rung))
    model = Recording(ScriptedModel(steps, info=info))
    async with Agent(model=model) as agent:
        chat = agent.chat(root=tmp_path, rung=rung, mode="autopilot")
        events = [event.data async for event in chat.send("Look.")]
        log = [event.data for event in await chat.events()]
        replayed = await replay(agent.deps.store, chat.id)
    assert "write [TASK_COMPLETE]" in model.requests[0].system
    messages = [event for event in log if isinstance(event, e.AssistantMessage)]
    assert [message.content for message in messages] == ["Looking.", "Nothing there."]
    assert [block.text for message in messages for block in message.reasoning] == [
        "First I look, then .",
        "That was all.",
    ]
    assert "".join(event.text for event in events if isinstance(event, e.MessageDelta)) == "Looking.Nothing there. "
    live_reasoning = "".join(event.text for event in events if isinstance(event, e.ReasoningDelta))
    assert live_reasoning == "First I look, then .That was all. "
    assert [type(event) for event in log].count(e.TaskComplete) == 1
    assert len(model.requests) == 2
    assert replayed.matches, replayed.divergence


async def test_a_model_that_calls_tools_by_its_protocol_may_write_the_marker(tmp_path: Path) -> None:
    model = Recording(ScriptedModel([Say("The marker is [TASK_COMPLETE].")]))
    async with Agent(model=model) as agent:
        answer = await agent.chat(root=tmp_path).ask("What is the marker?")
    assert answer.text == "The marker is [TASK_COMPLETE]."
    assert "TASK_COMPLETE" not in model.requests[0].system


async def test_a_model_that_falls_to_the_text_rung_is_told_of_the_marker_at_once(tmp_path: Path) -> None:
    def answer(request: JsonObject) -> Reply:
        if request.get("tools"):
            return Reply(status=400, error={"message": "this model does not support tools"})
        return Reply(text="Fine. [task_complete]")

    with FakeOpenAI(answer) as fake:
        registry = ModelRegistry({"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": fake.base_url})
        async with Agent(models=registry, options=ChatOptions(model="openai:words")) as agent:
            chat = agent.chat(root=tmp_path)
            assert (await chat.ask("One.")).text == "Fine."
            assert "write [TASK_COMPLETE]" in fake.requests[-1]["messages"][0]["content"]
