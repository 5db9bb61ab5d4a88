"""Deleting a chat (A-04, A-06, A-07, S-13): from the library, over HTTP and from the command line. A kill in the middle
leaves the chat whole or deleted."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.scenario.command_line import CommandLine
from tests.scenario.family import ByTask, project
from tests.scenario.http_kit import Server, serving
from tests.scenario.kit import play
from treadle import Agent
from treadle.adapters.models.scripted import Call, Hang, Say, ScriptedModel, Turn
from treadle.adapters.stores.sqlite import SqliteStore
from treadle.base.types import ChatId
from treadle.errors import NotFound, Refused
from treadle.library.transfer import export_chat, fork_chat, import_chat

HELLO = '[[turn]]\ntext = "Hello."\n'


async def test_a_chat_is_deleted_with_its_sub_agents(tmp_path: Path) -> None:
    model = ByTask(
        {"Do both.": [Call("delegate", tasks=[{"task": "Part one."}]), Say("Done.")], "Part one.": [Say("1")]}
    )
    async with Agent(tmp_path / "home" / "t.db", model=model, home=tmp_path / "home") as agent:
        other_chat = agent.chat()
        chat = agent.chat(root=str(project(tmp_path)), mode="autopilot")
        await other_chat.open()
        await play(chat.send("Do both."))
        assert len(await agent.chats()) == 3
        await agent.delete_chat(chat.id)
        assert [each.summary.chat for each in await agent.chats()] == [other_chat.id]
        with pytest.raises(NotFound):
            await agent.chat(chat.id).state()
        await agent.delete_chat(chat.id)


async def test_a_chat_that_works_is_refused_until_it_is_stopped(tmp_path: Path) -> None:  # D-04
    async with Agent(tmp_path / "t.db", model=ScriptedModel([Turn((Say("One"), Hang()))]), home=tmp_path) as agent:
        chat = agent.chat()
        async for envelope in chat.send("Speak."):
            if envelope.type == "assistant.message_delta":
                break
        with pytest.raises(Refused, match="Stop that first") as refused:
            await agent.delete_chat(chat.id)
        assert refused.value.reason == "busy"
        await chat.interrupt()
        await play(chat.resume())
        await agent.delete_chat(chat.id)


@pytest.mark.thorough(one_of=8)
async def test_background_commands_end_with_their_chat(tmp_path: Path) -> None:  # S-14
    call = Call("run_command", command="while true; do sleep 0.1; done", background=True)
    home = tmp_path / "home"
    async with Agent(home / "t.db", model=ScriptedModel([call, Say("It runs.")]), home=home) as agent:
        chat = agent.chat(root=str(project(tmp_path)), mode="autopilot")
        await play(chat.send("Serve."))
        (job,) = await chat.jobs()
        assert job.view.status == "running"
        await agent.delete_chat(chat.id)
        assert await agent.jobs() == []
        await agent.job_registry.sweep(everything=True)
        await agent.job_registry.sweep()


async def test_a_fork_and_an_export_outlive_the_chat(tmp_path: Path) -> None:  # D-07, D-08
    async with Agent(tmp_path / "t.db", model=ScriptedModel([Say("One."), Say("Two.")]), home=tmp_path) as agent:
        chat, store = agent.chat(), agent.deps.store
        await play(chat.send("Speak."))
        copy = await fork_chat(store, chat.id, await store.read_head(chat.id), {})
        lines = [line async for line in export_chat(store, chat.id)]
        await agent.delete_chat(chat.id)
        assert (await agent.chat(copy).ask("Again.")).text == "Two."
        assert await import_chat(store, lines, local=agent.options) == chat.id
        assert [each.summary.deleted for each in await store.list_changes() if each.summary.chat == chat.id] == [False]


# -- over HTTP -------------------------------------------------------------------------------------------------------


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    steps = [Say("One."), Turn((Say("Two"), Hang()))]
    model = ScriptedModel(steps, follow="calls")
    async with serving(SqliteStore(tmp_path / "treadle.db"), tmp_path, model) as new_server:
        yield new_server


async def test_delete_over_http_answers_the_same_again(server: Server) -> None:
    chat = await server.local.create("Speak.")
    await server.local.until(chat, "session.idle")
    for headers in ({}, {}, {"idempotency-key": "k"}, {"idempotency-key": "k"}):
        response = await server.local("DELETE", f"/api/chats/{chat}", {}, headers=headers)
        assert (response.status, response.data) == (204, b"")
    chat_response = await server.local("GET", f"/api/chats/{chat}")
    assert (chat_response.status, chat_response.code) == (404, "not_found")
    assert (await server.local("GET", "/api/chats")).json["chats"] == []
    assert (await server.local("GET", "/api/usage")).json["chats"] == 0
    never = await server.local("DELETE", "/api/chats/c_never", {})
    assert (never.status, never.code) == (404, "not_found")


async def test_the_chat_of_another_user_is_not_deleted(server: Server) -> None:  # S-13
    chat = await server.local.create("Speak.")
    await server.local.until(chat, "session.idle")
    other_user = server.user("eve")
    refused = await other_user("DELETE", f"/api/chats/{chat}", {})
    assert (refused.status, refused.code) == (404, "not_found")
    assert (await server.local("GET", f"/api/chats/{chat}")).status == 200
    await server.local("DELETE", f"/api/chats/{chat}", {})
    assert (await other_user("DELETE", f"/api/chats/{chat}", {})).status == 404


async def test_a_chat_that_works_is_refused_over_http(server: Server) -> None:
    await server.local.until(await server.local.create("Speak."), "session.idle")
    chat = await server.local.create("Speak on.")
    await server.local.until(chat, "assistant.message_delta")
    refused = await server.local("DELETE", f"/api/chats/{chat}", {})
    assert (refused.status, refused.code) == (409, "busy")


async def test_streams_tell_of_the_deletion(server: Server) -> None:
    chat = await server.local.create("Speak.")
    await server.local.until(chat, "session.idle")
    change_number = (await server.service.agent.deps.store.get(ChatId(chat))).change_number

    async def follow() -> int:
        return len([event async for event in server.local.events(chat)])

    following = asyncio.create_task(follow())
    await server.local.until(chat, "session.idle")
    await server.local("DELETE", f"/api/chats/{chat}", {})
    async with asyncio.timeout(20):
        assert await following > 0  # it ends
    watched = (await server.local("GET", f"/api/watch?after={change_number}&follow=false")).data.decode()
    assert chat in watched
    assert '"deleted":true' in watched


# -- from the command line -------------------------------------------------------------------------------------------


def test_the_command_line_wants_a_yes(cli: CommandLine) -> None:
    model = cli.script(HELLO)
    chat = cli("run", "Hi.", "--model", model, "--json").events[0]["chat"]
    refused = cli("delete", chat)
    assert refused.code == 2
    assert f"treadle delete --yes {chat}" in refused.err
    assert len(cli("chats", "--json").lines) == 1
    delete_result = cli("delete", chat, "--yes", "--json")
    assert (delete_result.code, delete_result.lines) == (0, [{"chat": chat, "deleted": True}])
    assert cli("chats", "--json").out == ""
    assert cli("show", chat).code != 0
    assert cli("fsck").code == 0
    assert cli("gc").code == 0


@pytest.mark.thorough(one_of=8)
@pytest.mark.parametrize("point", ["delete.before", "store.before_commit", "store.after_commit", "delete.after"])
def test_a_kill_leaves_the_chat_whole_or_deleted(cli: CommandLine, point: str) -> None:  # D-01, fault 1
    command = '[[turn]]\ncall = [{ name = "run_command", args = { command = "echo changed > made" } }]\n'
    model = cli.script(command + HELLO)
    first = cli("run", "Do it.", "--mode", "autopilot", "--model", model, "--json")
    chat, head = first.events[0]["chat"], max(event.get("seq", 0) for event in first.events)
    killed = cli("delete", chat, "--yes", env={"TREADLE_FAULTS": f"kill@{point}"})
    assert killed.code != 0
    listed = cli("chats", "--json").lines
    if listed:
        assert listed[0]["head"] >= head
        assert cli("replay", chat).code == 0
    assert bool(listed) == (point in ("delete.before", "store.before_commit"))
    assert cli("fsck").code == 0, cli("fsck").err
    assert cli("delete", chat, "--yes").code == (0 if listed else 1)
    assert cli("fsck").code == 0
    collected = cli("gc", "--older-than", "0", "--json")
    # The commands of a chat whose deletion was cut off are collected later; otherwise they went with it.
    assert (collected.code, collected.lines[0]["commands"]) == (0, 0 if listed else 1), point
    assert os.path.exists(cli.project / "made")
