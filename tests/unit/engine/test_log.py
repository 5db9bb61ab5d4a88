"""What a process keeps of the chats that it has seen is bounded (fault 18)."""

import pytest

from treadle.engine import log as module
from treadle.engine.hub import Hub
from treadle.engine.log import Log
from treadle.protocol import events as e
from treadle.protocol.options import ChatOptions
from treadle.stores.memory import MemoryStore
from treadle.types import ChatId, SystemClock


async def test_nothing_is_kept_of_chats_that_were_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEPT_STATES", 3)
    monkeypatch.setattr(module, "SNAPSHOT_EVERY", 1)
    log = Log(MemoryStore(), Hub(), SystemClock())
    for number in range(10):
        state = await log.create(ChatId(f"c_{number}"), e.SessionCreated(ChatOptions()))
        log.memo(state.chat, "m")
        await log.snapshot(state)
    kept = {name: value for name, value in vars(log).items() if isinstance(value, dict)}
    assert len(kept) >= 4
    assert {name: len(value) for name, value in kept.items()} == dict.fromkeys(kept, 3)
