"""Chats of every kind, made by the real engine with a scripted model: material for replay, fork and transfer.

Each function makes one chat in a store and returns its id. What happens in them is listed in SCENES.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from treadle import Agent
from treadle.faultpoint import install
from treadle.handle import Chat, Following
from treadle.models.scripted import Call, Delay, Fail, Finish, Hang, RawCall, Say, ScriptedModel, Think, Turn, Used
from treadle.ports.model import Model, ModelInfo, ModelRequest
from treadle.ports.store import Store
from treadle.protocol import commands as c
from treadle.protocol.content import AssistantEntry, Thinking, Usage
from treadle.protocol.deltas import Delta, FinishDelta, NoticeDelta, ThinkingBlock
from treadle.protocol.events import Envelope, ExecutionStart, MessageDelta, TurnRetry, UserMessage
from treadle.protocol.options import Budget, ChatOptions
from treadle.protocol.tools import DynamicTool
from treadle.testing.clock import ManualClock
from treadle.tools.function import tool
from treadle.types import ChatId

PRICED = ModelInfo("scripted", "priced", window=200_000, usd_per_million_input=3.0, usd_per_million_output=15.0)


@tool(read_only=True)
def look(what: str) -> str:
    """Look at something."""
    return f"{what} looks fine\nand more"


@tool(read_only=True)
async def peek(what: str, wait: float = 0.0) -> str:
    """Look at something that takes its time."""
    await asyncio.sleep(wait)
    return f"{what} was seen"


@tool
def change(what: str, times: int = 1) -> str:
    """Change something."""
    return f"{what} changed {times} times"


@tool(needs_approval=True)
def launch(target: str) -> str:
    """Launch something."""
    return f"launched {target}"


@tool
def stumble() -> str:
    """Fail."""
    raise RuntimeError("out of luck")


@tool
async def linger() -> str:
    """Never end."""
    await asyncio.Event().wait()
    return "never"


TOOLS = (look, peek, change, launch, stumble, linger)
Scene = Callable[["World"], Awaitable[ChatId]]
SCENES: dict[str, Scene] = {}


class Dies(BaseException):
    """What a fault point raises in place of a `kill -9`: nothing of the engine catches it."""


class World:
    """A store and a folder in which chats are made."""

    def __init__(self, store: Store, root: Path) -> None:
        self.store = store
        self.root = root

    def agent(self, model: Model | None = None, **settings: Any) -> Agent:
        settings.setdefault("retry_base_s", 0.0)
        return Agent(self.store, model=model, tools=TOOLS, **settings)

    def options(self, **changes: Any) -> ChatOptions:
        return ChatOptions(**{"root": str(self.root), **changes})


class Held:
    """Holds a scripted model at its first Delay, and tells when it is there."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()

    async def hold(self, _seconds: float) -> None:
        self.reached.set()
        await asyncio.Event().wait()


HOLD = Delay(0.0)


def scene(function: Scene) -> Scene:
    SCENES[function.__name__] = function
    return function


async def watch(following: Following, until: Callable[[Envelope], bool] = lambda _event: False) -> None:
    """Follow a chat to its rest, or to the first event that is meant."""
    async for envelope in following:
        if until(envelope):
            return


async def finish(agent: Agent) -> None:
    """Stop the agent but keep its store."""
    await agent.worker.close()


async def ask(world: World, model: ScriptedModel, *messages: str, **options: Any) -> ChatId:
    """One chat, one message after the other."""
    agent = world.agent(model)
    chat = agent.chat(options=world.options(**options))
    for message in messages:
        await watch(chat.send(message))
    model.assert_done()
    await finish(agent)
    return chat.id


def is_kind(kind: type) -> Callable[[Envelope], bool]:
    return lambda envelope: isinstance(envelope.data, kind)


async def idle(chat: Chat) -> None:
    """Wait until the chat has come to rest after something that nobody followed."""
    await watch(chat.resume())


# -- the plain loop -------------------------------------------------------------------------------------------------


@scene
async def plain_answers(world: World) -> ChatId:
    said = [Think("Hm."), ThinkingBlock(Thinking("deep", "c2lnbmVk")), Say("Hello."), Used(Usage(10, 5, 2, 1))]
    model = ScriptedModel([said, [Say("Bye."), Finish("length")], [Say("")]], info=PRICED)
    return await ask(world, model, "Hello?", "And now?", "Nothing more.")


@scene
async def tools_that_read_and_write(world: World) -> ChatId:
    (world.root / "a.txt").write_text("one\ntwo\n")
    steps = [
        [Say("Let me see."), Call("read_file", path="a.txt"), Call("list_files", path="."), Call("look", what="it")],
        [Call("edit_file", path="a.txt", old_str="two", new_str="2"), Call("write_file", path="b.txt", content="b\n")],
        [Call("update_plan", steps=[{"text": "go on", "status": "in_progress"}]), Call("read_file", path="b.txt")],
        [Call("run_command", command="echo hello; exit 3")],
        [Say("Done."), Call("task_complete", summary="changed a and b")],
    ]
    return await ask(world, ScriptedModel(steps), "Change a.")


@scene
async def reads_that_end_out_of_order(world: World) -> ChatId:
    calls = [Call("peek", what="slow", wait=0.05), Call("peek", what="quick"), Call("peek", what="mid", wait=0.02)]
    steps = [[*calls, Call("change", what="x"), Call("peek", what="last")], Say("Seen.")]
    return await ask(world, ScriptedModel(steps), "Look.")


@scene
async def tools_that_fail(world: World) -> ChatId:
    steps = [
        [Call("stumble"), Call("read_file", path="no.txt"), Call("look", what="a"), Call("look")],
        [Call("edit_file", path="no.txt", old_str="a", new_str="b"), Call("no_such_tool", x=1)],
        [RawCall("look", '{"what": '), RawCall("", "{}"), RawCall("look", '{"what": 7}', id="same")],
        [RawCall("change", '{"what": "y", "times": "3"}', id="same"), RawCall("look", "null")],
        [Call("read_file", path="../outside"), Call("look", what="a"), Call("look", what="a")],
        Say("So it goes."),
    ]
    return await ask(world, ScriptedModel(steps), "Try.")


@scene
async def a_chat_without_a_root(world: World) -> ChatId:
    return await ask(world, ScriptedModel([Call("read_file", path="a.txt"), Say("No files.")]), "Read.", root="")


@scene
async def a_run_without_words(world: World) -> ChatId:
    model = ScriptedModel([Call("look", what="a"), Say("")], others={"summary": "It was looked at."})
    return await ask(world, model, "Look.")


@scene
async def a_summary_that_fails(world: World) -> ChatId:
    broken = Turn((Used(Usage(100, 7)), Say("It w"), Fail("overloaded", times=0)))
    model = ScriptedModel([Call("look", what="a"), Say("")], others={"summary": broken}, info=PRICED)
    return await ask(world, model, "Look.")


@scene
async def notices_and_odd_ends(world: World) -> ChatId:
    odd = [
        NoticeDelta("ladder", "text calls"),
        NoticeDelta("dropped", "temperature"),
        Say("Cut"),
        FinishDelta("length"),
    ]
    return await ask(world, ScriptedModel([odd]), "Say.")


# -- failures of the model ------------------------------------------------------------------------------------------


@scene
async def retries(world: World) -> ChatId:
    steps = [
        [Fail("rate_limit", "slow down", retry_after=0.01), Say("One."), Call("look", what="a")],
        [Say("Two"), Fail("network", times=2), Say(".")],
        [Used(Usage(50, 1)), Fail("cut_stream", times=1), Say("Three.")],
    ]
    model = ScriptedModel(steps, info=PRICED)
    agent = world.agent(model)
    chat = agent.chat(options=world.options())
    await watch(chat.send("Go."))
    await watch(chat.send("Go on."))
    await finish(agent)
    return chat.id


@scene
async def errors_that_end_a_run(world: World) -> ChatId:
    steps = [
        [Fail("auth", "no key", times=1), Say("One.")],
        [Say("Half"), Fail("bad_request", "bad", times=1), Say(" whole.")],
        [Fail("overloaded", "too much", times=6), Say("At last.")],
        [Fail("rate_limit", "tomorrow", times=1, retry_after=86_400.0), Say("Tomorrow.")],
    ]
    model = ScriptedModel(steps)
    agent = world.agent(model)
    chat = agent.chat(options=world.options())
    for number in range(8):
        await watch(chat.send(f"Try {number}."))
    await finish(agent)
    return chat.id


@scene
async def a_model_that_cannot_be_had(world: World) -> ChatId:
    agent = world.agent(env={})
    chat = agent.chat(options=world.options(model="nowhere:model"))
    await watch(chat.send("Hello?"))
    await finish(agent)
    return chat.id


class Faulty(ScriptedModel):
    """A model with a fault of its own, at its second call."""

    async def stream(self, request: ModelRequest) -> AsyncIterator[Sequence[Delta]]:
        async for deltas in super().stream(request):
            yield deltas
            if any(isinstance(entry, AssistantEntry) for entry in request.entries):
                raise RuntimeError("boom: something broke")


@scene
async def a_fault_of_our_own(world: World) -> ChatId:
    agent = world.agent(Faulty([Call("look", what="a"), Say("Never.")]))
    chat = agent.chat(options=world.options())
    await watch(chat.send("Go."))
    await finish(agent)
    return chat.id


# -- limits ---------------------------------------------------------------------------------------------------------


def looks(count: int) -> list[Any]:
    return [Call("look", what=str(number)) for number in range(count)]


@scene
async def the_turn_cap_answers(world: World) -> ChatId:
    return await ask(world, ScriptedModel([*looks(4), Say("Enough.")]), "Look.", max_turns=4)


@scene
async def the_turn_cap_is_an_error(world: World) -> ChatId:
    return await ask(world, ScriptedModel(looks(2)), "Look.", max_turns=2, on_limit="error")


@scene
async def the_turn_cap_asks(world: World) -> ChatId:
    agent = world.agent(ScriptedModel(looks(5)))
    chat = agent.chat(options=world.options(max_turns=2, on_limit="ask", interactive=True))
    await watch(chat.send("Look."))
    await watch(chat.answer((await chat.actions())[0], "continue"))
    await watch(chat.answer((await chat.actions())[0], "stop"))
    await finish(agent)
    return chat.id


@scene
async def the_guard_nudges_and_stops(world: World) -> ChatId:
    return await ask(world, ScriptedModel([Call("look", what="a")] * 5), "Look.")


@scene
async def the_guard_asks(world: World) -> ChatId:
    agent = world.agent(ScriptedModel([*[Call("look", what="a")] * 5, Say("I stop.")]))
    chat = agent.chat(options=world.options(interactive=True))
    await watch(chat.send("Look."))
    await watch(chat.answer((await chat.actions())[0], "continue"))
    await finish(agent)
    return chat.id


@scene
async def budgets(world: World) -> ChatId:
    """Tokens, money, tool calls and turns; a run of which the first call is too dear; a chat that has nothing left."""
    used = Used(Usage(1_000, 100))
    steps = [[Call("look", what="a"), used], [Call("look", what="b"), used], [Call("look", what="c"), used]] * 3
    agent = world.agent(ScriptedModel(steps, info=PRICED, follow="calls"))
    chat = agent.chat(options=world.options(run_budget=Budget(tokens=3_500)))
    await watch(chat.send("Tokens."))
    await chat.command(c.ChangeOptions({"run_budget": {"usd": 0.01}}))
    await watch(chat.send("Money."))
    await chat.command(c.ChangeOptions({"run_budget": {"tool_calls": 1}}))
    await watch(chat.send("Calls."))
    await chat.command(c.ChangeOptions({"run_budget": {"turns": 1}}))
    await watch(chat.send("Turns."))
    await chat.command(c.ChangeOptions({"run_budget": {}, "chat_budget": {"tokens": 10}}))
    await watch(chat.send("Nothing is left."))
    await finish(agent)
    return chat.id


@scene
async def a_budget_too_small_for_anything(world: World) -> ChatId:
    agent = world.agent(ScriptedModel([Say("Never said.")], info=PRICED))
    chat = agent.chat(options=world.options(run_budget=Budget(tokens=50)))
    await watch(chat.send("Hello?"))
    await chat.command(c.ChangeOptions({"run_budget": {"usd": 0.00001}}))
    await watch(chat.send("Hello?"))
    await finish(agent)
    return chat.id


@scene
async def a_wall_budget(world: World) -> ChatId:
    clock = ManualClock()

    async def sleep(seconds: float) -> None:
        clock.advance(seconds)

    steps = [[Delay(9.0), Call("look", what="a")], [Delay(5.0), Call("look", what="b"), Call("change", what="c")]]
    agent = world.agent(ScriptedModel(steps, sleep=sleep), clock=clock)
    chat = agent.chat(options=world.options(run_budget=Budget(wall_s=10.0)))
    await watch(chat.send("Hurry."))
    await finish(agent)
    return chat.id


# -- completion -----------------------------------------------------------------------------------------------------


@scene
async def autopilot(world: World) -> ChatId:
    steps = [Say("I think."), [Call("look", what="a")], Say("Well."), [Call("task_complete", summary="looked")]]
    return await ask(world, ScriptedModel(steps), "Work.", mode="autopilot")


@scene
async def autopilot_gives_up(world: World) -> ChatId:
    return await ask(world, ScriptedModel([Say("I think."), Say("Still."), Say("Hm.")]), "Work.", mode="autopilot")


@scene
async def markers(world: World) -> ChatId:
    steps = [Turn((Say("All done. [TASK_COMPLETE]"),), chunk=3), Say("Not quite [TASK_")]
    return await ask(world, ScriptedModel(steps), "Work.", "More.", completion="marker", mode="autopilot")


# -- compaction -----------------------------------------------------------------------------------------------------


@scene
async def compactions(world: World) -> ChatId:
    """By a summary, twice: there is nothing to mask."""
    said = [Say("Yes.") for _ in range(24)]
    model = ScriptedModel(said, others={"compaction": "Much was said."}, follow="turns")
    return await ask(world, model, *(f"{n} {'word ' * 1_500}" for n in range(24)), context_window=40_000)


@scene
async def a_compaction_that_only_masks(world: World) -> ChatId:
    (world.root / "big.txt").write_text("\n".join(f"line {number} " + "x" * 60 for number in range(400)))
    steps: list[Any] = [Call("read_file", path="big.txt", start_line=1 + number) for number in range(8)]
    model = ScriptedModel([*steps, Say("Read.")], follow="turns")
    return await ask(world, model, "Read it all.", context_window=40_000)


@scene
async def a_compaction_by_hand_and_one_by_force(world: World) -> ChatId:
    steps = [
        [Say("One."), Used(Usage(100, 2))],
        Say("Two."),
        Say("Three."),
        [Fail("context_limit", "too long"), Say("Four.")],
    ]
    counted = Turn((Say("They counted."), Used(Usage(50, 9))))
    model = ScriptedModel(steps, others={"compaction": counted}, info=PRICED, follow="turns")
    agent = world.agent(model)
    chat = agent.chat(options=world.options())
    await watch(chat.send("One?"))
    await watch(chat.send("Two?"))
    await watch(chat.compact())
    await watch(chat.send("Three?"))
    await watch(chat.send("Four?"))
    await finish(agent)
    return chat.id


@scene
async def compactions_that_fail(world: World) -> ChatId:
    broken = Turn((Fail("bad_request", "no summary today", times=0),))
    model = ScriptedModel([Say("One."), Say("Two.")], others={"compaction": broken})
    agent = world.agent(model)
    chat = agent.chat(options=world.options())
    await watch(chat.send("One?"))
    await watch(chat.compact())
    await watch(chat.send("Two?"))
    await watch(chat.compact())
    await finish(agent)
    return chat.id


@scene
async def a_compaction_beyond_the_budget(world: World) -> ChatId:
    agent = world.agent(ScriptedModel([Say("Yes.") for _ in range(9)], follow="turns", info=PRICED))
    chat = agent.chat(options=world.options(context_window=40_000))
    for number in range(7):
        await watch(chat.send(f"{number} {'word ' * 1_500}"))
    for budget in ({"usd": 0.05}, {"tokens": 3_000}):
        await chat.command(c.ChangeOptions({"run_budget": budget}))
        await watch(chat.send("word " * 12_000))
    await finish(agent)
    return chat.id


@scene
async def an_interrupt_of_a_summary(world: World) -> ChatId:
    held = Held()
    model = ScriptedModel([Call("look", what="a"), Say("")], others={"summary": Turn((HOLD,))}, sleep=held.hold)
    agent = world.agent(model)
    chat = agent.chat(options=world.options())
    await chat.send("Look.")
    await held.reached.wait()
    await chat.interrupt()
    await idle(chat)
    await finish(agent)
    return chat.id


@scene
async def an_interrupt_of_a_compaction(world: World) -> ChatId:
    held = Held()
    said = [Say("Yes.") for _ in range(4)]
    others: Any = {"compaction": Turn((Say("Half"), HOLD))}
    model = ScriptedModel(said, others=others, follow="turns", sleep=held.hold)
    agent = world.agent(model)
    chat = agent.chat(options=world.options(context_window=40_000))
    await watch(chat.send("word " * 12_000))
    await watch(chat.send("Yes?"))
    await chat.send("word " * 12_000)
    await held.reached.wait()
    await chat.interrupt()
    await idle(chat)
    await finish(agent)
    return chat.id


@scene
async def a_retry_beyond_the_budget(world: World) -> ChatId:
    steps = [[Say("Half"), Used(Usage(2_000, 10)), Fail("network", times=9), Say("Never.")]]
    agent = world.agent(ScriptedModel(steps, info=PRICED))
    chat = agent.chat(options=world.options(run_budget=Budget(tokens=5_000)))
    await watch(chat.send("Go."))
    await finish(agent)
    return chat.id


# -- other people ---------------------------------------------------------------------------------------------------

CLIENT = DynamicTool("ask_client", "Asks the client.", {"type": "object", "properties": {"q": {"type": "string"}}})


@scene
async def client_tools(world: World) -> ChatId:
    steps = [
        [
            Call("ask_client", q="a"),
            Call("look", what="b"),
            Call("ask_client", q="c"),
            RawCall("ask_client", '{"q": 1}'),
        ],
        [Call("ask_client", q="d")],
        Say("Thanks."),
    ]
    agent = world.agent(ScriptedModel(steps))
    chat = agent.chat(options=world.options(dynamic_tools=(CLIENT,)))
    await watch(chat.send("Ask."))
    await watch(chat.submit({action.tool_call_id: {"n": 1} for action in await chat.actions()}))
    (action,) = await chat.actions()
    await watch(chat.submit([c.Result(action.tool_call_id, "broken", True)]))
    await finish(agent)
    return chat.id


async def _deadline(world: World, on_deadline: str) -> ChatId:
    clock = ManualClock()
    agent = world.agent(ScriptedModel([Call("ask_client", q="a"), Say("Nobody there.")]), clock=clock)
    chat = agent.chat(options=world.options(dynamic_tools=(CLIENT,), action_deadline_s=60.0, on_deadline=on_deadline))
    await watch(chat.send("Ask."))
    clock.advance(61.0)
    await idle(chat)
    await finish(agent)
    return chat.id


@scene
async def a_deadline_passes(world: World) -> ChatId:
    return await _deadline(world, "continue")


@scene
async def a_deadline_is_an_error(world: World) -> ChatId:
    return await _deadline(world, "error")


@scene
async def approvals(world: World) -> ChatId:
    steps = [
        [Call("look", what="a"), Call("launch", target="one"), Call("change", what="b"), Call("launch", target="two")],
        [Call("launch", target="three")],
        Say("Launched."),
    ]
    agent = world.agent(ScriptedModel(steps))
    chat = agent.chat(options=world.options(interactive=True))
    await watch(chat.send("Launch."))
    await watch(chat.approve((await chat.actions())[0]))
    await watch(chat.deny((await chat.actions())[0], "not that one"))
    await watch(chat.approve((await chat.actions())[0], arguments={"target": "four"}))
    await finish(agent)
    return chat.id


@scene
async def what_a_mode_denies(world: World) -> ChatId:
    steps = [[Call("change", what="a"), Call("look", what="b")], Say("I may not.")]
    return await ask(world, ScriptedModel(steps), "Change.", mode="read-only")


@scene
async def a_question_is_answered(world: World) -> ChatId:
    steps = [[Call("ask_user", question="Which?", options=["a", "b"]), Call("look", what="c")], Say("So be it.")]
    agent = world.agent(ScriptedModel(steps))
    chat = agent.chat(options=world.options(interactive=True))
    await watch(chat.send("Choose."))
    await watch(chat.answer((await chat.actions())[0], "neither"))
    await finish(agent)
    return chat.id


# -- in mid-run -----------------------------------------------------------------------------------------------------


@scene
async def queue_and_steering(world: World) -> ChatId:
    steps = [
        [Say("Let me"), Delay(0.06), Say(" see."), Call("look", what="a"), Call("peek", what="b", wait=0.06)],
        [Say("I turn."), Delay(0.06)],
        Say("And the queued one."),
        Say("And the last."),
    ]
    agent = world.agent(ScriptedModel(steps, follow="calls"))
    chat = agent.chat(options=world.options())
    await watch(chat.send("Go."), is_kind(MessageDelta))
    await chat.send("Queued.")
    await chat.send("Deleted.")
    state = await chat.send("Edited.")
    await chat.command(c.DeleteQueued(state.queue[1].id))
    await chat.command(c.EditQueued(state.queue[2].id, "Edited indeed."))
    await watch(chat.resume(), is_kind(ExecutionStart))
    await chat.send("Turn around.", delivery="steering")
    await chat.command(c.Rename("A busy chat"))
    await watch(
        chat.resume(), lambda event: isinstance(event.data, UserMessage) and event.data.content == "Edited indeed."
    )
    await idle(chat)
    await finish(agent)
    return chat.id


@scene
async def an_interrupt_in_mid_stream(world: World) -> ChatId:
    agent = world.agent(ScriptedModel([[Think("Hm."), Say("Half a"), Hang()], Say("A whole one.")]))
    chat = agent.chat(options=world.options())
    await watch(chat.send("Go."), is_kind(MessageDelta))
    await chat.interrupt()
    await idle(chat)
    await watch(chat.send("Again."))
    await finish(agent)
    return chat.id


@scene
async def an_interrupt_before_a_word(world: World) -> ChatId:
    held = Held()
    agent = world.agent(ScriptedModel([Turn((HOLD,))], sleep=held.hold))
    chat = agent.chat(options=world.options())
    await chat.send("Go.")
    await held.reached.wait()
    await chat.interrupt()
    await idle(chat)
    await finish(agent)
    return chat.id


@scene
async def an_interrupt_in_mid_tool(world: World) -> ChatId:
    calls = [Call("ask_client", q="a"), Call("look", what="b"), Call("linger"), Call("change", what="c")]
    agent = world.agent(ScriptedModel([calls, Say("Stopped.")]))
    chat = agent.chat(options=world.options(dynamic_tools=(CLIENT,)))
    await watch(chat.send("Go."), lambda e: isinstance(e.data, ExecutionStart) and e.data.name == "linger")
    await chat.interrupt()
    await idle(chat)
    await watch(chat.send("What now?"))
    await finish(agent)
    return chat.id


@scene
async def an_interrupt_among_parallel_reads(world: World) -> ChatId:
    calls = [Call("peek", what="a", wait=60.0), Call("peek", what="b"), Call("peek", what="c", wait=60.0)]
    agent = world.agent(ScriptedModel([calls]))
    chat = agent.chat(options=world.options())
    await watch(chat.send("Go."), lambda e: e.type == "tool.execution_complete")
    await chat.interrupt()
    await idle(chat)
    await finish(agent)
    return chat.id


@scene
async def an_interrupt_while_waiting_to_retry(world: World) -> ChatId:
    agent = world.agent(ScriptedModel([[Fail("overloaded"), Say("Never.")]]), retry_base_s=60.0)
    chat = agent.chat(options=world.options())
    await watch(chat.send("Go."), is_kind(TurnRetry))
    await chat.interrupt()
    await idle(chat)
    await finish(agent)
    return chat.id


@scene
async def an_interrupt_of_what_waits(world: World) -> ChatId:
    agent = world.agent(ScriptedModel([[Call("ask_client", q="a")], Say("Well.")]))
    chat = agent.chat(options=world.options(dynamic_tools=(CLIENT,)))
    await watch(chat.send("Go."))
    await chat.interrupt()
    await watch(chat.send("Go on."))
    await finish(agent)
    return chat.id


@scene
async def steering_past_what_waits(world: World) -> ChatId:
    agent = world.agent(ScriptedModel([[Call("ask_client", q="a")], Say("Well.")]))
    chat = agent.chat(options=world.options(dynamic_tools=(CLIENT,)))
    await watch(chat.send("Go."))
    await watch(chat.send("Never mind.", delivery="steering"))
    await finish(agent)
    return chat.id


@scene
async def an_earlier_message_is_edited(world: World) -> ChatId:
    agent = world.agent(
        ScriptedModel([Say("One."), [Call("ask_client", q="a")], Say("Uno."), Say("Due.")], follow="calls")
    )
    chat = agent.chat(options=world.options(dynamic_tools=(CLIENT,)))
    await watch(chat.send("One?"))
    await watch(chat.send("Two?"))
    first = next(e.seq for e in await chat.events() if isinstance(e.data, UserMessage))
    await watch(chat.edit(first, "Uno?"))
    await watch(chat.send("Due?"))
    await finish(agent)
    return chat.id


@scene
async def the_model_is_changed(world: World) -> ChatId:
    said = [[Think("Hm."), Say("One."), Used(Usage(500, 20))], [Say("Two."), Call("look", what="a")], Say("Three.")]
    agent = world.agent(ScriptedModel(said, info=PRICED))
    chat = agent.chat(options=world.options(model="scripted:priced"))
    await watch(chat.send("One?"))
    await finish(agent)
    other = ModelInfo("scripted", "cheap", usd_per_million_input=0.1, usd_per_million_output=0.1)
    agent = world.agent(ScriptedModel(said, info=other))
    chat = agent.chat(chat.id, model="scripted:cheap")
    await watch(chat.send("Two?"))
    await finish(agent)
    return chat.id


# -- crashes --------------------------------------------------------------------------------------------------------


async def crash(world: World, point: str, steps: list[Any], **options: Any) -> ChatId:
    """A chat whose worker dies at a fault point and is followed by another one."""
    armed = True

    def strike(name: str) -> None:
        nonlocal armed
        if armed and name == point:
            armed = False
            raise Dies(name)

    agent = world.agent(ScriptedModel(steps))
    chat = agent.chat(options=world.options(**options))
    await chat.open()
    await agent.deps.log.execute(chat.id, c.Send("Go."))
    install(strike)
    try:
        lease = await world.store.claim("doomed", chat.id)
        assert lease is not None
        await _drive_to_death(agent, lease)
    finally:
        install(None)
    assert not armed, f"{point} was never reached"
    await finish(agent)
    agent = world.agent(ScriptedModel(steps))
    await watch(agent.chat(chat.id).resume())
    await finish(agent)
    return chat.id


async def _drive_to_death(agent: Agent, lease: Any) -> None:
    from treadle.engine.lease import Tenure
    from treadle.engine.loop import advance

    tenure = Tenure(lease, agent.deps.log, await agent.deps.log.load(lease.chat))
    with contextlib.suppress(Dies, BaseExceptionGroup):
        await advance(tenure, agent.deps)
    await agent.deps.store.release(lease)


CRASH_STEPS: list[Any] = [
    [Say("I look."), Call("look", what="a"), Call("look", what="b")],
    [Call("change", what="c"), Call("write_file", path="d.txt", content="d")],
    Say("Done."),
]
CRASH_POINTS = (
    "model.before_call",
    "model.first_delta",
    "model.after_call",
    "append.before:assistant.message",
    "append.after:assistant.message",
    "append.after:tool.execution_start",
    "tool.before:look",
    "tool.after:look",
    "tool.before:change",
    "tool.after:change",
    "tool.before:write_file",
    "tool.after:write_file",
    "append.after:tool.execution_complete",
)


def _crash_scene(point: str) -> Scene:
    async def crashed(world: World) -> ChatId:
        return await crash(world, point, CRASH_STEPS)

    return crashed


for _point in CRASH_POINTS:
    SCENES[f"a_crash_at_{_point}"] = _crash_scene(_point)


@scene
async def a_crash_and_a_stop(world: World) -> ChatId:
    """A worker goes away in mid-stream; the run is stopped before another one takes over (fault 22)."""
    agent = world.agent(ScriptedModel([[Say("Half"), Hang()]]))
    chat = agent.chat(options=world.options())
    await watch(chat.send("Go."), is_kind(MessageDelta))
    await finish(agent)
    agent = world.agent(ScriptedModel([Say("Again.")]))
    await agent.deps.log.execute(chat.id, c.Interrupt())
    chat = agent.chat(chat.id)
    await idle(chat)
    await watch(chat.send("Once more."))
    await finish(agent)
    return chat.id


@scene
async def a_chat_that_is_cut_off(world: World) -> ChatId:
    """Its log ends in mid-run, and nobody took it up."""
    agent = world.agent(ScriptedModel([Call("look", what="a"), [Say("Half"), Hang()]]))
    chat = agent.chat(options=world.options())
    await watch(chat.send("Go."), is_kind(MessageDelta))
    await finish(agent)
    return chat.id
