"""Chats that begin others, over HTTP: a race, and what sub-agents ask, seen and answered with what their parent asks
(L-22, L-23); nobody sees those of others (S-13)."""

import asyncio
from pathlib import Path
from typing import Any

from tests.homes import seed
from tests.scenario.family import ByTask, project
from tests.scenario.http_kit import WAIT_S, Client, serving
from treadle.models.scripted import Call, Say
from treadle.protocol.options import ChatOptions
from treadle.server.admission import Admission
from treadle.stores.sqlite import SqliteStore

FLOW = ".github/workflows/ci.yml"
TASKS = {
    "Write": [Call("write_file", path="made.txt", content="made\n"), Say("Written.")],
    "Share": [Call("delegate", tasks=[{"task": "Flow."}]), Say("Shared.")],
    "Flow": [Call("write_file", path=FLOW, content="on: push\n"), Say("Flowing.")],
}
OPTIONS = ChatOptions(model="scripted:x", interactive=True, summarize=False, verify=False, diagnose=False)


async def test_a_race_is_begun_and_its_winner_committed(tmp_path: Path) -> None:  # L-22, S-13
    root = project(tmp_path)
    opened = Admission(OPTIONS, roots=(str(tmp_path),), models=("scripted:*",))
    store, home = SqliteStore(tmp_path / "treadle.db"), seed(tmp_path / "home")
    async with serving(store, home, ByTask(TASKS), builtin=True, options=OPTIONS, admission=opened) as server:
        alice, bob = server.user("alice"), server.user("bob")
        wanted = {"task": "Write it.", "attempts": 2, "check": "test -f made.txt", "root": str(root)}
        begun = await alice("POST", "/api/races", wanted, headers={"idempotency-key": "once"})
        again = await alice("POST", "/api/races", wanted, headers={"idempotency-key": "once"})
        assert (begun.status, again.json["id"]) == (201, begun.json["id"])
        chat = begun.json["id"]
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
            refused = await alice("POST", "/api/races", {**wanted, **wrong})
            assert (refused.status, refused.code) == (400, "invalid_input"), wrong
        assert (await alice("POST", "/api/races", {**wanted, "attempts": 17})).status == 400
        assert len((await alice("GET", "/api/chats")).json["chats"]) == 3


async def test_what_a_sub_agent_asks_is_among_what_its_parent_asks(tmp_path: Path) -> None:  # L-23, S-13
    root = project(tmp_path)
    opened = Admission(OPTIONS, roots=(str(tmp_path),))
    store, home = SqliteStore(tmp_path / "treadle.db"), seed(tmp_path / "home")
    async with serving(store, home, ByTask(TASKS), builtin=True, options=OPTIONS, admission=opened) as server:
        alice, bob = server.user("alice"), server.user("bob")
        chat = await alice.create("Share it.", root=str(root), mode="ask")
        asked = await _asked(alice, chat)
        assert asked["chat"] != chat
        assert FLOW in asked["action"]["text"]
        assert (await alice("GET", f"/api/chats/{chat}/actions")).json["actions"] == []
        assert (await bob("GET", f"/api/chats/{chat}/actions?below=true")).status == 404
        answer = {"decision": "allow", "hash": asked["action"]["hash"]}
        place = f"/api/chats/{asked['chat']}/approvals/{asked['action']['action']}"
        assert (await bob("POST", place, answer)).status == 404
        assert (await alice("POST", place, answer)).status == 200
        await alice.until(chat, "session.idle")
        assert (root / FLOW).read_text() == "on: push\n"
        assert (await alice("GET", f"/api/chats/{chat}/actions?below=true")).json["actions"] == []


async def _asked(user: Client, chat: str) -> Any:
    """The one thing that is asked in the chat or below it, once it is."""
    async with asyncio.timeout(WAIT_S):
        while True:
            found = (await user("GET", f"/api/chats/{chat}/actions?below=true")).json["actions"]
            if found:
                (one,) = found
                return one
            await asyncio.sleep(0.05)
