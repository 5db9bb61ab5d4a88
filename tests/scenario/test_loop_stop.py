"""Interrupting at any moment, and faults that end a run: nothing hangs, and the chat stays usable (L-07, L-12)."""

import asyncio
import os
from pathlib import Path

import pytest

from tests.processes import running_with, unlike_any_other
from tests.scenario.kit import Gate, Stage, change, list_idle_reasons, look, of, play, types, until
from treadle import tool
from treadle.adapters.models.scripted import Call, Fail, Finish, Hang, Say, ScriptedModel, Think, Turn
from treadle.errors import Refused, RunFailed
from treadle.protocol import events as e


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


async def test_in_mid_stream_the_text_is_kept_and_marked(stage: Stage) -> None:
    chat = stage.agent([(Think("hm"), Say("Half a sen"), Hang()), Say("Whole.")]).chat()
    await until(chat.send("go"), lambda event: isinstance(event, e.MessageDelta))
    await chat.interrupt("ada")
    events = await play(chat.resume(after_seq=0))
    assert types(events)[-4:] == [
        "session.interrupted",
        "assistant.message",
        "assistant.turn_end",
        "session.run_end",
    ]
    message = of(events, e.AssistantMessage)[0]
    assert (message.content, message.partial) == ("Half a sen", True)
    assert of(events, e.Interrupted)[0].by == "ada"
    assert await chat.status() == "idle"
    assert (await chat.ask("Again?")).text == "Whole."


async def test_a_half_written_call_is_never_run(stage: Stage) -> None:
    chat = stage.agent([(Say("I"), Call("change"), Hang()), Say("Fine.")], change).chat()
    await until(chat.send("go"), lambda event: isinstance(event, e.ToolCallDelta))
    await chat.interrupt()
    events = await play(chat.resume(after_seq=0))
    assert of(events, e.AssistantMessage)[0].tool_requests == ()
    assert of(events, e.ExecutionStart) == []


async def test_in_mid_tool_open_calls_get_a_synthetic_result(stage: Stage) -> None:
    gate = Gate()
    wait = tool(name="wait")(gate.pass_through)
    chat = stage.agent([[Call("look"), Call("wait"), Call("change")], Say("Fine.")], look, wait, change).chat()
    await chat.send("go")
    await gate.entered.wait()
    await chat.interrupt()
    events = await play(chat.resume(after_seq=0))
    assert gate.left == 1  # the tool was cancelled, and the loop waited for it
    assert [completion.synthetic for completion in of(events, e.ExecutionComplete)] == [
        "",
        "interrupted",
        "interrupted",
    ]
    assert list_idle_reasons(events) == ["interrupted"]
    assert (await chat.ask("Again?")).text == "Fine."


async def test_the_stop_is_recorded_before_anything_is_torn_down(stage: Stage) -> None:
    record_types: list[str] = []

    @tool
    async def wait() -> str:
        """Wait."""
        entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            record_types.extend(record.type for record in await stage.store.read(chat.id))
        return ""

    entered = asyncio.Event()
    chat = stage.agent([Call("wait")], wait).chat()
    await chat.send("go")
    await entered.wait()
    await chat.interrupt()
    await play(chat.resume())
    assert record_types[-1] == "session.interrupted"


async def test_a_command_is_stopped_with_all_its_descendants(stage: Stage, tmp_path: Path) -> None:
    nap = unlike_any_other()
    command = f"sleep {nap} & sleep 1{nap} & echo ready; wait"
    chat = stage.agent([Call("run_command", command=command), Say("Fine.")], builtin=True).chat(root=tmp_path)
    await until(chat.send("go"), lambda event: isinstance(event, e.ExecutionOutput))
    assert len(running_with(nap)) >= 2
    await chat.interrupt()
    await play(chat.resume())
    assert running_with(nap) == []
    assert await chat.status() == "idle"


async def test_while_it_waits_for_someone(stage: Stage) -> None:
    chat = stage.agent([Call("ask_user", question="Which?"), Say("Fine.")], builtin=True).chat(interactive=True)
    await play(chat.send("go"))
    assert await chat.status() == "requires_action"
    await chat.interrupt()
    assert await chat.status() == "idle"
    assert await chat.actions() == ()
    log = await chat.events()
    assert types(log)[-5:] == [
        "session.interrupted",
        "user_input.completed",
        "tool.execution_complete",
        "assistant.turn_end",
        "session.run_end",
    ]


async def test_while_it_waits_for_another_attempt(stage: Stage) -> None:
    model = ScriptedModel([(Fail("rate_limit", times=0, retry_after=100.0), Say("never"))])
    chat = stage.agent(model).chat()
    await until(chat.send("go"), lambda event: isinstance(event, e.TurnRetry))
    await chat.interrupt()
    events = await play(chat.resume(after_seq=0))
    assert types(events)[-3:] == ["session.interrupted", "assistant.turn_end", "session.run_end"]
    assert list_idle_reasons(events) == ["interrupted"]


async def test_a_stopped_run_is_not_taken_for_a_crashed_one(stage: Stage) -> None:  # fault 22
    gate = Gate()
    wait = tool(name="wait")(gate.pass_through)
    chat = stage.agent([Call("wait")], wait).chat()
    await chat.send("go")
    await gate.entered.wait()
    await chat.interrupt()
    await stage.kill()
    again = stage.agent([Call("wait"), Say("I went on.")], wait).chat(chat.id)
    assert list_idle_reasons(await play(again.resume(after_seq=0))) == ["interrupted"]
    assert of(await again.events(), e.AssistantMessage)[-1].content == ""


async def test_an_idle_chat_cannot_be_interrupted(stage: Stage) -> None:
    chat = stage.agent([Say("Hi.")]).chat()
    await chat.ask("go")
    with pytest.raises(Refused) as refused:
        await chat.interrupt()
    assert refused.value.reason == "not_running"


# -- faults of the model (L-12, M-11) ---------------------------------------------------------------------------------


async def test_a_passing_fault_is_shown_and_the_turn_made_again(stage: Stage) -> None:
    events = await play(stage.agent([(Say("Half"), Fail("cut_stream", times=2), Say(" and whole."))]).chat().send("go"))
    assert [retry.error_class for retry in of(events, e.TurnRetry)] == ["cut_stream"] * 2
    assert len(of(events, e.AssistantReset)) == 2
    assert of(events, e.AssistantMessage)[0].content == "Half and whole."
    assert len(of(events, e.TurnStart)) == len(of(events, e.TurnEnd)) == 1
    assert list_idle_reasons(events) == ["done"]


async def test_text_shown_after_the_last_reset_is_the_message(stage: Stage) -> None:  # fault 7
    events = await play(
        stage.agent([Turn((Say("abcdef"), Fail("network", times=1), Say("gh")), chunk=2)]).chat().send("x")
    )
    visible_text = ""
    for envelope in events:
        if isinstance(envelope.data, e.AssistantReset):
            visible_text = ""
        elif isinstance(envelope.data, e.MessageDelta):
            visible_text += envelope.data.text
    assert visible_text == "abcdefgh" == of(events, e.AssistantMessage)[0].content


async def test_five_retries_then_an_error_and_idle(stage: Stage) -> None:
    chat = stage.agent([Fail("overloaded", times=0)]).chat()
    events = await play(chat.send("go"))
    assert len(of(events, e.TurnRetry)) == 5
    assert types(events)[-3:] == ["session.error", "assistant.turn_end", "session.run_end"]
    assert list_idle_reasons(events) == ["error"]
    assert await chat.status() == "error"


async def test_the_waits_that_a_provider_asks_for_count_towards_the_limit(stage: Stage) -> None:  # M-11
    down = Fail("overloaded", times=0, retry_after=0.04)
    events = await play(stage.agent([down], retry_limit_s=0.1).chat().send("go"))
    assert [retry.delay_s for retry in of(events, e.TurnRetry)] == [0.04, 0.04]
    assert list_idle_reasons(events) == ["error"]


async def test_only_waits_for_a_provider_that_is_down_count_towards_the_limit(stage: Stage) -> None:  # M-11
    script = (Fail("rate_limit", retry_after=0.08), Fail("overloaded", retry_after=0.08), Say("Here."))
    agent = stage.agent([script], retry_limit_s=0.1)
    assert (await agent.chat().ask("go")).text == "Here."


async def test_a_chat_in_error_goes_on_with_the_next_message(stage: Stage) -> None:
    chat = stage.agent([(Fail("auth", times=1), Say("Here."))]).chat()
    with pytest.raises(RunFailed):
        await chat.ask("go")
    assert (await chat.ask("again")).text == "Here."


async def test_silence_is_a_fault(stage: Stage) -> None:
    events = await play(stage.agent([(Say("I"), Hang())], silence_s=0.02).chat().send("go"))
    assert {retry.error_class for retry in of(events, e.TurnRetry)} == {"silence"}
    assert of(events, e.SessionError)[0].error_class == "silence"
    assert list_idle_reasons(events) == ["error"]


async def test_a_fault_of_our_own_ends_the_run_and_leaves_the_chat_usable(stage: Stage) -> None:
    class Broken(ScriptedModel):
        broken = True

        @property
        def info(self):  # type: ignore[no-untyped-def]
            return super().info

        def stream(self, request):  # type: ignore[no-untyped-def]
            if self.broken:
                self.broken = False
                raise ZeroDivisionError("ours")
            return super().stream(request)

    chat = stage.agent(Broken([Say("Here.")])).chat()
    events = await play(chat.send("go"))
    assert of(events, e.SessionError)[0].error_class == "internal"
    assert list_idle_reasons(events) == ["error"]
    assert (await chat.ask("again")).text == "Here."


async def test_an_answer_cut_by_its_length_limit_is_kept_and_reported(stage: Stage) -> None:  # M-08
    events = await play(stage.agent([(Say("So far"), Finish("length"))]).chat().send("go"))
    assert of(events, e.AssistantMessage)[0].content == "So far"
    assert of(events, e.TurnEnd)[0].finish_reason == "length"
    assert list_idle_reasons(events) == ["incomplete"]
