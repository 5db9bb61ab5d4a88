"""Scripts say what they were told to, go on where the conversation stands, and leave nothing unsaid (M-14)."""

from pathlib import Path

import pytest

from treadle.adapters.models.scripted import (
    Call,
    Delay,
    Fail,
    Finish,
    RawCall,
    ReportUsage,
    Say,
    ScriptedModel,
    Step,
    Think,
    Turn,
)
from treadle.base.types import make_call_key
from treadle.chat.assembly import Assembler, ModelAnswer
from treadle.errors import ConfigError, ModelError, ScriptError
from treadle.ports.model import ModelRequest
from treadle.protocol.content import AssistantEntry, Entry, Thinking, ToolRequest, Usage, UserEntry
from treadle.protocol.deltas import CallDelta, FinishDelta


def request(*turns: int) -> ModelRequest:
    entries: list[Entry] = [UserEntry("go"), *(AssistantEntry(turn, "said") for turn in turns)]
    return ModelRequest("system", entries)


async def listen(model: ScriptedModel, model_request: ModelRequest, assembler: Assembler) -> None:
    async for deltas in model.stream(model_request):
        assembler.feed(deltas)


async def ask(model: ScriptedModel, model_request: ModelRequest, turn: int = 1) -> ModelAnswer:
    assembler = Assembler(turn)
    await listen(model, model_request, assembler)
    return assembler.finish(model.info.ref)


async def test_says_thinks_calls_and_reports() -> None:
    model = ScriptedModel(
        [
            (
                Think("hm"),
                Say("I look"),
                Call("read_file", path="a"),
                Call("read_file", path="b"),
                ReportUsage(Usage(10, 2)),
            )
        ]
    )
    answer = await ask(model, request(), turn=3)
    assert answer == ModelAnswer(
        "I look",
        (Thinking("hm", model="scripted:script"),),
        (
            ToolRequest(make_call_key(3, 0), "read_file", '{"path":"a"}', "call_0_0"),
            ToolRequest(make_call_key(3, 1), "read_file", '{"path":"b"}', "call_0_1"),
        ),
        Usage(10, 2),
        "tool_calls",
    )
    model.assert_done()


async def test_a_bare_text_is_said() -> None:
    assert (await ask(ScriptedModel(["Hello."]), request())).text == "Hello."


async def test_the_request_decides_which_turn_is_next() -> None:
    steps: list[Step] = [Say("one"), Say("two"), Say("three")]
    assert (await ask(ScriptedModel(steps), request(1, 2))).text == "three"  # a new process, after a kill
    again = ScriptedModel(steps)
    assert [(await ask(again, request(*turns))).text for turns in [(), (), (1,)]] == ["one", "one", "two"]
    compacted = ScriptedModel(steps, follow="turns")
    assert (await ask(compacted, request(2))).text == "three"
    edited = ScriptedModel([Fail("overloaded"), *steps], follow="calls")
    with pytest.raises(ModelError):
        await ask(edited, request())
    assert [(await ask(edited, request())).text for _ in range(3)] == ["one", "two", "three"]


async def test_leftovers_and_overruns_are_errors() -> None:
    model = ScriptedModel([Say("one"), Say("two")])
    with pytest.raises(ScriptError, match="2 of 2"):
        model.assert_done()
    await ask(model, request())
    with pytest.raises(ScriptError, match="1 of 2"):
        model.assert_done()
    await ask(model, request(1))
    model.assert_done()
    with pytest.raises(ScriptError, match="has 2 turns and was asked for turn 3") as caught:
        await ask(model, request(1, 2))
    assert isinstance(caught.value, ModelError)
    assert caught.value.kind == "bad_request"


async def test_failures_strike_before_or_within_a_turn_and_then_pass() -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    model = ScriptedModel(
        [Fail("rate_limit", "slow down", retry_after=3.0, status=429), Delay(0.5), (Say("half"), Fail("network"))],
        sleep=sleep,
    )
    with pytest.raises(ModelError, match="slow down") as first:
        await ask(model, request())
    assert (first.value.kind, first.value.retry_after, first.value.status) == ("rate_limit", 3.0, 429)
    assembler = Assembler(1)
    with pytest.raises(ModelError) as second:
        await listen(model, request(), assembler)
    assert (second.value.kind, assembler.text) == ("network", "half")
    assert (await ask(model, request())).text == "half"
    assert slept == [0.5, 0.5]
    for_good = ScriptedModel([Fail("auth", times=0)])
    for _ in range(3):
        with pytest.raises(ModelError):
            await ask(for_good, request())


async def test_chunks_and_odd_parts() -> None:
    model = ScriptedModel(
        [Turn((Say("abcde"), RawCall("f", '{"a":', "dup"), CallDelta(name="g"), Finish("length")), chunk=2)]
    )
    all_deltas = [delta async for deltas in model.stream(request()) for delta in deltas]
    assert [getattr(delta, "text", None) for delta in all_deltas[:3]] == ["ab", "cd", "e"]
    assert all_deltas[3] == CallDelta("dup", 0, "f")
    assert all_deltas[-2:] == [CallDelta(name="g"), FinishDelta("length")]


async def test_calls_that_are_no_turn_have_their_own_answers() -> None:  # L-02
    model = ScriptedModel([Say("turn")], side_answers={"compaction": "the gist"})
    compaction = ModelRequest("sum up", [UserEntry("all")], purpose="compaction")
    title = ModelRequest("name it", [UserEntry("all")], purpose="title")
    await ask(model, request())
    with pytest.raises(ScriptError, match="compaction"):
        model.assert_done()
    assert (await ask(model, compaction)).text == "the gist"
    assert (await ask(model, title)).text == "(scripted title)"
    model.assert_done()


SCRIPT = """
[model]
window = 1000
usd_per_million_output = 2.0

[[turn]]
think = "first I read"
text = "Reading."
usage = { input = 5, output = 6 }
[[turn.call]]
name = "read_file"
args = { path = "a.py" }
[[turn.call]]
name = "broken"
raw = '{"x":'
id = "same"

[[turn]]
text = "Done."
finish = "length"
fail = { kind = "overloaded", message = "busy", after = true }

[[other]]
purpose = "summary"
text = "in short"
"""


async def test_a_script_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "demo.toml"
    path.write_text(SCRIPT)
    model = ScriptedModel.from_file(path)
    assert (model.info.ref, model.info.window, model.info.usd_per_million_output) == (f"scripted:{path}", 1000, 2.0)
    first = await ask(model, request())
    assert [(call.name, call.arguments, call.id) for call in first.requests] == [
        ("read_file", '{"path":"a.py"}', "call_0_0"),
        ("broken", '{"x":', "same"),
    ]
    assert (first.text, first.thinking[0].text, first.usage) == ("Reading.", "first I read", Usage(5, 6))
    with pytest.raises(ModelError, match="busy"):
        await ask(model, request(1))
    assert (await ask(model, request(1))).finish_reason == "length"
    assert (await ask(model, ModelRequest("", [], purpose="summary"))).text == "in short"
    model.assert_done()


@pytest.mark.parametrize("text", ["nonsense", "[[turn]]\ntxt = 1\n", "[[turn]]\ntext = 3\n", "[model]\nwindow = 1\n"])
def test_a_wrong_file_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "wrong.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"wrong\.toml is not valid"):
        ScriptedModel.from_file(path)
    with pytest.raises(ConfigError, match=r"absent\.toml cannot be read"):
        ScriptedModel.from_file(tmp_path / "absent.toml")
