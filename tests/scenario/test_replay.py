"""D-07: a recorded chat, driven again offline, writes the same events; every scene does (test_transfer.py)."""

from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.scenario.scenes import SCENES, World
from treadle.adapters.stores.memory import MemoryStore
from treadle.base.types import ChatId
from treadle.errors import NotFound
from treadle.library.replay import replay
from treadle.library.transfer import import_chat, read_chat
from treadle.protocol import wire
from treadle.protocol.events import (
    RECORDED,
    CompactionComplete,
    Event,
    ExecutionComplete,
    ExecutionStart,
    ExternalToolRequested,
    GuardNotice,
    LimitReached,
    LimitWarning,
    RecordLost,
    RunEnd,
    SessionError,
    TurnEnd,
    TurnRetry,
    TurnStart,
    UserMessage,
)

pytestmark = pytest.mark.thorough(one_of=8)


@pytest.mark.thorough(one_of=8)
async def test_the_scenes_have_every_event_there_is(tmp_path: Path) -> None:
    """An event that no scene has is not known to be replayed."""
    world = World(MemoryStore(), tmp_path)
    event_types: set[str] = set()
    for make in SCENES.values():
        event_types |= {envelope.type for envelope in await read_chat(world.store, await make(world))}
    assert set(RECORDED) - event_types == {"session.record_lost"}


TAMPERED: list[tuple[str, type[Event], Callable[[Event], Event]]] = [
    ("tools_that_read_and_write", TurnStart, lambda event: replace(event, turn=7)),
    ("tools_that_read_and_write", ExecutionStart, lambda event: replace(event, args_summary="elsewhere")),
    ("tools_that_fail", TurnEnd, lambda event: replace(event, turn=4)),
    ("budgets", LimitReached, lambda event: replace(event, used=1.0)),
    ("the_turn_cap_answers", LimitWarning, lambda event: replace(event, limit=99)),
    ("the_guard_nudges_and_stops", GuardNotice, lambda event: replace(event, repeats=4)),
    ("compactions", CompactionComplete, lambda event: replace(event, upto=1)),
    ("autopilot", UserMessage, lambda event: replace(event, source="guard")),
    ("client_tools", ExternalToolRequested, lambda event: replace(event, deadline_s=1.0)),
    ("an_interrupt_in_mid_stream", RunEnd, lambda event: replace(event, reason="done")),
    ("retries", TurnRetry, lambda event: replace(event, attempt=9)),
    ("a_crash_at_tool.before:change", ExecutionComplete, lambda event: replace(event, synthetic="made up")),
]


@pytest.mark.parametrize(
    ("name", "kind", "change"), TAMPERED, ids=[f"{name}-{kind.TYPE}" for name, kind, _ in TAMPERED]
)
async def test_a_tampered_log_differs_where_it_was_tampered_with(
    name: str, kind: type[Event], change: Callable[[Event], Event], world: World
) -> None:
    log = await read_chat(world.store, await SCENES[name](world))
    index = next(i for i, envelope in enumerate(log) if envelope.epoch and isinstance(envelope.data, kind))
    tampered = [*log[:index], replace(log[index], data=change(log[index].data)), *log[index + 1 :]]
    result = await replay(world.store, await import_chat(world.store, map(wire.to_json, tampered), new_id=True))
    assert not result.matches
    assert result.divergence is not None
    assert result.divergence.seq == index + 1, result.divergence.text
    assert f"at {index + 1}:" in result.divergence.text


async def test_an_event_that_should_not_be_there_is_found(world: World) -> None:
    log = await read_chat(world.store, await SCENES["plain_answers"](world))
    end = next(envelope for envelope in log if isinstance(envelope.data, RunEnd))
    more = replace(end, data=SessionError("made_up", "This never happened."))
    longer = [*log[: end.seq - 1], more, *log[end.seq - 1 :]]
    lines = [wire.to_json(replace(envelope, seq=seq)) for seq, envelope in enumerate(longer, 1)]
    result = await replay(world.store, await import_chat(world.store, lines, new_id=True))
    assert result.divergence is not None
    assert result.divergence.seq == end.seq
    assert "session.error in recorded, session.run_end in replayed" in result.divergence.text


async def test_an_end_that_is_missing_is_found(world: World) -> None:
    """A worker does not stop by itself in front of the end of a run; but one that died there is believed."""
    log = await read_chat(world.store, await SCENES["plain_answers"](world))
    end = next(envelope for envelope in log if isinstance(envelope.data, RunEnd))
    shorter = [*log[: end.seq - 1], *log[end.seq :]]
    lines = [wire.to_json(replace(envelope, seq=seq)) for seq, envelope in enumerate(shorter, 1)]
    result = await replay(world.store, await import_chat(world.store, lines, new_id=True))
    assert result.divergence is not None
    assert result.divergence.seq == end.seq
    prefix = [wire.to_json(envelope) for envelope in log[: end.seq - 3]]
    assert (await replay(world.store, await import_chat(world.store, prefix, new_id=True))).matches


async def test_a_lost_record_may_have_been_anything(world: World) -> None:  # D-06
    log = await read_chat(world.store, await SCENES["plain_answers"](world))
    ends = [envelope for envelope in log if isinstance(envelope.data, TurnEnd)]
    damaged_log = [replace(e, data=RecordLost(e.type, "damaged")) if e is ends[-1] else e for e in log]
    result = await replay(world.store, await import_chat(world.store, map(wire.to_json, damaged_log), new_id=True))
    assert result.divergence is None, result.divergence.text


async def test_a_chat_that_does_not_exist_cannot_be_replayed(world: World) -> None:
    with pytest.raises(NotFound):
        await replay(world.store, ChatId("c_nobody"))


async def test_an_empty_chat_is_the_same(world: World) -> None:
    agent = world.agent()
    chat = await agent.chat(options=world.options())
    assert (await replay(world.store, chat.id)).matches
    await agent.worker.close()
