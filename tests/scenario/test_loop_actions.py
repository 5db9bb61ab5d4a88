"""A chat waits for client tools, approvals and answers to questions. The loop leaves, and the answer lets it go on, in
this process or in another (A-02 to A-05, S-08, T-07)."""

import asyncio
from pathlib import Path

import pytest

from tests.scenario.kit import Recording, Stage, change, list_idle_reasons, look, of, play, results, types
from treadle import Agent, Chat, tool
from treadle.adapters.models.scripted import Call, Say, ScriptedModel
from treadle.adapters.stores.memory import MemoryStore
from treadle.errors import Refused
from treadle.ports.store import Commit
from treadle.protocol import commands as c
from treadle.protocol import events as e
from treadle.protocol.content import ResultsEntry
from treadle.protocol.tools import DynamicTool
from treadle.testing.clock import ManualClock

WEATHER = DynamicTool("weather", "Tells the weather.", {"type": "object", "properties": {"city": {"type": "string"}}})


def clients(stage: Stage, *steps: object, **settings: object) -> Agent:
    return stage.agent(steps, look, change, **settings)  # type: ignore[arg-type]


async def waiting(chat: Chat) -> list[str]:
    return [action.tool_call_id for action in await chat.actions()]


# -- client tools -----------------------------------------------------------------------------------------------------


async def test_own_calls_run_first_and_then_the_loop_leaves(stage: Stage) -> None:
    agent = clients(stage, [Call("weather", city="Oslo"), Call("change", n=1), Call("look", n=2)], Say("Sunny."))
    chat = agent.chat(dynamic_tools=(WEATHER,))
    events = await play(chat.send("How is it?"))
    assert [completion.call for completion in of(events, e.ExecutionComplete)] == ["1.1", "1.2"]
    assert isinstance(events[-1].data, e.ActionRequired)
    assert [(each.name, each.arguments) for each in events[-1].data.actions] == [("weather", {"city": "Oslo"})]
    assert list_idle_reasons(events) == []
    assert await chat.status() == "requires_action"
    assert not (await stage.store.get(chat.id)).leased


async def test_action_required_comes_after_the_commit(stage: Stage) -> None:  # A-02, law 10
    chat = clients(stage, Call("weather")).chat(dynamic_tools=(WEATHER,))
    events = await play(chat.send("How is it?"))
    assert types(events) == types((await chat.events())[1:])
    assert types(events)[-1] == "external_tool.requested"


async def test_another_process_submits_and_the_model_sees_all_results_together(stage: Stage) -> None:
    chat = clients(stage, [Call("weather", city="Oslo"), Call("weather", city="Rome")]).chat(dynamic_tools=(WEATHER,))
    await play(chat.send("How is it?"))
    await stage.kill()
    model = Recording(ScriptedModel([[Call("weather"), Call("weather")], Say("Sunny and warm.")]))
    again = stage.agent(model).chat(chat.id)
    events = await play(again.submit({"1.1": {"degrees": 30}, "1.0": "rain"}))
    assert list_idle_reasons(events) == ["done"]
    last = model.turns()[-1][-1]
    assert isinstance(last, ResultsEntry)
    assert [result.text for result in last.results] == ["rain", '{"degrees":30}']


async def test_a_client_may_say_that_it_failed(stage: Stage) -> None:
    chat = clients(stage, Call("weather"), Say("Oh.")).chat(dynamic_tools=(WEATHER,))
    await play(chat.send("How is it?"))
    events = await play(chat.submit([c.Result("1.0", "no window here", is_error=True)]))
    (completion,) = of(events, e.ExecutionComplete)
    assert (completion.success, completion.error) == (False, "no window here")


@pytest.mark.parametrize("ids", [[], ["1.0"], ["1.0", "1.1", "1.2"], ["1.0", "2.0"], ["1.0", "1.1", "1.1"]])
async def test_results_that_do_not_match_are_refused(stage: Stage, ids: list[str]) -> None:
    chat = clients(stage, [Call("weather"), Call("weather")]).chat(dynamic_tools=(WEATHER,))
    await play(chat.send("How is it?"))
    old_state = await chat.state()
    with pytest.raises(Refused) as refused:
        await chat.submit([c.Result(each) for each in ids])
    assert refused.value.reason == "results_mismatch"
    assert await chat.state() == old_state


async def test_of_fifty_racing_submits_one_wins(stage: Stage) -> None:  # A-04, fault 5
    chat = clients(stage, Call("weather"), Say("Sunny.")).chat(dynamic_tools=(WEATHER,))
    await play(chat.send("How is it?"))
    tries = [chat.command(c.SubmitResults((c.Result("1.0", number),))) for number in range(50)]
    outcomes = await asyncio.gather(*tries, return_exceptions=True)
    refused = [each.reason for each in outcomes if isinstance(each, Refused)]
    assert refused == ["not_awaiting_action"] * 49
    await play(chat.resume())
    assert len(of(await chat.events(), e.ExecutionComplete)) == 1


async def test_a_deadline_that_passes_is_an_error_result(stage: Stage) -> None:
    clock = ManualClock()
    chat = clients(stage, Call("weather"), Say("I cannot tell."), clock=clock).chat(dynamic_tools=(WEATHER,))
    await play(chat.send("How is it?"))
    clock.advance(299)
    await play(chat.resume())
    assert await chat.status() == "requires_action"
    head = (await chat.state()).head
    clock.advance(2)
    log = await play(chat.resume(after_seq=head))  # the worker may be quicker than this resume
    assert of(log, e.ExecutionComplete)[0].synthetic == "deadline"
    assert list_idle_reasons(log) == ["done"]


async def test_a_deadline_wakes_the_chat_by_itself(stage: Stage) -> None:
    chat = clients(stage, Call("weather"), Say("I cannot tell.")).chat(dynamic_tools=(WEATHER,), action_deadline_s=0.02)
    await play(chat.send("How is it?"))
    head = (await chat.state()).head
    while not of(await chat.events(), e.RunEnd):
        head = await stage.store.wait(chat.id, head, 5)
    assert await results(chat) == ["Nobody answered this call in time."]


async def test_a_deadline_may_end_the_run(stage: Stage) -> None:
    clock = ManualClock()
    agent = clients(stage, Call("weather"), clock=clock)
    chat = agent.chat(dynamic_tools=(WEATHER,), on_deadline="error")
    await play(chat.send("How is it?"))
    head = (await chat.state()).head
    clock.advance(301)
    log = await play(chat.resume(after_seq=head))  # the worker may be quicker than this resume
    assert of(log, e.SessionError)[0].error_class == "deadline"
    assert await chat.status() == "error"


async def test_without_a_deadline_it_waits_for_ever(stage: Stage) -> None:
    clock = ManualClock()
    chat = clients(stage, Call("weather"), clock=clock).chat(dynamic_tools=(WEATHER,), action_deadline_s=0)
    await play(chat.send("How is it?"))
    clock.advance(10**7)
    await play(chat.resume())
    assert await waiting(chat) == ["1.0"]


async def test_a_steering_message_closes_what_is_open(stage: Stage) -> None:
    chat = clients(stage, Call("weather"), Say("As you like.")).chat(dynamic_tools=(WEATHER,))
    await play(chat.send("How is it?"))
    events = await play(chat.send("Never mind.", delivery="steering"))
    assert of(events, e.ExecutionComplete)[0].synthetic == "steering"
    assert list_idle_reasons(events) == ["done"]


# -- approvals --------------------------------------------------------------------------------------------------------


async def start_confirm_chat(stage: Stage, *steps: object) -> Chat:
    chat = clients(stage, *steps).chat(mode="confirm", interactive=True)
    await play(chat.send("go"))
    return chat


async def test_an_approval_survives_a_restart_and_runs_once(stage: Stage) -> None:  # S-08, fault 6
    steps = (Call("change", n=7), Say("Done."))
    chat = await start_confirm_chat(stage, *steps)
    (action,) = await chat.actions()
    assert "change" in action.text
    await stage.kill()
    again = clients(stage, *steps).chat(chat.id)
    events = await play(again.approve(action))
    assert list_idle_reasons(events) == ["done"]
    assert await results(again) == ["changed 7"]
    with pytest.raises(Refused) as refused:
        await again.approve(action)
    assert refused.value.reason == "no_such_action"


async def test_a_refusal_with_feedback_is_the_result(stage: Stage) -> None:  # S-08
    chat = await start_confirm_chat(stage, Call("change", n=7), Say("As you like."))
    events = await play(chat.deny((await chat.actions())[0], "not on a Sunday"))
    assert list_idle_reasons(events) == ["done"]
    assert "not on a Sunday" in (await results(chat))[0]
    assert of(events, e.ExecutionStart) == []


async def test_edited_arguments_are_what_runs(stage: Stage) -> None:  # S-08
    chat = await start_confirm_chat(stage, Call("change", n=7), Say("Done."))
    await play(chat.approve((await chat.actions())[0], arguments={"n": 8}))
    assert await results(chat) == ["changed 8"]


async def test_reads_before_it_run_and_calls_after_it_wait(stage: Stage) -> None:  # L-06
    chat = await start_confirm_chat(stage, [Call("look", n=1), Call("change", n=2), Call("look", n=3)], Say("Done."))
    assert [completion.call for completion in of(await chat.events(), e.ExecutionComplete)] == ["1.0"]
    await play(chat.approve((await chat.actions())[0]))
    assert await results(chat) == ["seen 1", "changed 2", "seen 3"]


async def test_what_nobody_can_allow_is_declined_at_once(stage: Stage) -> None:  # S-05
    chat = clients(stage, Call("change"), Say("I see.")).chat(mode="confirm")
    events = await play(chat.send("go"))
    assert list_idle_reasons(events) == ["done"]
    assert of(events, e.PermissionCompleted)[0].decision == "deny"


# -- questions --------------------------------------------------------------------------------------------------------


async def test_a_question_waits_for_its_answer(stage: Stage) -> None:  # T-07
    steps = [Call("ask_user", question="Which?", options=["this", "that"]), Say("Fine.")]
    chat = stage.agent(steps, builtin=True).chat(interactive=True)
    await play(chat.send("go"))
    (action,) = await chat.actions()
    assert (action.text, action.options) == ("Which?", ("this", "that"))
    assert list_idle_reasons(await play(chat.answer(action, "neither"))) == ["done"]
    assert await results(chat) == ["neither"]


async def test_approvals_and_client_tools_of_one_turn(stage: Stage) -> None:
    @tool(needs_approval=True)
    async def danger() -> str:
        """Needs a person."""
        return "done"

    agent = stage.agent([[Call("weather"), Call("danger")], Say("Fine.")], danger)
    chat = agent.chat(interactive=True, dynamic_tools=(WEATHER,))
    await play(chat.send("go"))
    client, approval = await chat.actions()
    await play(chat.approve(approval))
    assert await chat.status() == "requires_action"
    assert list_idle_reasons(await play(chat.submit({client.tool_call_id: "rain"}))) == ["done"]
    assert await results(chat) == ["rain", "done"]


class SlowAnswers(MemoryStore):
    """The commit of an answer waits until `go`."""

    def __init__(self) -> None:
        super().__init__()
        self.waits, self.go = asyncio.Event(), asyncio.Event()

    async def append(self, commit: Commit) -> None:
        if any(record.type == e.PermissionCompleted.TYPE for record in commit.records):
            self.waits.set()
            await self.go.wait()
        await super().append(commit)


async def test_a_late_announcement_of_a_question_does_not_end_its_answer(tmp_path: Path) -> None:  # S-08
    store = SlowAnswers()
    agent = Stage(store).agent([[Call("write_file", path=".env", content="A=1\n")], Say("Done.")], builtin=True)
    chat = agent.chat(root=str(tmp_path), interactive=True)
    await play(chat.send("Go."))
    (action,) = await chat.actions()
    answer = asyncio.create_task(play(chat.approve(action)))
    await store.waits.wait()
    agent.deps.log.publish_live(chat.id, e.ActionRequired((action,)))
    store.go.set()
    assert list_idle_reasons(await answer) == ["done"]
    assert (tmp_path / ".env").read_text() == "A=1\n"
    await agent.close()
