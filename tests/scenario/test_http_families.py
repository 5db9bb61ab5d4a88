"""Chats that begin others, over HTTP: a race, and questions of sub-agents, listed and answered with those of their
parent (L-22, L-23); users do not see the chats of others (S-13)."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.homes import seed
from tests.scenario.family import ByTask, project
from tests.scenario.http_kit import WAIT_S, Client, serving
from treadle.adapters.models.scripted import Call, Say
from treadle.adapters.stores.sqlite import SqliteStore
from treadle.client import Client as PythonClient
from treadle.errors import ApiError
from treadle.frontends.server.admission import Admission
from treadle.protocol.options import ChatOptions

pytestmark = pytest.mark.thorough(one_of=8)

T = TypeVar("T")
FLOW = ".github/workflows/ci.yml"
TASKS = {
    "Write": [Call("write_file", path="made.txt", content="made\n"), Say("Written.")],
    "Share": [Call("delegate", tasks=[{"task": "Flow."}]), Say("Shared.")],
    "Change": [Call("read_file", path="made.txt"), Call("write_file", path="made.txt", content="new\n"), Say("Done.")],
    "Flow": [Call("write_file", path=FLOW, content="on: push\n"), Say("Flowing.")],
}
OPTIONS = ChatOptions(model="scripted:x", interactive=True, summarize=False, verify=False, diagnose=False)


async def test_a_race_is_begun_and_its_winner_committed(tmp_path: Path) -> None:  # L-22, S-13
    root = project(tmp_path)
    admission = Admission(OPTIONS, roots=(str(tmp_path),), models=("scripted:*",))
    store, home = SqliteStore(tmp_path / "treadle.db"), seed(tmp_path / "home")
    async with serving(store, home, ByTask(TASKS), builtin=True, options=OPTIONS, admission=admission) as server:
        alice, bob = server.user("alice"), server.user("bob")
        race_request = {"task": "Write it.", "attempts": 2, "check": "test -f made.txt", "root": str(root)}
        response = await alice("POST", "/api/races", race_request, headers={"idempotency-key": "once"})
        again = await alice("POST", "/api/races", race_request, headers={"idempotency-key": "once"})
        assert (response.status, again.json["id"]) == (201, response.json["id"])
        chat = response.json["id"]
        await alice.until(chat, "session.idle")
        assert (root / "made.txt").read_text() == "made\n"
        rows = (await alice("GET", f"/api/chats/{chat}/children")).json["children"]
        assert sorted("won" in row["labels"] for row in rows) == [False, True]
        listed = {each["id"]: each["parent"] for each in (await alice("GET", "/api/chats")).json["chats"]}
        assert listed == {chat: "", **{row["chat"]: chat for row in rows}}
        assert (await bob("GET", f"/api/chats/{chat}/children")).status == 404
        assert (await bob("GET", "/api/chats")).json["chats"] == []
        for wrong in (
            {"models": ["openai:x", "scripted:x"]},
            {"judge": "openai:x"},
            {"attempts": 1, "models": ["scripted:x", "scripted:y"]},
            {"root": str(tmp_path.parent)},
            {"root": ""},
            {"task": " "},
        ):
            refused = await alice("POST", "/api/races", {**race_request, **wrong})
            assert (refused.status, refused.code) == (400, "invalid_input"), wrong
        assert (await alice("POST", "/api/races", {**race_request, "attempts": 17})).status == 400
        assert len((await alice("GET", "/api/chats")).json["chats"]) == 3


async def test_what_a_sub_agent_asks_is_among_what_its_parent_asks(tmp_path: Path) -> None:  # L-23, S-13
    root = project(tmp_path)
    admission = Admission(OPTIONS, roots=(str(tmp_path),))
    store, home = SqliteStore(tmp_path / "treadle.db"), seed(tmp_path / "home")
    async with serving(store, home, ByTask(TASKS), builtin=True, options=OPTIONS, admission=admission) as server:
        alice, bob = server.user("alice"), server.user("bob")
        chat = await alice.create("Share it.", root=str(root), mode="ask")
        open_action = await _await_action(alice, chat)
        assert open_action["chat"] != chat
        assert FLOW in open_action["action"]["text"]
        assert (await alice("GET", f"/api/chats/{chat}/actions")).json["actions"] == []
        assert (await bob("GET", f"/api/chats/{chat}/actions?below=true")).status == 404
        answer = {"decision": "allow", "hash": open_action["action"]["hash"]}
        place = f"/api/chats/{open_action['chat']}/approvals/{open_action['action']['action']}"
        assert (await bob("POST", place, answer)).status == 404
        assert (await alice("POST", place, answer)).status == 200
        await alice.until(chat, "session.idle")
        assert (root / FLOW).read_text() == "on: push\n"
        assert (await alice("GET", f"/api/chats/{chat}/actions?below=true")).json["actions"] == []


@pytest.mark.thorough(one_of=8)
async def test_the_python_client_races_answers_below_and_commits_worlds(tmp_path: Path) -> None:  # A-09, L-22, L-23
    root = project(tmp_path)
    scripts = {**TASKS, "Stay": [Call("run_command", command="sleep 600", background=True), Say("It runs.")]}
    store, home = SqliteStore(tmp_path / "treadle.db"), seed(tmp_path / "home")
    async with (
        serving(store, home, ByTask(scripts), builtin=True, options=OPTIONS) as server,
        PythonClient(server.address, server.local.token) as client,
    ):
        race = await client.race("Write it.", attempts=2, check="test -f made.txt", all=True, root=str(root))
        result = await race.result()
        assert (result.committed, [file.path for file in result.files]) == (True, ["made.txt"])
        assert [each.passed for each in result.attempts] == [True, True]
        assert result.winner in [each.number for each in await race.attempts() if "won" in each.labels]
        assert (await race.chat.files.undo()).error == ""
        with pytest.raises(ApiError) as refused:
            await client.race("Write it.", attempts=2, root="")
        assert (refused.value.status, refused.value.reason) == (400, "invalid_input")

        chat = await client.chats.create("Share it.", root=str(root), mode="ask")
        open_action = await _only(lambda: chat.actions(below=True))
        (child,) = await chat.children()
        assert (open_action.chat, await chat.actions()) == (child.chat, ())
        await client.chat(child.chat).approve(open_action.action)
        assert (await client.run(chat)).text == "Shared."

        stays = await client.chats.create("Stay there.", root=str(root), world="chat", mode="autopilot")
        await client.run(stays)
        world = (await stays.info()).options.world
        assert world in [each.id for each in await client.worlds.list()]
        for each in (world, child.world):
            assert await client.worlds.rebase(each) == ()
        with pytest.raises(ApiError, match="stop them first") as busy:
            await client.worlds.drop(world)
        assert (busy.value.status, busy.value.reason) == (409, "world_busy")
        await (await stays.jobs())[0].stop()
        await client.worlds.drop(world)

        writes = await client.chats.create("Write it.", root=str(root), world="chat")
        await client.run(writes)
        world = (await writes.info()).options.world
        assert [file.path for file in (await client.worlds.show(world)).files] == ["made.txt"]
        commit = await client.worlds.commit(world)
        assert [file.path for file in commit.files] == ["made.txt"]
        await client.run(await client.chats.create("Change it.", root=str(root), world=world))
        (root / "made.txt").write_text("theirs\n")
        with pytest.raises(ApiError) as conflict:
            await client.worlds.commit(world)
        assert (conflict.value.status, conflict.value.reason) == (409, "conflict")
        assert (root / "made.txt").read_text() == "theirs\n"


async def _await_action(user: Client, chat: str) -> Any:
    """The one thing that is asked in the chat or below it, once it is."""

    async def look() -> list[Any]:
        actions: list[Any] = (await user("GET", f"/api/chats/{chat}/actions?below=true")).json["actions"]
        return actions

    return await _only(look)


async def _only(look: Callable[[], Awaitable[Sequence[T]]]) -> T:
    """The one thing that is there, once it is."""
    async with asyncio.timeout(WAIT_S):
        while True:
            if values := await look():
                (one,) = values
                return one
            await asyncio.sleep(0.05)
