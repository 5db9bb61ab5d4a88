"""Requests that are repeated under one Idempotency-Key, at once or after a failure: done once, and done wholly (A-04,
A-06, fault 5)."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.homes import seed
from tests.scenario.http_kit import Answer, Client, Server, serving
from treadle.adapters.models.scripted import Call, Say
from treadle.adapters.stores.sqlite import SqliteStore
from treadle.errors import StoreError
from treadle.frontends.server.admission import Admission
from treadle.ports.store import Remembered
from treadle.protocol.options import ChatOptions
from treadle.protocol.permissions import Rule

pytestmark = pytest.mark.thorough(one_of=8)

STEPS = [Call("run_command", command="touch made"), Say("Done.")]


class ForgetfulStore(SqliteStore):
    """Fails to remember the answer under one key, once; and to create chats while it is full."""

    forgotten_key = ""
    full = False

    async def create(self, *args: Any, **keywords: Any) -> None:
        if self.full:
            raise StoreError("the disk is full")
        await super().create(*args, **keywords)

    async def remember(self, answer: Remembered) -> None:
        if answer.key == self.forgotten_key:
            self.forgotten_key = ""
            raise StoreError("the store is away")
        await super().remember(answer)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    (tmp_path / "project").mkdir()
    options = ChatOptions(model="scripted:x", mode="confirm", interactive=True, summarize=False, verify=False)
    admission = Admission(options, roots=(str(tmp_path),))
    store, home = ForgetfulStore(tmp_path / "treadle.db"), seed(tmp_path / "home")
    async with serving(store, home, STEPS, builtin=True, options=options, admission=admission) as running_server:
        yield running_server


async def repeat_request(client: Client, path: str, body: Any, key: str, times: int = 8) -> list[Answer]:
    """The same request, several times at once."""
    headers = {"idempotency-key": key}
    return await asyncio.gather(*(client("POST", path, body, headers=headers) for _ in range(times)))


async def test_equal_creations_make_one_chat_and_one_world(server: Server, tmp_path: Path) -> None:  # W-11
    body = {"root": str(tmp_path / "project"), "world": "chat"}
    answers = await repeat_request(server.local, "/api/chats", body, "k1")
    assert {answer.status for answer in answers} == {201}
    assert len({answer.data for answer in answers}) == 1
    (world,) = (await server.local("GET", "/api/worlds")).json["worlds"]
    second = await repeat_request(server.local, "/api/chats", body, "k2", 1)
    worlds = [
        (await server.service.load_state("local", each.json["id"])).options.world for each in (answers[0], second[0])
    ]
    assert worlds[0] == world["id"] != worlds[1]


async def test_a_refused_creation_leaves_no_world(server: Server, tmp_path: Path) -> None:
    body: dict[str, Any] = {"root": str(tmp_path / "project"), "world": "chat", "content": "Look."}
    body["images"] = [{"media_type": "image/png", "data": "no base64"}]
    refused = await repeat_request(server.local, "/api/chats", body, "k1", 4)
    assert {answer.status for answer in refused} == {400}
    body = {"root": body["root"], "world": "chat", "dynamic_tools": [{"name": "x" * 65, "description": ""}]}
    assert (await server.local("POST", "/api/chats", body)).code == "invalid_input"
    assert (await server.local("GET", "/api/worlds")).json["worlds"] == []


@pytest.mark.parametrize("headers", [{}, {"idempotency-key": "k1"}])
async def test_a_creation_that_the_store_does_not_take_leaves_no_world(
    server: Server, tmp_path: Path, headers: dict[str, str]
) -> None:
    store, body = server.agent.deps.store, {"root": str(tmp_path / "project"), "world": "chat"}
    assert isinstance(store, ForgetfulStore)
    store.full = True
    assert (await server.local("POST", "/api/chats", body, headers=headers)).status >= 500
    assert (await server.local("GET", "/api/worlds")).json["worlds"] == []
    store.full = False
    chat = (await server.local("POST", "/api/chats", body, headers=headers)).json["id"]
    (world,) = (await server.local("GET", "/api/worlds")).json["worlds"]
    assert (await server.service.load_state("local", chat)).options.world == world["id"]


async def test_a_drop_of_a_world_that_is_repeated_gets_the_first_answer(server: Server, tmp_path: Path) -> None:
    await server.local.create(root=str(tmp_path / "project"), world="chat")
    (world,) = (await server.local("GET", "/api/worlds")).json["worlds"]
    path = f"/api/worlds/{world['id']}/drop"
    answers = [
        *await repeat_request(server.local, path, {}, "k1"),
        *await repeat_request(server.local, path, {}, "k1", 1),
    ]
    assert {answer.status for answer in answers} == {200}
    assert len({answer.data for answer in answers}) == 1
    assert (await server.local("POST", path, {}, headers={"idempotency-key": "k2"})).status == 404


async def test_equal_forks_make_one_copy(server: Server) -> None:
    chat = await server.local.create()
    forks = await repeat_request(server.local, f"/api/chats/{chat}/fork", {"seq": 1}, "k1")
    assert {answer.status for answer in forks} == {201}
    assert len({answer.json["id"] for answer in forks}) == 1
    assert len((await server.local("GET", "/api/chats")).json["chats"]) == 2


async def test_a_rule_that_could_not_be_saved_is_saved_by_the_repeated_answer(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # S-07
    chat = await server.local.create("Go.", root=str(tmp_path / "project"))
    await server.local.until(chat, "session.action_required")
    (approval,) = (await server.local("GET", f"/api/chats/{chat}/approvals")).json["actions"]
    action = approval["action"]
    body = {"decision": "allow", "hash": action["hash"], "rule": {"offer": 0, "scope": "user"}}
    rules = server.agent.rules
    path, key = f"/api/chats/{chat}/approvals/{action['action']}", {"idempotency-key": "k1"}
    with monkeypatch.context() as patched:

        def full(_rule: Any) -> None:
            raise OSError(28, "No space left on device")

        patched.setattr(rules, "add", full)
        assert (await server.local("POST", path, body, headers=key)).status >= 500
    assert rules.list_rules() == ()
    assert (await server.local("POST", path, body, headers=key)).status == 200
    (rule,) = rules.list_rules()
    rules.revoke(rule.id)
    assert (await server.local("POST", path, body, headers=key)).status == 200
    assert rules.list_rules() == (), "a rule that was revoked does not come back"


async def test_a_revocation_that_is_repeated_gets_the_first_answer(server: Server) -> None:  # S-07
    """The rule was revoked, but the answer could not be remembered."""
    rules, store, key = server.agent.rules, server.agent.deps.store, {"idempotency-key": "k1"}
    assert isinstance(store, ForgetfulStore)
    rules.add(Rule("deny", "run_command", "ls *", scope="user", id="r_1"))
    store.forgotten_key = "k1"
    statuses = [(await server.local("DELETE", "/api/rules/r_1", {}, headers=key)).status for _ in range(3)]
    assert (statuses, rules.list_rules()) == ([503, 204, 204], ())
    for _ in range(2):
        assert (await server.local("DELETE", "/api/rules/r_1", {}, headers={"idempotency-key": "k2"})).status == 404
