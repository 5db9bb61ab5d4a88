"""Whole lives of chats with the real engine: a model that does anything, people who do anything, workers that die at
any await. Repeatable by the seed; the public checker must find no fault, and each effect happens at most once."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import Any

import pytest

from tests.faults.chance import SEED
from tests.scenario.kit import Stage, of
from treadle import Budget, Chat, DynamicTool, Envelope, Invocation, tool
from treadle.errors import InvalidInput, ModelError, Refused
from treadle.ports.model import ModelInfo, ModelRequest
from treadle.protocol import commands as c
from treadle.protocol import events as e
from treadle.protocol.content import Usage, UserEntry
from treadle.protocol.deltas import CallDelta, Delta, FinishDelta, TextDelta, UsageDelta
from treadle.testing.checker import check

TOOLS = ("look", "change", "change", "slow", "client", "ask_user", "danger", "task_complete", "nonsense", "fail")


class Wild:
    """A model that says, calls and fails at random."""

    info = ModelInfo("wild", "one", window=60_000, max_output=1_000)

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.calm = False

    async def stream(self, request: ModelRequest) -> AsyncIterator[Sequence[Delta]]:
        chance = self.chance
        yield [TextDelta("well, ")]
        if self.calm or request.purpose != "turn":
            yield [TextDelta("done"), FinishDelta()]
            return
        await asyncio.sleep(0)
        if chance.random() < 0.15:
            kinds = ("network", "rate_limit", "context_limit", "auth", "cut_stream")
            raise ModelError(chance.choice(kinds), "at random", retry_after=chance.choice([None, 0.0]))
        if chance.random() < 0.05:
            await asyncio.Event().wait()
        if request.tools and chance.random() < 0.75:
            for position in range(chance.choice([1, 1, 2, 3])):
                name = chance.choice(TOOLS)
                yield [CallDelta("id", position, name, _arguments(name, chance))]
        size = sum(len(entry.text) for entry in request.entries if isinstance(entry, UserEntry))
        yield [UsageDelta(Usage(100 + size, 10)), FinishDelta()]

    async def close(self) -> None:
        return None


def _arguments(name: str, chance: random.Random) -> str:
    texts = {"ask_user": '{"question": "Which?"}', "task_complete": '{"summary": "all"}', "client": "{}"}
    return chance.choice(["{", "[]"]) if chance.random() < 0.05 else texts.get(name, f'{{"n": {chance.randrange(9)}}}')


class Life:
    def __init__(self, stage: Stage, seed: int) -> None:
        self.chance = random.Random(seed)
        self.stage = stage
        self.effects: Counter[str] = Counter()
        self.model = Wild(self.chance)
        self.id = ""
        self.chat = self.born()

    def options(self) -> dict[str, Any]:
        chance = self.chance
        return {
            "mode": chance.choice(["auto-edit", "ask", "autopilot", "confirm"]),
            "interactive": chance.random() < 0.6,
            "max_turns": chance.choice([3, 8]),
            "run_budget": Budget(tool_calls=chance.choice([0, 0, 12]), turns=chance.choice([0, 0, 6])),
            "action_deadline_s": chance.choice([0.0, 300.0]),
            "dynamic_tools": (DynamicTool("client"),),
        }

    def born(self) -> Chat:
        """The chat in a new process: nothing but the store is known."""

        @tool(read_only=True)
        async def look(n: int) -> str:
            """Look."""
            await asyncio.sleep(0)
            return f"seen {n}"

        @tool
        async def change(n: int, at: Invocation) -> str:
            """Change something, once."""
            self.effects[at.call] += 1
            await asyncio.sleep(0)
            return f"changed {n}"

        @tool
        async def slow(n: int, at: Invocation) -> str:
            """Change something, after a while."""
            for _ in range(n):
                await asyncio.sleep(0)
            self.effects[at.call] += 1
            return "slow"

        @tool(needs_approval=True)
        async def danger(n: int, at: Invocation) -> str:
            """Needs a person."""
            self.effects[at.call] += 1
            return "dangerous"

        @tool
        async def fail(n: int) -> str:
            """Fail."""
            raise RuntimeError("on purpose")

        agent = self.stage.agent(self.model, look, change, slow, danger, fail, builtin=True, silence_s=0.05)
        chat = agent.chat(self.id) if self.id else agent.chat(**self.options())
        self.id = chat.id
        return chat

    async def move(self) -> None:
        """Something happens from outside, or time passes for some turns of the event loop."""
        happening = self.chance.choice(
            [
                self.say,
                self.say,
                self.answer,
                self.answer,
                self.answer,
                self.stop,
                self.die,
                self.send_other_command,
                self.wait,
                self.wait,
            ]
        )
        with suppress(Refused, InvalidInput):  # nothing was changed; the checker sees whether that is so
            await happening()

    async def say(self) -> None:
        await self.chat.send("say", delivery=self.chance.choice(["queued", "steering"]))

    async def stop(self) -> None:
        await self.chat.interrupt()

    async def die(self) -> None:
        await self.stage.kill()
        self.chat = self.born()
        await self.chat.command(c.Rename("reborn"))

    async def wait(self) -> None:
        for _ in range(self.chance.randrange(30)):
            await asyncio.sleep(0)

    async def send_other_command(self) -> None:
        user_seqs = [entry.seq for entry in (await self.chat.state()).history if isinstance(entry, UserEntry)]
        queued = [item.id for item in (await self.chat.state()).queue]
        choices: list[c.Command] = [c.ExtendTurns(2), c.Compact(), c.ChangeOptions({"max_turns": 5})]
        choices += [c.Edit(self.chance.choice(user_seqs), "better")] if user_seqs else []
        choices += [c.Promote(queued[0]), c.DeleteQueued(queued[-1])] if queued else []
        await self.chat.command(self.chance.choice(choices))

    async def answer(self) -> None:
        actions = await self.chat.actions()
        if not actions:
            return await self.wait()
        action = self.chance.choice(actions)
        match action.kind:
            case "permission":
                decide = self.chance.choice([self.chat.approve, self.chat.deny])
                await decide(action)
            case "external_tool":
                await self.chat.submit({each.tool_call_id: 1 for each in actions if each.kind == "external_tool"})
            case "user_input":
                await self.chat.answer(action, self.chance.choice(action.options or ("that",)))

    async def end(self) -> list[Envelope]:
        """Let the chat come to rest, after any history, with a model that has calmed down."""
        self.model.calm = True
        for _ in range(40):
            status = await self.chat.status()
            if status in ("idle", "error"):
                break
            if status == "requires_action":
                await self.chat.interrupt()
            else:
                async for _ in self.chat.resume():
                    pass
        return await self.chat.events()


async def live(stage: Stage, seed: int) -> None:
    stage.replayed = False
    life = Life(stage, seed)
    await life.chat.send("begin")
    for _ in range(40):
        await life.move()
    log = await life.end()
    assert await check(stage.store, life.chat.id) == []
    assert [call for call, times in life.effects.items() if times > 1] == [], "an effect happened twice"
    runs = sum(1 for end in of(log, e.RunEnd))
    assert runs >= 1
    assert (await life.chat.state()).last_end != ""


@pytest.mark.thorough(one_of=8)
@pytest.mark.parametrize("seed", range(15))
async def test_any_life_keeps_the_laws(stage: Stage, seed: int) -> None:
    await live(stage, seed)


async def test_another_life_by_seed(stage: Stage) -> None:
    print(f"TEST_SEED={SEED}")
    await live(stage, 10_000 + SEED)
