"""Messages while the chat is busy, and changing one's mind (L-08, L-09)."""

import pytest

from tests.scenario.kit import Gate, Recording, Stage, list_idle_reasons, of, play, types
from treadle import Chat, tool
from treadle.adapters.models.scripted import Call, Hang, Say, ScriptedModel, Think
from treadle.errors import Refused
from treadle.protocol import commands as c
from treadle.protocol import events as e
from treadle.protocol.content import Entry, UserEntry
from treadle.protocol.tools import DynamicTool


def list_user_texts(entries: list[Entry]) -> list[str]:
    return [entry.text for entry in entries if isinstance(entry, UserEntry)]


class Busy:
    """A chat in the middle of a tool call, which goes on when it is let go."""

    def __init__(self, stage: Stage, *answers: str) -> None:
        self.gate = Gate()
        self.model = Recording(ScriptedModel([Call("wait"), *map(Say, answers)]))
        self.chat = stage.agent(self.model, tool(name="wait")(self.gate.pass_through)).chat()

    async def begin(self) -> Chat:
        await self.chat.send("first")
        await self.gate.entered.wait()
        return self.chat

    async def queue(self) -> list[tuple[str, str]]:
        return [(item.content, item.delivery) for item in (await self.chat.state()).queue]


async def settle(chat: Chat) -> list[str]:
    """Let everything run that is queued; the reasons of all ends."""
    while (await chat.status()) not in ("idle", "error"):
        await play(chat.resume())
    return [end.reason for end in of(await chat.events(), e.RunEnd)]


async def test_a_message_to_a_busy_chat_waits_for_its_turn(stage: Stage) -> None:
    busy = Busy(stage, "one", "two", "three")
    chat = await busy.begin()
    await chat.send("second")
    await chat.send("third")
    assert await busy.queue() == [("second", "queued"), ("third", "queued")]
    busy.gate.open.set()
    assert await settle(chat) == ["done", "done", "done"]
    assert list_user_texts(busy.model.turns()[-1]) == ["first", "second", "third"]
    assert list_user_texts(busy.model.turns()[1]) == ["first"]


async def test_whoever_sends_a_queued_message_sees_its_own_run(stage: Stage) -> None:
    busy = Busy(stage, "one", "two")
    chat = await busy.begin()
    following = chat.send("second")
    busy.gate.open.set()
    events = await play(following)
    assert list_idle_reasons(events) == ["done", "done"]
    assert of(events, e.AssistantMessage)[-1].content == "two"


async def test_a_steering_message_goes_in_before_the_next_call(stage: Stage) -> None:
    busy = Busy(stage, "one")
    chat = await busy.begin()
    await chat.send("not that way", delivery="steering")
    busy.gate.open.set()
    assert await settle(chat) == ["done"]
    assert list_user_texts(busy.model.turns()[1]) == ["first", "not that way"]
    steered = of(await chat.events(), e.UserMessage)[1]
    assert steered.delivery == "steering"


async def test_unused_steering_goes_to_the_front_of_the_queue(stage: Stage) -> None:
    model = Recording(ScriptedModel([(Say("so"), Hang()), Say("a"), Say("b")]))
    chat = stage.agent(model).chat()
    await chat.send("first")
    await play_until_text(chat)
    await chat.send("later")
    await chat.send("sooner", delivery="steering")
    await chat.interrupt()
    await play(chat.resume())
    assert [item.content for item in (await chat.state()).queue] == ["later", "sooner"]
    await chat.command(c.Promote((await chat.state()).queue[1].id))
    assert (await settle(chat))[-1] == "done"
    assert list_user_texts(model.turns()[-1]) == ["first", "sooner", "later"]


async def test_who_comes_in_the_middle_of_an_answer_gets_the_text_so_far(stage: Stage) -> None:  # D-04
    model = ScriptedModel([(Think("hm"), Say("so far"), Hang())])
    chat = stage.agent(model).chat()
    await chat.send("go")
    for _late in range(3):  # the model says nothing more: what comes can only be what was said before
        assert await play_until_text(chat) == "so far"
    await chat.interrupt()
    assert (await settle(chat))[-1] == "interrupted"


async def play_until_text(chat: Chat) -> str:
    async for envelope in chat.resume():
        if isinstance(envelope.data, e.MessageDelta):
            return envelope.data.text
    return ""


async def test_the_queue_can_be_edited_deleted_and_promoted(stage: Stage) -> None:
    busy = Busy(stage, "one", "two", "three")
    chat = await busy.begin()
    for text in ("a", "b", "c"):
        await chat.send(text)
    first, second, third = (await chat.state()).queue
    await chat.command(c.EditQueued(first.id, "A"))
    await chat.command(c.DeleteQueued(second.id))
    await chat.command(c.Promote(third.id))
    assert await busy.queue() == [("c", "steering"), ("A", "queued")]
    busy.gate.open.set()
    assert await settle(chat) == ["done", "done"]
    assert list_user_texts(busy.model.turns()[-1]) == ["first", "c", "A"]


async def test_the_twenty_first_is_refused_and_changes_nothing(stage: Stage) -> None:
    busy = Busy(stage)
    chat = await busy.begin()
    for number in range(20):
        await chat.send(str(number))
    old_state = await chat.state()
    with pytest.raises(Refused) as refused:
        await chat.send("one too many")
    assert refused.value.reason == "queue_full"
    assert await chat.state() == old_state


async def test_after_a_stop_the_queue_waits_for_a_person(stage: Stage) -> None:
    busy = Busy(stage, "one", "two")
    chat = await busy.begin()
    await chat.send("second")
    await chat.interrupt()
    assert await settle(chat) == ["interrupted"]
    assert await busy.queue() == [("second", "queued")]
    await play(chat.promote((await chat.state()).queue[0].id))
    assert list_user_texts(busy.model.turns()[-1]) == ["first", "second"]


async def test_the_queue_survives_a_restart(stage: Stage) -> None:
    busy = Busy(stage, "one")
    chat = await busy.begin()
    await chat.send("second")
    await stage.kill()
    model = Recording(ScriptedModel([Call("wait"), Say("one"), Say("two")]))
    busy.gate.open.set()
    again = stage.agent(model, tool(name="wait")(busy.gate.pass_through)).chat(chat.id)
    assert await settle(again) == ["done", "done"]
    assert list_user_texts(model.turns()[-1]) == ["first", "second"]


# -- editing (L-09) ---------------------------------------------------------------------------------------------------


async def test_an_edit_cuts_the_conversation_and_runs_again(stage: Stage) -> None:
    model = Recording(ScriptedModel([Say("1"), Say("2"), Say("uno")], follow="calls"))
    chat = stage.agent(model).chat()
    await chat.ask("one")
    await chat.ask("two")
    first = next(envelope.seq for envelope in await chat.events() if envelope.type == "user.message")
    events = await play(chat.edit(first, "eins"))
    assert list_idle_reasons(events) == ["done"]
    assert list_user_texts(model.turns()[-1]) == ["eins"]
    assert list_user_texts((await chat.state()).history.slice(0)) == ["eins"]
    assert "two" in [event.content for event in of(await chat.events(), e.UserMessage)]  # the log keeps everything


async def test_an_edit_while_it_works_is_refused(stage: Stage) -> None:
    chat = await Busy(stage).begin()
    with pytest.raises(Refused) as refused:
        await chat.edit(2, "other")
    assert refused.value.reason == "busy"


async def test_an_edit_while_it_waits_closes_what_is_open(stage: Stage) -> None:
    model = ScriptedModel([Call("weather"), Say("Fine.")], follow="calls")
    chat = stage.agent(model).chat(dynamic_tools=(DynamicTool("weather"),))
    await play(chat.send("How is it?"))
    events = await play(chat.edit(2, "Never mind."))
    assert types(events)[:5] == [
        "external_tool.completed",
        "tool.execution_complete",
        "assistant.turn_end",
        "session.run_end",
        "user.message",
    ]
    assert of(events, e.ExecutionComplete)[0].synthetic == "superseded"
    assert (await chat.state()).last_end == "done"
