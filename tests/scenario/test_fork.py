"""D-07: a chat can be copied at any point, and the copy is a chat like any other."""

from pathlib import Path

import pytest

from tests.faults.chance import some
from tests.scenario.scenes import SCENES, World, watch
from treadle.adapters.models.scripted import Say, ScriptedModel
from treadle.adapters.stores.memory import MemoryStore
from treadle.base.types import ChatId
from treadle.chat.divergence import find_first_divergence
from treadle.errors import InvalidInput, NotFound
from treadle.library.replay import replay
from treadle.library.transfer import fork_chat, read_chat
from treadle.protocol.events import OptionsChanged, RunEnd, SessionCreated
from treadle.testing.checker import check

pytestmark = pytest.mark.thorough(one_of=8)

FRESH = {"mode": "auto-edit", "completion": "tool", "run_budget": {}, "chat_budget": {}}
"""Options under which any chat can go on."""


@pytest.fixture
def memory(tmp_path: Path) -> World:
    return World(MemoryStore(), tmp_path)


@pytest.mark.parametrize("name", SCENES)
async def test_a_fork_at_any_point_is_idle_goes_on_and_can_be_replayed(name: str, memory: World) -> None:
    chat = await SCENES[name](memory)
    recorded = await read_chat(memory.store, chat)
    for seq in some(range(1, len(recorded) + 1), 4, name):
        copy = await fork_chat(memory.store, chat, seq, FRESH)
        listed = await memory.store.get(copy)
        assert listed.summary.status in ("idle", "error"), f"forked at {seq}"
        assert not listed.summary.runnable
        model = ScriptedModel([Say("Here I am.")], follow="calls")
        agent = memory.agent(model)
        await watch(agent.chat(copy).send("Are you there?"))
        model.assert_done()
        await agent.worker.close()
        assert await check(memory.store, copy) == [], f"forked at {seq}"
        assert find_first_divergence(recorded[:seq], (await read_chat(memory.store, copy))[:seq]) is None
        result = await replay(memory.store, copy)
        assert result.divergence is None, f"forked at {seq}: {result.divergence.text}"
    assert await read_chat(memory.store, chat) == recorded


async def test_a_fork_says_where_it_comes_from_and_what_is_different(world: World) -> None:
    chat = await SCENES["tools_that_read_and_write"](world)
    copy = await fork_chat(world.store, chat, 9, {"model": "scripted:other", "labels": ["copy"]})
    log = await read_chat(world.store, copy)
    created, options_change = log[0].data, log[-1].data
    assert isinstance(created, SessionCreated)
    assert created.forked_from == f"{chat}@9"
    assert options_change == OptionsChanged({"model": "scripted:other", "labels": ["copy"]}, by="fork")
    assert (await world.store.get(copy)).summary.model == "scripted:other"


async def test_a_run_that_is_cut_counts_no_time_since_then(world: World) -> None:
    chat = await SCENES["a_chat_that_is_cut_off"](world)
    recorded = await read_chat(world.store, chat)
    log = await read_chat(world.store, await fork_chat(world.store, chat, len(recorded)))
    assert isinstance(log[-2].data, RunEnd)
    assert log[-2].time_ms == recorded[-1].time_ms


async def test_a_fork_of_an_archived_chat_is_not_archived(world: World) -> None:
    agent = world.agent(ScriptedModel([Say("Hello.")]))
    chat = agent.chat(options=world.options())
    await watch(chat.send("Hello?"))
    await watch(agent.chat(chat.id, archived=True).resume())
    copy = await fork_chat(world.store, chat.id, await world.store.read_head(chat.id))
    assert not (await world.store.get(copy)).summary.archived
    await agent.worker.close()


@pytest.mark.parametrize("seq", [-1, 0, 99])
async def test_a_point_that_does_not_exist_is_refused(seq: int, world: World) -> None:
    chat = await SCENES["notices_and_odd_ends"](world)
    with pytest.raises(InvalidInput, match="events 1 to"):
        await fork_chat(world.store, chat, seq)
    assert len(await world.store.list()) == 1


async def test_options_that_do_not_fit_are_refused(world: World) -> None:
    chat = await SCENES["notices_and_odd_ends"](world)
    for changes in ({"mode": "reckless"}, {"colour": "red"}):
        with pytest.raises(InvalidInput):
            await fork_chat(world.store, chat, 3, changes)
    with pytest.raises(NotFound):
        await fork_chat(world.store, ChatId("c_nobody"), 1)
    assert len(await world.store.list()) == 1
