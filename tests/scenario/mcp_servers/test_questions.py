"""A question of a server during a call is a question of the chat (E-01): recorded, answered from anywhere, and the
call goes on; of a newer server in another process, too."""

import asyncio
from pathlib import Path

import pytest

from tests.lazily import Lazy
from tests.scenario.kit import of
from tests.scenario.mcp_servers.kit import Kit, action, collect_events, results
from treadle.adapters.models.scripted import Call, ReportUsage, Say, ScriptedModel, Turn
from treadle.protocol import events as e
from treadle.protocol.content import Usage
from treadle.protocol.options import Budget

pytestmark = pytest.mark.thorough(one_of=8)

modern = Lazy("tests.scenario.mcp_servers.modern")


async def test_a_question_waits_like_any_other_and_the_call_goes_on(kit: Kit) -> None:
    agent = kit.agent([Call("odd__ask"), Say("Done.")])
    chat = kit.chat(agent, interactive=True)
    events = await collect_events(chat.send("Go."))
    question = action(events)
    assert (question.kind, question.options) == ("user_input", ("red", "blue", "decline"))
    assert "The MCP server odd asks: Which \\x1b[31mcolour?" in question.text  # inert (S-12)
    assert await chat.status() == "requires_action"
    events = await collect_events(chat.answer(question, "green"))
    again = action(events)
    assert again.text.startswith("That does not fit: colour is one of red, blue.")
    events = await collect_events(chat.answer(again, "blue"))
    assert [result.result for result in results(events)] == ["accept: blue"]
    assert kit.note_lines == ["asked accept"]


async def test_it_can_be_declined_and_is_without_a_person(kit: Kit) -> None:
    agent = kit.agent([Call("odd__ask"), Say("Done."), Call("odd__ask"), Say("Done.")])
    chat = kit.chat(agent, interactive=True)
    question = action(await collect_events(chat.send("Go.")))
    assert results(await collect_events(chat.answer(question, "decline")))[0].result == "decline: None"
    headless = kit.chat(agent)
    assert results(await collect_events(headless.send("Go.")))[0].result == "decline: None"


async def test_a_stop_ends_the_call_and_the_server_can_be_used_again(kit: Kit) -> None:  # L-07
    kit.replayed = False
    agent = kit.agent([Call("odd__ask"), Call("odd__note", text="after"), Say("Done.")])
    chat = kit.chat(agent, interactive=True)
    await collect_events(chat.send("Go."))
    await chat.interrupt()
    completion = of(await chat.events(), e.ExecutionComplete)[0]
    assert completion.synthetic == "interrupted"
    assert "not known whether it took effect" in completion.error
    assert results(await collect_events(chat.send("Again.")))[0].result == "noted after"


async def test_it_may_ask_the_model_only_if_the_user_says_so(kit: Kit) -> None:
    agent = kit.agent([Call("odd__sample"), Say("Done.")])
    events = await collect_events(kit.chat(agent).send("Go."))
    assert "not supported" in results(events)[0].result
    assert not of(events, e.ModelCall)


async def test_a_model_that_it_asks_is_the_chats_and_costs_the_chat(kit: Kit) -> None:  # L-02, L-11
    turns = [
        Turn((part, ReportUsage(Usage(100, 10)))) for part in (Call("odd__sample"), Call("odd__sample"), Say("Done."))
    ]
    answer = Turn((Say("It is \x1b[1mblue."), ReportUsage(Usage(5_000, 200))))
    model = ScriptedModel(turns, side_answers={"sampling": answer})
    agent = kit.agent(model, {"odd": {**kit.odd, "sampling": "allow"}}, builtin=False)
    chat = kit.chat(agent, run_budget=Budget(tokens=5_800))
    events = await collect_events(chat.send("Go."))
    blue, no_more = results(events)
    assert blue.result == "the model says: It is \x1b[1mblue."
    [model_call] = of(events, e.ModelCall)
    assert (model_call.purpose, model_call.usage.input, model_call.call) == ("sampling", 5_000, blue.call)
    assert "budget does not allow" in no_more.result
    assert (await chat.state()).totals.usage.tokens == 5_200 + 3 * 110


async def test_it_asks_for_leave_and_waits_for_it(kit: Kit) -> None:
    model = ScriptedModel([Call("odd__sample"), Call("odd__sample"), Say("Done.")], side_answers={"sampling": "Blue."})
    agent = kit.agent(model, {"odd": {**kit.odd, "sampling": "ask"}})
    chat = kit.chat(agent, interactive=True)
    question = action(await collect_events(chat.send("Go.")))
    assert question.options == ("allow", "decline")
    assert "it is told: Be \\x1b[31mbrief.\nuser: Which colour has the sky?" in question.text  # inert (S-12)
    again = action(await collect_events(chat.answer(question, "perhaps")))
    assert again.text.startswith("Answer allow or decline.")
    events = await collect_events(chat.answer(again, "allow"))
    assert results(events)[0].result == "the model says: Blue."
    events = await collect_events(chat.answer(action(events), "decline"))
    assert "does not allow" in results(events)[0].result


async def test_a_question_of_an_older_server_is_lost_with_its_process(kit: Kit) -> None:  # D-02
    agent = kit.agent([Call("odd__ask"), Say("x")])
    chat = kit.chat(agent, interactive=True)
    question = action(await collect_events(chat.send("Go.")))
    await agent.close()
    later = kit.agent([Say("I see.")])
    events = await collect_events(later.chat(chat.id).answer(question, "red"))
    assert "not known whether it took effect" in results(events)[0].error
    assert "asked accept" not in kit.note_lines


async def test_a_question_of_a_newer_server_is_answered_after_a_restart(kit: Kit, tmp_path: Path) -> None:
    async with modern.Modern(tmp_path / "greeted") as server:
        agent = kit.agent([Call("new__greet", greeting="Hello"), Say("Done.")], {"new": {"url": server.url}})
        chat = kit.chat(agent, interactive=True)
        question = action(await collect_events(chat.send("Go.")))
        assert "Whom shall I greet?" in question.text
        await agent.close()
        later = kit.agent([Say("Done.")], {"new": {"url": server.url}})
        events = await collect_events(later.chat(chat.id).answer(question, "Ada"))
        assert [result.result for result in results(events)] == ["Hello, Ada!"]
        assert server.greeted == ["Ada"]


async def test_streamable_http_progress_changes_and_a_server_that_comes_back(kit: Kit, tmp_path: Path) -> None:
    steps = [Call("new__count", to=2), Call("new__learn")]
    steps += [
        Call("new__count", to=3),
        Call("new__count", to=4),
        Call("new__count", to=5),
    ]  # the notice has its own stream
    steps += [
        Call("find_tools", query="learned"),
        Call("call_tool", name="new__learned", arguments={}),
        Call("new__fail"),
        Say("Done."),
    ]
    async with modern.Modern(tmp_path / "greeted") as server:
        chat = kit.chat(kit.agent(steps, {"new": {"url": server.url}}))
        events = await collect_events(chat.send("Go."))
        counted, learned, *_, search_result, call_result, failed = results(events)
        assert counted.result == "counted to 2"
        assert any("counting" in output.text for output in of(events, e.ExecutionOutput))
        assert learned.success
        assert "new__learned" in search_result.result
        assert call_result.result == "now I know"
        assert not failed.success
        prompts = await kit.agents[0].mcp.prompts(str(kit.root))
        assert [(prompt.command, prompt.required) for prompt in prompts] == [("/new:review", ("what",))]
        prompt_reply = await kit.agents[0].mcp.prompt("new", "review", {"what": "this"}, str(kit.root))
        assert prompt_reply.text == "Please review this."
        resources = await kit.agents[0].mcp.resources(str(kit.root))
        assert [resource.mention for resource in resources] == ["@new:notes://today", "@new:notes://{day}"]
        assert "Buy milk." in (await kit.agents[0].mcp.resource("@new:notes://today", str(kit.root))).text


async def test_an_http_server_that_is_not_there_is_a_notice_and_costs_no_more(kit: Kit) -> None:
    kit.replayed = True
    agent = kit.agent([Say("Done.")], {"far": {"url": "http://127.0.0.1:9/mcp", "start_s": 5}})
    async with asyncio.timeout(60):
        events = await collect_events(kit.chat(agent).send("Go."))
    assert any(notice.text.startswith("The MCP server far did not start") for notice in of(events, e.ModelNotice))


async def test_an_http_server_that_goes_away_and_comes_back(kit: Kit, tmp_path: Path) -> None:
    kit.replayed = False
    steps = [Call("new__count", to=1), Say("1"), Call("new__count", to=2), Say("2"), Call("new__count", to=3), Say("3")]
    async with modern.Modern(tmp_path / "greeted") as server:
        agent = kit.agent(steps, {"new": {"url": server.url, "start_s": 5}})
        chat = kit.chat(agent)
        assert results(await collect_events(chat.send("Go.")))[0].success
    failed = results(await collect_events(chat.send("Again.")))[0]
    assert not failed.success
    async with modern.Modern(tmp_path / "greeted", server.port):
        assert results(await collect_events(chat.send("And again.")))[0].result == "counted to 3"
