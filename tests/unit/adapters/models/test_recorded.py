"""A recording is played again, delta for delta, and nothing else (M-14)."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from treadle.adapters.models.recorded import RecordedModel, RecordingModel
from treadle.adapters.models.scripted import Call, Fail, ReportUsage, Say, ScriptedModel, Think, Turn
from treadle.errors import ConfigError, ModelError, ScriptError
from treadle.ports.model import Model, ModelRequest
from treadle.protocol.content import AssistantEntry, Thinking, Usage, UserEntry
from treadle.protocol.deltas import Delta, NoticeDelta, ThinkingBlock


def request(text: str, answers: int = 0, seq: int = 1) -> ModelRequest:
    return ModelRequest("system", [UserEntry(text, seq), *(AssistantEntry(n + 1, "said") for n in range(answers))])


async def listen(model: Model, model_request: ModelRequest) -> list[Sequence[Delta]]:
    return [list(deltas) async for deltas in model.stream(model_request)]


async def test_records_and_plays(tmp_path: Path) -> None:
    tape = tmp_path / "tape.jsonl"
    block = ThinkingBlock(Thinking("deep", '{"sig":"x"}'))
    script = ScriptedModel(
        [
            Turn(
                (Think("hm"), Say("first"), Call("f", a=1), block, NoticeDelta("k", "n"), ReportUsage(Usage(1, 2))),
                chunk=2,
            ),
            (Say("half"), Fail("rate_limit", "wait", status=429, retry_after=2.0)),
        ]
    )
    recorder = RecordingModel(script, tape)
    first = await listen(recorder, request("go"))
    with pytest.raises(ModelError):
        await listen(recorder, request("go", 1))
    second = await listen(recorder, request("go", 1))
    await recorder.close()

    player = RecordedModel(tape)
    assert player.info == script.info
    assert await listen(player, request("go", seq=99)) == first
    with pytest.raises(ScriptError, match="2 recorded answers"):
        player.assert_done()
    with pytest.raises(ModelError, match="wait") as caught:
        await listen(player, request("go", 1))
    assert (caught.value.kind, caught.value.status, caught.value.retry_after) == ("rate_limit", 429, 2.0)
    assert await listen(player, request("go", 1)) == second
    player.assert_done()
    with pytest.raises(ScriptError, match="no answer to this request"):
        await listen(player, request("something else"))
    assert "go" not in [word.strip('"') for word in tape.read_text().split()]


async def test_an_answer_that_was_not_heard_to_its_end_is_not_recorded(tmp_path: Path) -> None:
    tape = tmp_path / "tape.jsonl"
    stream = RecordingModel(ScriptedModel([Turn((Say("long"),), chunk=1)]), tape).stream(request("go"))
    await anext(stream)
    await stream.aclose()  # type: ignore[attr-defined]
    assert not tape.exists()


@pytest.mark.parametrize("text", ["", "\n", "{}\n", "nonsense\n"])
def test_what_is_no_cassette_is_refused(tmp_path: Path, text: str) -> None:
    tape = tmp_path / "tape.jsonl"
    tape.write_text(text)
    with pytest.raises(ConfigError, match=r"tape\.jsonl"):
        RecordedModel(tape)
