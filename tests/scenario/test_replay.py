"""D-07: a recorded chat, driven again offline, writes the same events."""

import pytest

from tests.scenario.conversations import SCENES, World
from treadle.chat.divergence import first_divergence
from treadle.replay import replay
from treadle.transfer import read_chat


@pytest.mark.parametrize("name", SCENES)
async def test_a_replay_writes_the_same_events(name: str, world: World) -> None:
    chat = await SCENES[name](world)
    recorded = await read_chat(world.store, chat)
    result = await replay(world.store, chat)
    assert result.divergence is None, result.divergence.text
    assert result.matches
    assert first_divergence(recorded, result.events) is None
    assert [e.epoch for e in result.events] == [e.epoch for e in recorded]
    assert await read_chat(world.store, chat) == recorded  # nothing was written to the chat itself
