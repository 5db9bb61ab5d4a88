"""An interrupt ends every step of a run: hooks, the policy, a tool's look before it runs, tools that come and go, the
compaction of an idle chat (L-07)."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.scenario.kit import Stage, of, play
from treadle.adapters.models.scripted import Call, Say, ScriptedModel
from treadle.adapters.policy.standard import StandardPolicy
from treadle.base.types import ChatId
from treadle.errors import Refused
from treadle.ports.hooks import Chain, Instead
from treadle.ports.model import ModelRequest
from treadle.ports.policy import Verdict
from treadle.ports.toolset import Invocation, Outcome, PlainTool
from treadle.protocol import commands as c
from treadle.protocol import events as e
from treadle.protocol.deltas import Delta
from treadle.protocol.options import ChatOptions
from treadle.protocol.tools import ToolSpec

STOP_S = 30.0


class Hang:
    def __init__(self) -> None:
        self.entered = asyncio.Event()
        self.left = asyncio.Event()

    async def here(self) -> None:
        self.entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.left.set()


class HangingHook(Chain):
    def __init__(self, hang: Hang) -> None:
        super().__init__()
        self._hang = hang

    async def before_call(self, spec: ToolSpec, invocation: Invocation) -> str | Instead:
        await self._hang.here()
        return ""


class HangingPolicy(StandardPolicy):
    def __init__(self, hang: Hang) -> None:
        super().__init__()
        self._hang = hang

    async def review(self, spec: ToolSpec, invocation: Invocation, options: ChatOptions) -> Verdict:
        await self._hang.here()
        return await super().review(spec, invocation, options)


class HangingTool(PlainTool):
    spec = ToolSpec("change", "Change something.")

    def __init__(self, hang: Hang | None = None) -> None:
        self._hang = hang
        self.ran = 0

    async def prepare(self, invocation: Invocation) -> dict[str, Any] | None:
        if self._hang is not None:
            await self._hang.here()
        return None

    async def run(self, invocation: Invocation) -> Outcome:
        self.ran += 1
        return Outcome("changed")

    async def settle(self, invocation: Invocation) -> Any:
        return "unknown"


@pytest.mark.parametrize("hang_point", ["hook", "policy", "prepare", "ready"])
async def test_an_interrupt_ends_what_stands_before_a_call(stage: Stage, hang_point: str) -> None:
    stage.replayed = False  # it is interrupted in the middle
    hang = Hang()
    tool = HangingTool(hang if hang_point == "prepare" else None)
    settings: dict[str, Any] = {}
    if hang_point == "hook":
        settings["hooks"] = HangingHook(hang)
    if hang_point == "policy":
        settings["policy"] = HangingPolicy(hang)
    agent = stage.agent([Call("change"), Say("Done.")], tool, **settings)
    if hang_point == "ready":

        async def ready(chat: ChatId, options: ChatOptions) -> Sequence[str]:
            await hang.here()
            return ()

        agent.deps.tools.prepare_tools = ready  # type: ignore[method-assign]
    chat = await agent.chat(mode="autopilot")
    following = asyncio.ensure_future(play(chat.send("go")))
    async with asyncio.timeout(STOP_S):
        await hang.entered.wait()
        await chat.interrupt()
        events = await following
        await hang.left.wait()
    assert of(events, e.RunEnd)[0].reason == "interrupted"
    assert tool.ran == 0


async def test_an_interrupt_ends_what_stands_before_a_check(stage: Stage, tmp_path: Path) -> None:  # L-07, L-16
    stage.replayed = False  # it is interrupted in the middle
    hang = Hang()
    agent = stage.agent([Say("Done.")], builtin=True, hooks=HangingHook(hang))
    chat = await agent.chat(root=str(tmp_path), checks=["true"], verify=False)
    following = asyncio.ensure_future(play(chat.send("go")))
    async with asyncio.timeout(STOP_S):
        await hang.entered.wait()
        await chat.interrupt()
        events = await following
        await hang.left.wait()
    assert of(events, e.RunEnd)[0].reason == "interrupted"
    assert of(events, e.CheckStarted) == []


class HangingModel:
    """Answers turns, and never a compaction."""

    def __init__(self, hang: Hang) -> None:
        self._hang = hang
        self._model = ScriptedModel([Say("One. " * 100), Say("Two. " * 100), Say("Three.")])
        self.info = self._model.info

    async def stream(self, request: ModelRequest) -> AsyncIterator[Sequence[Delta]]:
        if request.purpose == "compaction":
            await self._hang.here()
        async for deltas in self._model.stream(request):
            yield deltas

    async def close(self) -> None:
        """Nothing is open."""


async def test_an_interrupt_ends_the_compaction_of_an_idle_chat(stage: Stage) -> None:
    hang = Hang()
    chat = stage.agent(HangingModel(hang)).chat()
    await chat.ask("one")
    await chat.ask("two")
    following = asyncio.ensure_future(play(chat.compact()))
    async with asyncio.timeout(STOP_S):
        await hang.entered.wait()
        await chat.interrupt()
        events = await following
        await hang.left.wait()
    (compaction,) = of(await chat.events(), e.CompactionComplete)
    assert (compaction.success, compaction.error) == (False, "interrupted")
    assert [event.by for event in of(events, e.Interrupted)] == ["person"]
    assert await chat.status() == "idle"
    with pytest.raises(Refused, match="not running"):
        await chat.command(c.Interrupt())
    assert (await chat.ask("three")).text == "Three."
