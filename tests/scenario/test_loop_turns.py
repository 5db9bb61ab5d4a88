"""A turn is a bracket: it starts, the model speaks, its calls run, and it ends (L-02, V-01). The commit of
the last result ends it, so the end costs no commit of its own."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.scenario.kit import Stage, change, look, of, play, types
from treadle import Agent, Chat
from treadle.adapters.models.scripted import Call, Say, ScriptedModel
from treadle.adapters.stores.memory import MemoryStore
from treadle.base.types import ChatId, make_chat_id
from treadle.chat.fold import fold_all
from treadle.chat.state import ChatState, build_summary
from treadle.library.replay import replay
from treadle.library.transfer import export_chat, fork_chat, import_chat, read_chat
from treadle.ports.store import Commit, Store
from treadle.protocol import events as e
from treadle.protocol import wire
from treadle.protocol.tools import DynamicTool
from treadle.protocol.wire import Record
from treadle.testing.checker import check
from treadle.testing.clock import ManualClock

WEATHER = DynamicTool("weather", "Tells the weather.", {"type": "object", "properties": {}})
OLD = Path(__file__).parents[1] / "golden" / "logs" / "v1"
ENDED = ["tool.execution_complete", "assistant.turn_end"]


def records(name: str) -> list[Record]:
    """A log as an earlier version stored it."""
    lines = (OLD / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    objects = [json.loads(line) for line in lines]
    return [
        Record(
            one["seq"],
            wire.parse_time(one["time"]),
            one["type"],
            one.get("version", 1),
            one.get("epoch", 0),
            json.dumps(one["data"]).encode(),
        )
        for one in objects
    ]


async def store_chat(store: Store, stored: Sequence[Record]) -> ChatId:
    """A chat with this log."""
    chat = make_chat_id()
    state = fold_all(ChatState(chat=chat), [wire.decode(chat, record) for record in stored])
    await store.create(build_summary(state), stored)
    return chat


class Counting(MemoryStore):
    """A store that keeps what each commit had, and whether it was synced."""

    def __init__(self) -> None:
        super().__init__()
        self.commits: list[tuple[list[str], bool]] = []

    async def append(self, commit: Commit) -> None:
        await super().append(commit)
        self.commits.append(([record.type for record in commit.records], commit.durable))


async def test_the_end_of_a_turn_costs_no_commit_and_no_sync() -> None:
    store = Counting()
    agent = Agent(store, model=ScriptedModel([Call("look"), Call("change"), Say("Done.")]), tools=(look, change))
    chat = agent.chat(summarize=False)
    await chat.state()
    store.commits.clear()
    await play(chat.send("go"))
    await agent.close()
    assert store.commits == [
        (["user.message", "assistant.turn_start"], True),
        (["assistant.message"], False),
        (["tool.execution_start"], False),
        (["tool.execution_complete", "assistant.turn_end", "assistant.turn_start"], False),  # a call that only read
        (["assistant.message"], False),
        (["tool.execution_start"], True),
        (["tool.execution_complete", "assistant.turn_end", "assistant.turn_start"], True),
        (["assistant.message", "assistant.turn_end", "session.run_end"], True),
    ]


async def test_a_turn_with_several_calls_ends_after_the_last_of_them(stage: Stage) -> None:
    steps = [(Say("I look."), Call("look", n=1), Call("change"), Call("look", n=2)), Say("Done.")]
    events = await play(stage.agent(steps, look, change).chat().send("go"))
    first = types(events)[: types(events).index("assistant.turn_end") + 1]
    assert first.count("tool.execution_complete") == 3
    assert first[:3] == ["user.message", "assistant.turn_start", "assistant.message"]
    assert [end.turn for end in of(events, e.TurnEnd)] == [1, 2]
    for message, end in zip(of(events, e.AssistantMessage), of(events, e.TurnEnd), strict=True):
        assert (message.usage, message.finish_reason) == (end.usage, end.finish_reason)


async def waiting(stage: Stage, *steps: object, **options: Any) -> tuple[Chat, int]:
    """A chat that waits for a person or a client in its first turn, and its head."""
    agent = stage.agent([*steps, Say("Done."), Say("Done.")], look, change)  # type: ignore[list-item]
    chat = agent.chat(dynamic_tools=(WEATHER,), interactive=True, **options)
    events = await play(chat.send("go"))
    assert not of(events, e.TurnEnd), "a turn that waits has not ended"
    assert await chat.status() == "requires_action"
    return chat, (await chat.state()).head


async def list_new_types(chat: Chat, head: int) -> list[str]:
    await play(chat.resume())
    log = await chat.events()
    assert len(of(log, e.TurnStart)) == len(of(log, e.TurnEnd))
    return types(log[head:])


async def test_the_last_result_of_a_client_ends_the_turn(stage: Stage) -> None:
    chat, head = await waiting(stage, (Call("weather"), Call("look")))
    await play(chat.submit({"1.0": "rain"}))
    assert (await list_new_types(chat, head))[:4] == ["external_tool.completed", *ENDED, "assistant.turn_start"]


async def test_an_answer_ends_the_turn(stage: Stage) -> None:  # T-07
    chat, head = await waiting(stage, Call("ask_user", question="Which?"))
    await play(chat.answer("1.0", "this"))
    assert (await list_new_types(chat, head))[:3] == ["user_input.completed", *ENDED]


async def test_a_refusal_of_the_last_call_ends_the_turn_and_that_of_another_does_not(stage: Stage) -> None:  # S-07
    chat, head = await waiting(stage, (Call("change", n=1), Call("change", n=2)), mode="confirm")
    (approval,) = await chat.actions()
    await play(chat.deny(approval))
    log = types((await chat.events())[head:])
    assert log == ["permission.completed", "tool.execution_complete", "permission.requested"]
    (approval,) = await chat.actions()
    await play(chat.deny(approval))
    assert (await list_new_types(chat, head + 3))[:4] == ["permission.completed", *ENDED, "assistant.turn_start"]


async def test_an_interrupt_ends_the_turn_before_the_run(stage: Stage) -> None:  # L-07
    chat, head = await waiting(stage, Call("weather"))
    await chat.interrupt()
    assert await list_new_types(chat, head) == [
        "session.interrupted",
        "external_tool.completed",
        *ENDED,
        "session.run_end",
    ]


async def test_a_steering_message_stands_behind_the_end_of_the_turn(stage: Stage) -> None:
    chat, head = await waiting(stage, Call("weather"))
    await play(chat.send("Never mind.", delivery="steering"))
    assert (await list_new_types(chat, head))[:4] == ["external_tool.completed", *ENDED, "user.message"]


async def test_an_edit_ends_the_turn_and_the_run(stage: Stage) -> None:  # L-09
    chat, head = await waiting(stage, Call("weather"))
    await play(chat.edit(2, "better"))
    run_types = ["session.run_end", "user.message", "assistant.turn_start"]
    assert types((await chat.events())[head:])[:6] == ["external_tool.completed", *ENDED, *run_types]


async def test_a_deadline_ends_the_turn(stage: Stage) -> None:
    clock = ManualClock()
    agent = stage.agent([(Call("weather"), Call("weather")), Say("Done.")], clock=clock)
    chat = agent.chat(dynamic_tools=(WEATHER,), action_deadline_s=60.0)
    await play(chat.send("go"))
    head = (await chat.state()).head
    clock.advance(61)
    call_end = ["external_tool.completed", "tool.execution_complete"]
    assert (await list_new_types(chat, head))[:6] == [
        *call_end,
        *call_end,
        "assistant.turn_end",
        "assistant.turn_start",
    ]


async def test_a_turn_left_waiting_by_an_earlier_version_is_not_ended_twice() -> None:  # V-06
    """Its end stands before its calls; the answer comes today."""
    stored = records("client_tools")
    cut_index = next(place for place, one in enumerate(stored) if one.type == "external_tool.completed")
    store = MemoryStore()
    chat = await store_chat(store, stored[:cut_index])
    agent = Agent(store, model=ScriptedModel([Say("Done.")], follow="calls"))
    again = agent.chat(chat)
    keys = [action.tool_call_id for action in await again.actions()]
    await play(again.submit({key: "rain" for key in keys}))
    await agent.worker.close()
    log = await again.events()
    assert [end.turn for end in of(log, e.TurnEnd)] == [start.turn for start in of(log, e.TurnStart)]
    assert (await replay(store, chat)).matches


@pytest.mark.thorough(one_of=8)
@pytest.mark.parametrize("name", sorted(path.stem for path in OLD.glob("*.jsonl")))
async def test_an_old_log_is_replayed_copied_and_carried_elsewhere(name: str) -> None:  # D-07
    store = MemoryStore()
    chat = await store_chat(store, records(name))
    played = await replay(store, chat)
    assert played.divergence is None, played.divergence.text
    again = await import_chat(store, [line async for line in export_chat(store, chat)], new_id=True)
    original, right = await read_chat(store, chat), await read_chat(store, again)
    assert [one.data for one in original[1:]] == [one.data for one in right[1 : len(original)]]
    for seq in range(1, len(original) + 1):
        copy = await fork_chat(store, chat, seq)
        assert await check(store, copy) == [], f"forked at {seq}"
        copied = await replay(store, copy)
        assert copied.divergence is None, f"forked at {seq}: {copied.divergence.text}"
