"""When a run is done: task_complete, autopilot, the marker, and a word at the end (L-13 to L-15, L-17)."""

from tests.scenario.kit import Recording, Stage, change, fail, list_idle_reasons, look, of, play, types
from treadle.adapters.models.scripted import Call, Fail, ReportUsage, Say, ScriptedModel, Turn
from treadle.chat.completion import MARKER
from treadle.protocol import events as e
from treadle.protocol.content import Usage, UserEntry


def finish(summary: str = "All done.") -> Call:
    return Call("task_complete", summary=summary)


# -- task_complete (L-13) ---------------------------------------------------------------------------------------------


async def test_task_complete_is_recorded_and_ends_the_run(stage: Stage) -> None:
    chat = stage.agent([Call("change"), finish()], change, builtin=True).chat()
    events = await play(chat.send("go"))
    assert [completion.summary for completion in of(events, e.TaskComplete)] == ["All done."]
    assert list_idle_reasons(events) == ["task_complete"]


async def test_calls_beside_task_complete_are_still_run(stage: Stage) -> None:
    chat = stage.agent([[Call("change", n=1), finish(), Call("change", n=2)]], change, builtin=True).chat()
    events = await play(chat.send("go"))
    assert [completion.success for completion in of(events, e.ExecutionComplete)] == [True, True, True]
    assert list_idle_reasons(events) == ["task_complete"]


# -- autopilot (L-14) -------------------------------------------------------------------------------------------------


def nudges(events: list[e.Envelope]) -> int:
    return sum(message.source == "autopilot" for message in of(events, e.UserMessage))


async def test_autopilot_goes_on_until_the_task_is_complete(stage: Stage) -> None:
    model = Recording(ScriptedModel([Say("Shall I?"), Call("change"), Say("Well?"), finish()]))
    events = await play(stage.agent(model, change, builtin=True).chat(mode="autopilot").send("go"))
    assert list_idle_reasons(events) == ["task_complete"]
    assert nudges(events) == 2
    nudge = model.turns()[1][-1]
    assert isinstance(nudge, UserEntry)
    for words in ("open questions", "unresolved errors", "remaining steps"):
        assert words in nudge.text


async def test_autopilot_always_has_the_tool(stage: Stage) -> None:
    model = Recording(ScriptedModel([finish()]))
    chat = stage.agent(model, change, builtin=True).chat(mode="autopilot", tools=("change",))
    await play(chat.send("go"))
    assert [spec.name for spec in model.requests[0].tools] == ["task_complete", "change"]


async def test_autopilot_gives_up_after_two_without_progress(stage: Stage) -> None:
    events = await play(stage.agent([Say("Hm.") for _ in range(9)]).chat(mode="autopilot").send("go"))
    assert nudges(events) == 2
    assert list_idle_reasons(events) == ["done"]


async def test_autopilot_goes_on_at_most_five_times(stage: Stage) -> None:
    steps = [step for n in range(9) for step in (Call("change", n=n), Say("Hm."))]
    events = await play(stage.agent(steps, change).chat(mode="autopilot", max_turns=50).send("go"))
    assert nudges(events) == 5


async def test_autopilot_does_not_go_on_after_an_error(stage: Stage) -> None:
    events = await play(stage.agent([Say("Hm."), Fail("auth", times=0)]).chat(mode="autopilot").send("go"))
    assert nudges(events) == 1
    assert list_idle_reasons(events) == ["error"]


async def test_the_nudge_can_be_worded_anew(stage: Stage) -> None:
    chat = stage.agent([Say("Hm."), finish()], builtin=True).chat(mode="autopilot", continue_text="Weiter!")
    events = await play(chat.send("go"))
    assert of(events, e.UserMessage)[1].content == "Weiter!"


# -- the marker (L-15) ------------------------------------------------------------------------------------------------


async def test_the_marker_ends_the_run_and_is_shown_nowhere(stage: Stage) -> None:
    steps = [Turn((Say(f"All done. {MARKER}"),), chunk=3)]
    chat = stage.agent(steps).chat(completion="marker", mode="autopilot")
    events = await play(chat.send("go"))
    assert list_idle_reasons(events) == ["task_complete"]
    assert of(events, e.AssistantMessage)[0].content == "All done."
    assert "".join(delta.text for delta in of(events, e.MessageDelta)).rstrip() == "All done."
    assert "TASK_" not in str(await chat.events())


async def test_a_begun_marker_is_stripped_too(stage: Stage) -> None:
    chat = stage.agent([Turn((Say("All done. [TASK_COM"),), chunk=1)]).chat(completion="marker")
    events = await play(chat.send("go"))
    assert list_idle_reasons(events) == ["done"]
    assert of(events, e.AssistantMessage)[0].content == "All done. "
    assert "[" not in "".join(delta.text for delta in of(events, e.MessageDelta))


async def test_brackets_that_are_no_marker_come_through(stage: Stage) -> None:
    text = "a[0] = [T for T in [TASK]]; done"
    events = await play(stage.agent([Turn((Say(text),), chunk=2)]).chat(completion="marker").send("go"))
    assert of(events, e.AssistantMessage)[0].content == text
    assert "".join(delta.text for delta in of(events, e.MessageDelta)) == text


# -- a word at the end (L-17) -----------------------------------------------------------------------------------------


async def test_a_silent_run_is_explained_by_a_call_of_its_own(stage: Stage) -> None:
    steps = [*[Call("change", n=n) for n in range(8)], (Say(""), ReportUsage(Usage(5, 1)))]
    model = Recording(ScriptedModel(steps, side_answers={"summary": "I changed eight things."}))
    chat = stage.agent(model, change).chat()
    answer = await chat.ask("go")
    assert answer.text == "I changed eight things."
    (call,) = of(await chat.events(), e.ModelCall)
    assert (call.purpose, call.text) == ("summary", "I changed eight things.")
    assert call.usage.tokens > 0
    prompt = next(request for request in model.requests if request.purpose == "summary")
    lines = [line for line in prompt.entries[0].text.splitlines() if line.startswith("- ")]  # type: ignore[union-attr]
    assert lines == [f"- change: changed {n}" for n in range(2, 8)]
    assert (await chat.state()).totals.turns == 9  # counted apart from turns (L-02)


async def test_a_summary_that_fails_is_replaced_by_the_results(stage: Stage) -> None:
    model = ScriptedModel([Call("fail"), Say("")], side_answers={"summary": Turn((Fail("auth", times=0),))})
    chat = stage.agent(model, fail).chat()
    answer = await chat.ask("go")
    assert answer.reason == "done"
    assert answer.text.startswith("- fail: failed: ")


async def test_summaries_can_be_off_and_are_not_made_for_talk(stage: Stage) -> None:
    silent = await play(stage.agent([Call("look"), Say("")], look).chat(summarize=False).send("go"))
    assert "session.model_call" not in types(silent)
    events = await play(stage.agent([(Say("I look."), Call("look")), Say("")], look).chat().send("go"))
    assert "session.model_call" not in types(events)
