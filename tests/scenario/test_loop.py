"""The loop from the outside: the events of a run, and that no tool can end it (L-01 to L-06, L-12, T-12, M-09)."""

import asyncio

from tests.scenario.kit import Recording, Stage, change, fail, list_idle_reasons, look, of, play, results, types
from treadle import tool
from treadle.adapters.models.scripted import Call, RawCall, ReportUsage, Say, ScriptedModel, Think
from treadle.base.types import make_call_key
from treadle.protocol import events as e
from treadle.protocol.content import AssistantEntry, ResultsEntry, Usage, UserEntry


async def test_a_run_from_message_to_idle(stage: Stage) -> None:  # L-01, L-02, L-12
    model = ScriptedModel([(Say("I look."), Call("look", n=1)), Say("Done.")])
    events = await play(stage.agent(model, look).chat().send("go"))
    assert types(events) == [
        "user.message",
        "assistant.turn_start",
        "assistant.message",
        "tool.execution_start",
        "tool.execution_complete",
        "assistant.turn_end",
        "assistant.turn_start",
        "assistant.message",
        "assistant.turn_end",
        "session.run_end",
    ]
    assert events[-1].data == e.SessionIdle("done")
    assert list_idle_reasons(events) == ["done"]
    model.assert_done()


async def test_what_is_seen_live_is_what_is_in_the_log(stage: Stage) -> None:  # D-04
    chat = stage.agent([(Say("I look."), Call("look"), Call("look", n=2)), Say("Done.")], look).chat()
    events = await play(chat.send("go"))
    log = await chat.events()
    assert [envelope for envelope in events if not envelope.ephemeral] == log[1:]
    assert [envelope.seq for envelope in log] == list(range(1, len(log) + 1))


async def test_deltas_add_up_to_the_message(stage: Stage) -> None:  # V-05
    steps = [(Think("hm, "), Think("well"), Say("One "), Say("two."))]
    events = await play(stage.agent(steps).chat().send("go"))
    message = of(events, e.AssistantMessage)[0]
    assert "".join(delta.text for delta in of(events, e.MessageDelta)) == message.content == "One two."
    assert "".join(delta.text for delta in of(events, e.ReasoningDelta)) == message.reasoning[0].text == "hm, well"


async def test_the_model_sees_calls_and_results_in_its_own_order(stage: Stage) -> None:  # L-04
    model = Recording(ScriptedModel([(Call("change", n=1), Call("look", n=2), Call("change", n=3)), Say("Done.")]))
    await play(stage.agent(model, look, change).chat().send("go"))
    user, request, answer = model.turns()[1]
    assert isinstance(user, UserEntry)
    assert isinstance(request, AssistantEntry)
    assert isinstance(answer, ResultsEntry)
    assert [call.call for call in request.calls] == [result.call for result in answer.results]
    assert [result.text for result in answer.results] == ["changed 1", "seen 2", "changed 3"]


async def test_reads_run_together(stage: Stage) -> None:  # L-06
    inside = 0
    all_in = asyncio.Event()

    @tool(read_only=True, timeout=5)
    async def meet() -> str:
        """Come back when three are here at once."""
        nonlocal inside
        inside += 1
        if inside == 3:
            all_in.set()
        await all_in.wait()
        return "met"

    chat = stage.agent([[Call("meet")] * 3, Say("Done.")], meet).chat()
    await play(chat.send("go"))
    assert await results(chat) == ["met"] * 3


async def test_writes_run_one_after_the_other_in_call_order(stage: Stage) -> None:  # L-06
    running, order = 0, []

    @tool
    async def write(n: int) -> str:
        """Write."""
        nonlocal running
        running += 1
        alone = running == 1
        await asyncio.sleep(0)
        running -= 1
        order.append(n)
        return f"alone: {alone}"

    chat = stage.agent([[Call("write", n=n) for n in (3, 1, 2)], Say("Done.")], write).chat()
    await play(chat.send("go"))
    assert order == [3, 1, 2]
    assert await results(chat) == ["alone: True"] * 3


async def test_a_read_behind_a_write_sees_what_it_wrote(stage: Stage) -> None:  # L-06
    value = "old"

    @tool
    async def put() -> str:
        """Put."""
        nonlocal value
        await asyncio.sleep(0)
        value = "new"
        return "put"

    @tool(read_only=True)
    async def get() -> str:
        """Get."""
        return value

    chat = stage.agent([[Call("get"), Call("put"), Call("get")], Say("Done.")], put, get).chat()
    await play(chat.send("go"))
    assert await results(chat) == ["old", "put", "new"]


async def test_the_intent_is_committed_before_the_effect(stage: Stage) -> None:  # law 1
    types_at_call: list[list[str]] = []

    @tool
    async def peek() -> str:
        """Look into the log."""
        types_at_call.append([record.type for record in await stage.store.read(chat.id)])
        return "ok"

    chat = stage.agent([Call("peek"), Say("Done.")], peek).chat()
    await play(chat.send("go"))
    assert types_at_call[0][-1] == "tool.execution_start"
    assert "assistant.message" in types_at_call[0]


async def test_a_failing_tool_is_a_result(stage: Stage) -> None:  # L-05
    chat = stage.agent([Call("fail", text="disk on fire"), Say("I see.")], fail).chat()
    events = await play(chat.send("go"))
    assert list_idle_reasons(events) == ["done"]
    completion = of(events, e.ExecutionComplete)[0]
    assert not completion.success
    assert "disk on fire" in completion.error
    assert await results(chat) == [completion.error]


async def test_a_tool_that_takes_too_long_is_stopped_and_the_loop_goes_on(stage: Stage) -> None:  # L-05
    @tool(timeout=0.01)
    async def forever() -> str:
        """Never ends."""
        await asyncio.Event().wait()
        return ""

    chat = stage.agent([Call("forever"), Say("I see.")], forever).chat()
    assert list_idle_reasons(await play(chat.send("go"))) == ["done"]
    assert "0.01 seconds" in (await results(chat))[0]


async def test_one_failing_read_does_not_take_the_others_along(stage: Stage) -> None:  # L-05, L-06
    @tool(read_only=True)
    async def broken() -> str:
        """Fail."""
        raise ValueError("no")

    chat = stage.agent([[Call("look", n=1), Call("broken"), Call("look", n=2)], Say("Done.")], look, broken).chat()
    await play(chat.send("go"))
    first, second, third = await results(chat)
    assert (first, third) == ("seen 1", "seen 2")
    assert "no" in second


async def test_an_unknown_tool_is_named_and_the_known_ones_too(stage: Stage) -> None:  # T-12
    chat = stage.agent([Call("lok"), Say("Oh.")], look, change).chat()
    events = await play(chat.send("go"))
    assert list_idle_reasons(events) == ["done"]
    assert "'lok'" in (await results(chat))[0]
    assert "look, change" in (await results(chat))[0]


async def test_arguments_that_do_not_fit_run_nothing(stage: Stage) -> None:  # T-12, fault 10
    ran = 0

    @tool
    async def count(n: int) -> str:
        """Count."""
        nonlocal ran
        ran += 1
        return "ok"

    broken = ["{", "[]", "null", '{"n": "many"}', "{}", '{"n": 1, "m": 2}', "n=1", ""]
    steps = [[RawCall("count", text) for text in broken], Say("Oh.")]
    chat = stage.agent(steps, count).chat()
    events = await play(chat.send("go"))
    assert list_idle_reasons(events) == ["done"]
    assert ran == 0
    assert [completion.success for completion in of(events, e.ExecutionComplete)] == [False] * len(broken)
    assert ["n" in text for text in await results(chat)] == [True] * len(broken)


async def test_an_argument_of_any_size_is_no_reason_to_fall_over(stage: Stage) -> None:  # L-05
    @tool
    async def echo(n: int) -> str:
        """Echo."""
        return str(n)

    chat = stage.agent([RawCall("echo", f'{{"n": {10**40}}}'), Say("Oh.")], echo).chat()
    assert list_idle_reasons(await play(chat.send("go"))) == ["done"]


async def test_repeated_provider_ids_are_different_calls(stage: Stage) -> None:  # M-09, fault 23
    steps = [[RawCall("change", '{"n": 1}', "call_1")], [RawCall("change", '{"n": 2}', "call_1")], Say("Done.")]
    chat = stage.agent(steps, change).chat()
    events = await play(chat.send("go"))
    assert await results(chat) == ["changed 1", "changed 2"]
    assert [completion.call for completion in of(events, e.ExecutionComplete)] == [
        make_call_key(1, 0),
        make_call_key(2, 0),
    ]


async def test_equal_calls_of_one_answer_each_run(stage: Stage) -> None:  # M-08
    chat = stage.agent([[RawCall("change", "{}", "a"), RawCall("change", "{}", "b")], Say("Done.")], change).chat()
    await play(chat.send("go"))
    assert await results(chat) == ["changed 0", "changed 0"]


async def test_usage_is_reported_recorded_and_added_up(stage: Stage) -> None:  # L-02, V-05
    steps = [(Call("look"), ReportUsage(Usage(100, 10))), (Say("Done."), ReportUsage(Usage(120, 5)))]
    chat = stage.agent(steps, look).chat()
    events = await play(chat.send("go"))
    assert [end.usage.tokens for end in of(events, e.TurnEnd)] == [110, 125]
    assert [info.tokens for info in of(events, e.UsageInfo)] == [110, 125]
    assert (await chat.state()).totals.usage.tokens == 235


async def test_plain_chat_without_tools(stage: Stage) -> None:  # L-18
    answer = await stage.agent([Say("Hello.")]).chat().ask("Hi")
    assert (answer.text, answer.reason) == ("Hello.", "done")


async def test_a_model_that_cannot_be_had_is_an_error_and_idle(stage: Stage) -> None:  # L-12
    from treadle import Agent

    chat = Agent(stage.store, env={}).chat(model="nobody:nothing")
    events = await play(chat.send("go"))
    assert types(events) == ["user.message", "session.error", "session.run_end"]
    assert list_idle_reasons(events) == ["error"]
    assert await chat.status() == "error"
