"""MCP servers of chats in worlds (E-01, W-11): a program sees the files of its chat's world and changes those, however
it is confined; and it ends when the chat rests, so that the world can be dropped."""

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.processes import running_with, unlike_any_other
from tests.scenario.mcp_servers.kit import ODD, Kit, action, collect_events, results
from treadle.adapters.models.scripted import Call, Say
from treadle.library.message_expansion import list_commands

pytestmark = pytest.mark.thorough(one_of=8)

UNCONFINED: dict[str, Any] = {"sandbox": False}
CONFINED = {"sandbox": True, "write": True}
LOOKS = {"sandbox": True}


confined = pytest.mark.skipif(
    Path(__file__).is_relative_to("/tmp"), reason="a checkout in /tmp, of which a confined program sees nothing"
)


def noting(kit: Kit, mark: str = "", **more: Any) -> dict[str, Any]:
    """A server whose notes lie in the project."""
    return {"odd": {"command": sys.executable, "args": ["-S", ODD, str(kit.root / "notes"), mark], **more}}


@pytest.mark.thorough(one_of=8)
@pytest.mark.parametrize(
    "options", [pytest.param(UNCONFINED, id="unconfined"), pytest.param(CONFINED, id="confined", marks=confined)]
)
async def test_what_a_server_writes_is_written_to_the_world(kit: Kit, options: dict[str, Any]) -> None:
    steps = [
        Call("odd__note", text="one"),
        Call("edit_file", path="notes", old_str="one", new_str="two"),
        Call("odd__look"),
        Call("odd__note", text="three"),
        Call("read_file", path="notes"),
        Say("Done."),
    ]
    agent = kit.agent(steps, noting(kit, **options))
    world = await agent.worlds.open(kit.root)
    events = await collect_events(kit.chat(agent, world=world.id).send("Note it."))
    _, _, looked, _, read = results(events)
    assert looked.result == "two\n"  # the chat's change is seen at once
    assert "three" in read.result
    assert not (kit.root / "notes").exists()
    await agent.worlds.commit(world.id)
    assert (kit.root / "notes").read_text() == "two\nthree\n"


@pytest.mark.thorough(one_of=8)
@confined
async def test_a_server_that_may_not_write_sees_what_is_written_meanwhile(kit: Kit) -> None:
    steps = [
        Call("odd__look"),
        Call("write_file", path="notes", content="later\n"),
        Call("odd__look"),
        Call("odd__note", text="mine"),
        Say("Done."),
    ]
    agent = kit.agent(steps, noting(kit, **LOOKS))
    world = await agent.worlds.open(kit.root)
    events = await collect_events(kit.chat(agent, world=world.id).send("Look."))
    first_look, _, second_look, wrote = results(events)
    assert (first_look.result, second_look.result) == ("some notes", "later\n")
    assert not wrote.success
    assert not (kit.root / "notes").exists()


@pytest.mark.thorough(one_of=8)
async def test_worlds_have_servers_of_their_own_that_end_with_the_run(kit: Kit) -> None:
    mark = unlike_any_other()
    steps = [Call("odd__note", text="one"), Say("Done.")]
    agent = kit.agent([*steps, *steps, *steps], noting(kit, mark, **UNCONFINED))
    worlds = [await agent.worlds.open(kit.root) for _ in range(2)]
    for world in worlds:
        await collect_events(kit.chat(agent, world=world.id).send("Note it."))
    for world in worlds:
        await agent.worlds.drop(world.id)  # a process that stands in it would hold it
    assert running_with(mark) == []
    await collect_events(kit.chat(agent).send("Note it."))
    assert (kit.root / "notes").read_text() == "one\n"
    assert running_with(mark) != []  # that of the project stays


async def test_a_server_that_asks_stays_until_it_is_answered(kit: Kit) -> None:
    agent = kit.agent([Call("odd__ask"), Say("Done.")], noting(kit, **UNCONFINED))
    world = await agent.worlds.open(kit.root)
    chat = kit.chat(agent, world=world.id, interactive=True)
    question = action(await collect_events(chat.send("Ask.")))
    events = await collect_events(chat.answer(question, "blue"))
    assert results(events)[0].result == "accept: blue"
    assert not (kit.root / "notes").exists()


@pytest.mark.thorough(one_of=8)
async def test_the_known_prompts_are_those_of_the_world(kit: Kit) -> None:
    agent = kit.agent([Say("Done.")], noting(kit))
    world = await agent.worlds.open(kit.root)
    chat = kit.chat(agent, world=world.id)
    options = (await chat.state()).options
    assert await list_commands(agent, options) == {}  # the server has not been started, and no listing is remembered
    await collect_events(chat.send("Go."))
    assert "odd:tidy" in await list_commands(agent, options)


@pytest.mark.thorough(one_of=8)
async def test_prompts_and_resources_are_those_of_the_world(kit: Kit) -> None:
    mark = unlike_any_other()
    agent = kit.agent([Call("write_file", path="notes", content="of the world"), Say("Done.")], noting(kit, mark))
    world = await agent.worlds.open(kit.root)
    await collect_events(kit.chat(agent, world=world.id).send("Note it."))
    place = (str(kit.root), "", world.id)
    words = "/odd:tidy quickly the shelf"
    assert (await agent.mcp.expand_message(words, *place))[0].startswith("Tidy the shelf quickly: of the world")
    assert "of the world" in (await agent.mcp.resource("@odd:notes://all", *place)).text
    assert "some notes" in (await agent.mcp.resource("@odd:notes://all", str(kit.root))).text
    await agent.worlds.drop(world.id)  # its processes have ended
