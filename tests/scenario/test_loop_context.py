"""Requests to the model: a stable beginning, a valid history, and less of it when it grows too long (L-19 to L-21)."""

from itertools import pairwise

import msgspec

from tests.scenario.kit import Gate, Recording, Stage, change, list_idle_reasons, look, of, play, types
from tests.unit.chat.player import valid_history
from treadle import tool
from treadle.adapters.models.scripted import Call, Fail, ReportUsage, Say, ScriptedModel, Turn
from treadle.chat.history import estimate_tokens, weigh
from treadle.ports.model import ModelInfo
from treadle.protocol import events as e
from treadle.protocol.content import AssistantEntry, Image, ResultsEntry, Usage, UserEntry

SMALL = ModelInfo("scripted", "small", window=40_000, max_output=1_000)
"""Compaction begins at 20,000 tokens."""


@tool(read_only=True)
async def read_much(n: int) -> str:
    """Read something long."""
    return f"{n} " * 4_000


def wire(value: object) -> bytes:
    return msgspec.json.encode(value)


# -- a stable beginning (L-21) ----------------------------------------------------------------------------------------


async def test_every_request_begins_with_the_bytes_of_the_one_before(stage: Stage) -> None:
    steps = [[Call("look", n=n), Call("change", n=n)] for n in range(4)]
    model = Recording(ScriptedModel([*steps, Say("Done."), Say("And again.")]))
    chat = stage.agent(model, look, change).chat(system_prompt="Be brief.")
    await chat.ask("one")
    await chat.ask("two")
    assert len({wire((request.system, request.tools)) for request in model.requests}) == 1
    bodies = [wire(entries)[:-1] for entries in model.turns()]
    assert len(bodies) == 6
    for earlier, later in pairwise(bodies):
        assert later.startswith(earlier)


async def test_the_beginning_is_the_same_after_a_restart(stage: Stage) -> None:
    gate = Gate()
    wait = tool(name="wait", read_only=True)(gate.pass_through)
    steps = [Call("look", n=1), Call("wait"), Say("Done.")]
    first = Recording(ScriptedModel(steps))
    chat = stage.agent(first, look, wait).chat()
    await chat.send("go")
    await gate.entered.wait()
    await stage.kill()
    gate.open.set()
    second = Recording(ScriptedModel(steps))
    await play(stage.agent(second, look, wait).chat(chat.id).resume())
    assert wire(second.turns()[0]).startswith(wire(first.turns()[-1])[:-1])
    assert second.requests[0].system == first.requests[0].system
    assert second.requests[0].tools == first.requests[0].tools


# -- a valid history (L-20) -------------------------------------------------------------------------------------------


async def test_after_an_interrupt_every_call_has_its_result(stage: Stage) -> None:
    gate = Gate()
    wait = tool(name="wait")(gate.pass_through)
    model = Recording(ScriptedModel([[Call("look"), Call("wait"), Call("change")], Say("Fine.")]))
    chat = stage.agent(model, look, wait, change).chat()
    await chat.send("go")
    await gate.entered.wait()
    await chat.interrupt()
    await play(chat.resume())
    await chat.ask("and now?")
    valid_history(model.turns()[-1])
    assert [type(entry) for entry in model.turns()[-1]] == [UserEntry, AssistantEntry, ResultsEntry, UserEntry]


async def test_an_answer_without_a_word_is_not_sent_back(stage: Stage) -> None:
    model = Recording(ScriptedModel([Say(""), Say("Here.")], follow="calls"))
    chat = stage.agent(model).chat()
    await chat.ask("one")
    await chat.ask("two")
    assert [type(entry) for entry in model.turns()[-1]] == [UserEntry, UserEntry]


# -- compaction (L-19) ------------------------------------------------------------------------------------------------


async def test_old_results_are_masked_first_and_that_costs_nothing(stage: Stage) -> None:
    steps = [*[(Call("read_much", n=n), ReportUsage(Usage(3_000 * n, 10))) for n in range(1, 7)], Say("Done.")]
    model = Recording(ScriptedModel(steps, info=SMALL))
    events = await play(stage.agent(model, read_much).chat().send("go"))
    (compaction,) = of(events, e.CompactionComplete)
    assert (compaction.trigger, compaction.success, compaction.summary) == ("threshold", True, "")
    assert compaction.tokens_after < compaction.tokens_before
    assert of(events, e.ModelCall) == []
    entries = model.turns()[-1]
    assert "left out" in entries[2].results[0].text  # type: ignore[union-attr]
    assert "left out" not in entries[-1].results[0].text  # type: ignore[union-attr]
    assert list_idle_reasons(events) == ["done"]


async def test_then_older_history_is_summarised_and_people_stay_verbatim(stage: Stage) -> None:
    steps = [
        *[(Say("x" * 12_000), Call("look", n=n), ReportUsage(Usage(3_000 * n, 10))) for n in range(1, 8)],
        Say("Done."),
    ]
    model = Recording(
        ScriptedModel(steps, side_answers={"compaction": "We looked around."}, follow="turns", info=SMALL)
    )
    chat = stage.agent(model, look).chat()
    events = await play(chat.send("Look around, please."))
    assert list_idle_reasons(events) == ["done"]
    (compaction,) = of(events, e.CompactionComplete)
    assert (compaction.success, compaction.summary) == (True, "We looked around.")
    assert compaction.tokens_after < 10_000 < compaction.tokens_before  # half of where it begins
    assert [call.purpose for call in of(events, e.ModelCall)] == ["compaction"]
    entries = model.turns()[-1]
    valid_history(entries)
    assert isinstance(entries[0], UserEntry)
    assert entries[0].text == "Look around, please."
    assert "We looked around." in entries[1].text  # type: ignore[union-attr]
    assert len(of(await chat.events(), e.AssistantMessage)) == 8  # the log is never rewritten


async def test_a_request_that_is_too_long_is_compacted_once_and_made_again(stage: Stage) -> None:
    steps = [Call("look", n=1), Call("look", n=2), (Fail("context_limit", times=1), Say("Done."))]
    model = ScriptedModel(steps, side_answers={"compaction": "We looked."}, follow="turns")
    events = await play(stage.agent(model, look).chat().send("go"))
    assert [retry.error_class for retry in of(events, e.TurnRetry)] == ["context_limit"]
    assert [compaction.trigger for compaction in of(events, e.CompactionComplete)] == ["context_limit"]
    assert of(events, e.CompactionComplete)[0].success
    assert list_idle_reasons(events) == ["done"]


async def test_a_request_that_stays_too_long_is_an_error(stage: Stage) -> None:
    steps = [Call("look", n=1), Call("look", n=2), Fail("context_limit", times=0)]
    events = await play(stage.agent(ScriptedModel(steps, follow="turns"), look).chat().send("go"))
    assert len(of(events, e.CompactionStart)) == 1
    assert of(events, e.SessionError)[0].error_class == "context_limit"
    assert list_idle_reasons(events) == ["error"]


async def test_three_failures_stop_it_and_the_run_goes_on(stage: Stage) -> None:
    steps = [
        *[(Say("x" * 12_000), Call("look", n=n), ReportUsage(Usage(3_000 * n, 10))) for n in range(1, 12)],
        Say("Done."),
    ]
    broken = {"compaction": Turn((Fail("bad_request", times=0),))}
    model = ScriptedModel(steps, side_answers=broken, info=SMALL)
    events = await play(stage.agent(model, look).chat().send("go"))
    assert [compaction.success for compaction in of(events, e.CompactionComplete)] == [False] * 3
    assert list_idle_reasons(events) == ["done"]


async def test_an_idle_chat_is_compacted_on_request(stage: Stage) -> None:
    gate = Gate()
    model = ScriptedModel([Say("1"), Say("2"), Say("3")], side_answers={"compaction": "Small talk."}, follow="turns")

    class Slow(Recording):
        async def stream(self, request):  # type: ignore[no-untyped-def]
            if request.purpose == "compaction":
                await gate.pass_through()
            async for deltas in super().stream(request):
                yield deltas

    chat = stage.agent(Slow(model)).chat()
    await chat.ask("one")
    await chat.ask("two")
    gate.open.set()
    events = await play(chat.compact())
    assert types(events) == ["session.compaction_start", "session.model_call", "session.compaction_complete"]
    assert of(events, e.CompactionComplete)[0].success
    assert list_idle_reasons(events) == []  # there was no run
    assert (await chat.ask("three")).text == "3"


async def test_what_is_to_be_shortened_is_cut_to_the_window_of_the_model_that_shortens_it(stage: Stage) -> None:
    """A conversation that a larger model had: the request to the smaller one fits it, and so does the answer."""
    replies = [Say(f"begun {'a' * 9_000}"), Say(f"{'b' * 9_000} ended"), Say("3")]
    chat = stage.agent(ScriptedModel(replies, info=ModelInfo("scripted", "large", window=200_000))).chat()
    for text in ("one", "two", "three"):
        await chat.ask(text)
    small = ModelInfo("scripted", "small", window=4_000, max_output=4_000)
    model = Recording(ScriptedModel([], side_answers={"compaction": "Letters."}, follow="turns", info=small))
    events = await play(stage.agent(model).chat(chat.id).compact())
    assert of(events, e.CompactionComplete)[0].success
    (request,) = model.requests
    (entry,) = request.entries
    assert isinstance(entry, UserEntry)
    assert "begun" in entry.text
    assert entry.text.endswith("ended")
    assert "[… left out …]" in entry.text
    request_tokens = estimate_tokens(weigh(entry) + len(request.system))
    assert request_tokens < small.window * 0.8
    assert 256 <= request.max_tokens <= small.window - request_tokens


async def test_a_message_that_fills_a_small_window_does_not_use_up_the_attempts(stage: Stage) -> None:
    """A provider that counts more tokens than we do, and a person who pastes a whole file."""
    steps = [*[(Call("read_much", n=n), ReportUsage(Usage(16_000 + 700 * n, 10))) for n in range(1, 8)], Say("Done.")]
    model = ScriptedModel(steps, side_answers={"compaction": "We read."}, follow="turns", info=SMALL)
    events = await play(stage.agent(model, read_much).chat().send("p" * 30_000))
    assert [compaction.success for compaction in of(events, e.CompactionComplete)].count(False) == 0
    assert list_idle_reasons(events) == ["done"]


async def test_what_the_model_has_not_seen_is_never_shortened(stage: Stage) -> None:
    @tool(read_only=True)
    async def read_all() -> str:
        """Read something huge."""
        return "all " * 16_000

    steps = [Call("look", n=1), (Call("read_all"), ReportUsage(Usage(15_000, 10))), Say("Done.")]
    model = Recording(ScriptedModel(steps, side_answers={"compaction": "We read."}, follow="turns", info=SMALL))
    events = await play(stage.agent(model, look, read_all).chat().send("go"))
    assert of(events, e.CompactionComplete)[0].success
    last = model.turns()[-1][-1]
    assert isinstance(last, ResultsEntry)
    assert last.results[0].text == "all " * 16_000


async def test_pictures_reach_the_model_with_their_bytes(stage: Stage) -> None:
    """Those of the store, read once for a conversation; one that is lost is no reason to fail."""
    blob = await stage.store.put_blob(b"\x89PNG")
    stored_image, lost_image = Image("image/png", blob), Image("image/png", "0" * 64)
    model = Recording(ScriptedModel([Say("A cat."), Say("Yes.")]))
    chat = stage.agent(model).chat()
    await play(chat.send("Look.", images=[stored_image, lost_image]))
    await play(chat.send("Sure?"))
    assert [dict(request.pictures) for request in model.requests] == [{blob: b"\x89PNG"}] * 2
    assert model.turns()[1][0] == model.turns()[0][0]
