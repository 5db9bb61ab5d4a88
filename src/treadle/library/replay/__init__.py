"""Replay: a recorded chat is driven again, offline, and must write the same events (D-07).

The engine is the real one. Its surroundings answer from the record: a model that says what was said, tools to which
happens what happened, a policy that decides as it decided, a clock that shows recorded times, and a store that lets in
what came from outside where it came in, and holds everything the engine writes against the record. Nothing is asked,
run or changed outside of memory."""

import asyncio
from typing import Any

import msgspec

from treadle.base.types import ChatId
from treadle.chat.divergence import Divergence
from treadle.engine.deps import Deps
from treadle.engine.loop import advance
from treadle.engine.tenure import Tenure
from treadle.library.replay import tools
from treadle.library.replay.models import DecidedTime, RecordedModels, WatchedLog, make_filler
from treadle.library.replay.recording import Recording, ReplayStore
from treadle.ports.store import Store
from treadle.protocol import wire
from treadle.protocol.events import Envelope

__all__ = ["Divergence", "ReplayResult", "replay"]

STALL_S = 3.0  # Nothing in a replay takes time: an engine that is silent for so long waits for what the record lacks.


class ReplayResult(msgspec.Struct, frozen=True):
    """`matches` if the replay's `events` are the same as recorded, else the first divergence."""

    matches: bool
    divergence: Divergence | None
    events: list[Envelope]


async def replay(store: Store, chat: ChatId) -> ReplayResult:
    """Drive a recorded chat again and compare. A chat that was cut off is replayed as far as it came."""
    recording = Recording([wire.decode(chat, record) for record in await store.read(chat)])
    stage = ReplayStore(chat, recording)
    await stage.open()
    log = WatchedLog(stage)
    deps = Deps(
        stage,
        RecordedModels(log),
        tools.RecordedTools(log),
        tools.RecordedPolicy(stage),
        log,
        DecidedTime(log),
        lambda files: tools.replay_spill(stage, files),
        lambda options: make_filler(log),
        restorer=tools.RecordedRestorer(stage),
        branch=lambda _root, _chat, _message: tools.replay_branch(stage),
        bind=lambda _options, _owner: tools.replay_root(stage),
        retry_limit_s=0.0,  # the record has the chosen waits, under any limit
    )
    divergence: Divergence | None = None
    while divergence is None and (due := recording.find_due(stage.now)) is not None:
        await stage.admit()
        if (divergence := await _drive_tenure(log, due.epoch, deps)) is None and stage.now < due.seq:
            divergence = stage.make_divergence(due, None)  # the engine rests where a worker went on
    if divergence is None:
        await stage.admit()
    return ReplayResult(divergence is None, divergence, await stage.read_events())


async def _drive_tenure(log: WatchedLog, epoch: int, deps: Deps) -> Divergence | None:
    """One worker's time with the chat: until it rests, dies as it died in the record, or leaves the record."""
    stage = log.stage
    log.tenure = Tenure(stage.begin(epoch), log, await log.load(stage.chat))
    for call, output in stage.recording.iterate_stopped_outputs(epoch):
        log.tenure.show_output(call, output)  # no recorded tool writes anything
    work = asyncio.create_task(advance(log.tenure, deps), name=f"replay {stage.chat}")
    ends: list[asyncio.Future[Any]] = [work, stage.left]
    try:
        previous_position = -1
        while not (work.done() or stage.left.done()) and previous_position < stage.now:
            previous_position = stage.now
            await asyncio.wait(ends, timeout=STALL_S, return_when=asyncio.FIRST_COMPLETED)
    finally:
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
    if stage.left.done():
        return stage.left.result()
    due = stage.recording.find_due(stage.now)
    stalled = work.cancelled() and due is not None
    return stage.make_divergence(due, None) if stalled else None
