"""Where a run ends although the model would go on: turn cap, budgets, loop guard (L-03, L-10, L-11; faults 25, 30)."""

from collections.abc import Iterable

import pytest

from tests.scenario.kit import Gate, Recording, Stage, change, list_idle_reasons, look, of, play, types, until
from treadle import Budget, tool
from treadle.adapters.models.scripted import Call, Fail, Hang, ReportUsage, Say, ScriptedModel, Step
from treadle.ports.model import ModelInfo
from treadle.protocol import commands as c
from treadle.protocol import events as e
from treadle.protocol.content import AssistantEntry, Usage
from treadle.testing.clock import ManualClock

COST = Usage(2_000, 100)


def working(turns: int) -> list[Step]:
    """A model that does something new in every turn."""
    return [(Call("change", n=n), ReportUsage(COST)) for n in range(turns)]


# -- the turn cap (L-03) ----------------------------------------------------------------------------------------------


async def test_a_last_answer_is_made_without_tools(stage: Stage) -> None:
    model = Recording(ScriptedModel([*working(4), Say("So far so good.")]))
    events = await play(stage.agent(model, change).chat(max_turns=4).send("go"))
    assert list_idle_reasons(events) == ["turn_cap"]
    assert [len(request.tools) for request in model.requests] == [1, 1, 1, 1, 0]
    assert of(events, e.AssistantMessage)[-1].content == "So far so good."
    assert [warning.used for warning in of(events, e.LimitWarning)] == [1]


async def test_calls_in_a_last_answer_are_not_run(stage: Stage) -> None:
    ran = 0

    @tool
    async def count() -> str:
        """Count."""
        nonlocal ran
        ran += 1
        return "ok"

    chat = stage.agent([Call("count"), Call("count")], count).chat(max_turns=1)
    assert list_idle_reasons(await play(chat.send("go"))) == ["turn_cap"]
    assert ran == 1


async def test_the_cap_may_be_an_error(stage: Stage) -> None:
    events = await play(stage.agent(working(2), change).chat(max_turns=2, on_limit="error").send("go"))
    assert types(events)[-3:] == ["session.limit_reached", "session.error", "session.run_end"]
    assert list_idle_reasons(events) == ["turn_cap"]


async def test_a_person_may_extend_the_run(stage: Stage) -> None:
    chat = stage.agent([*working(3), Say("Done.")], change).chat(max_turns=2, interactive=True)
    events = await play(chat.send("go"))
    assert await chat.status() == "requires_action"
    (action,) = await chat.actions()
    assert "2 turns" in action.text
    events = await play(chat.answer(action, "continue"))
    assert list_idle_reasons(events) == ["done"]
    assert len(of(await chat.events(), e.TurnStart)) == 4


async def test_autopilot_asks_for_no_turns_before_its_budget_ends(stage: Stage) -> None:  # L-03, L-11
    options = {"max_turns": 2, "interactive": True, "mode": "autopilot"}
    chat = stage.agent([*working(9), Say("Done.")], change).chat(run_budget=Budget(turns=5), **options)
    events = await play(chat.send("go"))
    assert list_idle_reasons(events) == ["budget"]
    assert [(each.turns, each.by) for each in of(events, e.LimitExtended)] == [(2, "autopilot")] * 2
    assert of(events, e.UserInputRequested) == []
    for unlike in ({}, {"run_budget": Budget(turns=5), "on_limit": "ask"}):  # no budget, or told to ask
        asks = stage.agent([*working(9)], change).chat(**options, **unlike)
        await play(asks.send("go"))
        assert await asks.status() == "requires_action"


async def test_a_person_may_stop_at_the_cap(stage: Stage) -> None:
    chat = stage.agent(working(2), change).chat(max_turns=2, interactive=True)
    await play(chat.send("go"))
    events = await play(chat.answer((await chat.actions())[0], "stop"))
    assert list_idle_reasons(events) == ["turn_cap"]
    assert await chat.status() == "idle"


async def test_the_limit_can_be_extended_while_running(stage: Stage) -> None:
    gate = Gate()
    wait = tool(name="wait")(gate.pass_through)
    chat = stage.agent([Call("wait"), *working(2), Say("Done.")], wait, change).chat(max_turns=1)
    await chat.send("go")
    await gate.entered.wait()
    await chat.command(c.ExtendTurns(5))
    gate.open.set()
    assert list_idle_reasons(await play(chat.resume(after_seq=0))) == ["done"]


# -- budgets (L-11, fault 30) -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("budget", "kind", "turns"),
    [
        (Budget(turns=2), "turns", 2),
        (Budget(tokens=5_000), "tokens", 2),
        (Budget(tool_calls=3), "tool_calls", 3),
        (Budget(usd=0.05), "usd", 2),
    ],
)
@pytest.mark.parametrize("scope", ["run", "chat"])
async def test_a_budget_ends_the_run(stage: Stage, scope: str, budget: Budget, kind: str, turns: int) -> None:
    info = ModelInfo("scripted", "x", window=200_000, usd_per_million_input=10.0, usd_per_million_output=10.0)
    chat = stage.agent(ScriptedModel(working(9), info=info), change).chat(**{f"{scope}_budget": budget})
    events = await play(chat.send("go"))
    assert list_idle_reasons(events) == ["budget"]
    assert [(limit.kind, limit.scope) for limit in of(events, e.LimitReached)] == [(kind, scope)]
    assert len(of(events, e.TurnStart)) == turns


async def test_a_warning_comes_at_80_percent(stage: Stage) -> None:
    events = await play(stage.agent(working(9), change).chat(run_budget=Budget(turns=5)).send("go"))
    assert [(warning.kind, warning.used) for warning in of(events, e.LimitWarning)] == [("turns", 4)]


async def test_a_run_budget_is_new_for_every_run_and_a_chat_budget_is_not(stage: Stage) -> None:
    steps = [(Say(str(n)), ReportUsage(COST)) for n in range(9)]
    chat = stage.agent(steps).chat(run_budget=Budget(turns=1), chat_budget=Budget(turns=3))
    assert [(await chat.ask("go")).reason for _ in range(4)] == ["done", "done", "done", "budget"]


async def test_what_was_spent_survives_a_restart(stage: Stage) -> None:  # fault 30
    gate = Gate()
    wait = tool(name="wait")(gate.pass_through)
    chat = stage.agent([*working(2), Call("wait")], change, wait).chat(run_budget=Budget(turns=3))
    await chat.send("go")
    await gate.entered.wait()
    await stage.kill()
    again = stage.agent([*working(9)], change, wait).chat(chat.id)
    events = await play(again.resume())
    assert list_idle_reasons(events) == ["budget"]
    assert len(of(await again.events(), e.TurnStart)) == 3


async def test_a_person_may_think_as_long_as_they_like(stage: Stage) -> None:  # L-11
    clock = ManualClock()
    agent = stage.agent([*working(1), Say("Done.")], change, clock=clock)
    chat = agent.chat(max_turns=1, interactive=True, run_budget=Budget(wall_s=10.0))
    await play(chat.send("go"))
    clock.advance(3_600)
    events = await play(chat.answer((await chat.actions())[0], "continue"))
    assert list_idle_reasons(events) == ["done"]
    assert (await chat.state()).totals.wall_ms == 0


async def test_dying_again_and_again_in_a_call_does_not_overspend(stage: Stage) -> None:  # fault 30
    """The possible cost of a lost call counts, and no further attempt is made once the budget is gone."""
    chat = stage.agent([(Say("I"), Hang())]).chat(run_budget=Budget(tokens=2_000))
    await until(chat.send("go"), lambda event: isinstance(event, e.MessageDelta))
    for _ in range(9):
        await stage.kill()
        chat = stage.agent([(Say("I"), Hang())]).chat(chat.id)
        events = await until(chat.resume(), lambda event: isinstance(event, e.MessageDelta | e.SessionIdle))
        if list_idle_reasons(events):
            break
    assert list_idle_reasons(events) == ["budget"]
    reserved = of(await chat.events(), e.TurnStart)[0].reserved.tokens
    spent = (await chat.state()).totals.usage.tokens
    assert 2_000 - reserved < spent <= 2_000 + reserved


async def test_failed_attempts_count_and_end_with_the_budget(stage: Stage) -> None:  # fault 30
    steps = [(Say("x" * 3_600), Fail("network", times=0))]
    chat = stage.agent(steps).chat(run_budget=Budget(tokens=2_500))
    events = await play(chat.send("go"))
    assert list_idle_reasons(events) == ["budget"]
    assert 0 < len(of(events, e.TurnRetry)) < 5
    assert types(events)[-3:] == ["session.limit_reached", "assistant.turn_end", "session.run_end"]


async def test_a_summary_is_not_made_on_credit(stage: Stage) -> None:
    cost = ReportUsage(Usage(300, 100))
    chat = stage.agent([(Call("change"), cost), (Say(""), cost)], change).chat(run_budget=Budget(tokens=1_000))
    events = await play(chat.send("go"))
    (summary,) = of(events, e.ModelCall)
    assert summary.usage == Usage()
    assert "changed 0" in summary.text
    assert list_idle_reasons(events) == ["done"]


# -- the loop guard (L-10, fault 25) ----------------------------------------------------------------------------------


def stuck(turns: int) -> Iterable[Step]:
    return [Call("look", n=1) for _ in range(turns)]


async def test_three_identical_calls_nudge_and_five_stop(stage: Stage) -> None:
    model = Recording(ScriptedModel([*stuck(5), Say("Fine."), Say("Here again.")]))
    chat = stage.agent(model, look).chat()
    events = await play(chat.send("go"))
    assert [(notice.action, notice.repeats) for notice in of(events, e.GuardNotice)] == [("nudge", 3), ("stop", 5)]
    assert list_idle_reasons(events) == ["guard"]
    assert [message.source for message in of(events, e.UserMessage)] == ["person", "guard"]
    assert sum(isinstance(entry, AssistantEntry) for entry in model.turns()[-1]) == 4
    assert (await chat.ask("And now?")).reason == "done"  # a guarded chat stays usable


async def test_fifty_different_calls_pass(stage: Stage) -> None:
    steps = [[Call("change", n=10 * turn + n) for n in range(10)] for turn in range(5)]
    events = await play(stage.agent([*steps, Say("Done.")], change).chat().send("go"))
    assert list_idle_reasons(events) == ["done"]
    assert len(of(events, e.ExecutionComplete)) == 50
    assert of(events, e.GuardNotice) == []


async def test_cycles_are_seen_too(stage: Stage) -> None:
    steps = [Call("look", n=turn % 2) for turn in range(10)]
    events = await play(stage.agent(steps, look).chat().send("go"))
    assert [(notice.action, notice.length) for notice in of(events, e.GuardNotice)] == [("nudge", 2), ("stop", 2)]


async def test_a_person_is_asked_and_may_let_it_go_on(stage: Stage) -> None:
    chat = stage.agent([*stuck(5), Say("Done.")], look).chat(interactive=True)
    await play(chat.send("go"))
    (action,) = await chat.actions()
    assert action.options == ("continue", "stop")
    assert list_idle_reasons(await play(chat.answer(action, "continue"))) == ["done"]


async def test_a_person_may_stop_it(stage: Stage) -> None:
    chat = stage.agent(stuck(5), look).chat(interactive=True)
    await play(chat.send("go"))
    assert list_idle_reasons(await play(chat.answer((await chat.actions())[0], "stop"))) == ["guard"]
