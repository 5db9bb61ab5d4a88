"""Input that people type to a chat of a server: prompts and resources of its MCP servers, own commands (T-10, S-13)."""

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.scenario.http_kit import Client, Server, serving
from tests.scenario.mcp_servers.kit import ODD
from treadle.adapters.models.scripted import Say
from treadle.adapters.stores.sqlite import SqliteStore
from treadle.frontends.server.admission import Admission
from treadle.protocol.options import ChatOptions

pytestmark = pytest.mark.thorough(one_of=8)

OPTIONS = ChatOptions(model="scripted:test", interactive=True, summarize=False, verify=False)


def use_odd(server: Server, notes: Path, root: str = "") -> None:
    server.agent.mcp.add("odd", {"command": sys.executable, "args": ["-S", ODD, str(notes)]}, root)


async def type_to(user: Client, chat: str, content: str, **more: Any) -> str:
    """Send a typed message and return its text in the log."""
    reply = await user("POST", f"/api/chats/{chat}/messages", {"content": content, "expand": True, **more})
    assert reply.status == 200, reply.data
    return str((await messages(user, chat))[-1]["content"])


async def messages(user: Client, chat: str) -> list[dict[str, Any]]:
    return [event["data"] for event in await user.log(chat) if event["type"] == "user.message"]


async def names(user: Client, chat: str) -> list[str]:
    commands = (await user("GET", f"/api/chats/{chat}/commands")).json["commands"]
    resources = (await user("GET", f"/api/chats/{chat}/resources")).json["resources"]
    return [*(each["name"] for each in commands), *(each["mention"] for each in resources)]


async def test_what_is_typed_stands_for_prompts_and_resources(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    async with serving(SqliteStore(tmp_path / "treadle.db"), tmp_path, [Say("Yes.")] * 9, works=False) as server:
        use_odd(server, notes)
        user = server.local
        typed = {"content": "/odd:tidy well", "expand": True}
        second_chat = (await user("POST", "/api/chats", typed)).json["id"]
        assert (await messages(user, second_chat))[0]["content"].startswith("Tidy all well: some notes")
        assert (await user("POST", "/api/chats", {**typed, "content": "/odd:tidy"})).code == "invalid_input"
        assert len((await user("GET", "/api/chats")).json["chats"]) == 1

        chat = await user.create()
        listed = (await user("GET", f"/api/chats/{chat}/commands")).json["commands"]
        assert listed == [{"name": "odd:tidy", "description": "Tidy up.", "hint": "how [what]"}]
        assert (await user("GET", "/api/commands")).json["commands"] == listed
        assert await names(user, chat) == ["odd:tidy", "@odd:notes://all", "@odd:notes://days/"]
        assert (await type_to(user, chat, "/odd:tidy well", expand=False)) == "/odd:tidy well"


async def test_what_cannot_be_expanded_changes_nothing(tmp_path: Path) -> None:
    """And what was expanded once is not expanded again for a request that is repeated (A-04)."""
    notes = tmp_path / "notes"
    async with serving(SqliteStore(tmp_path / "treadle.db"), tmp_path, [Say("Yes.")] * 9) as server:
        use_odd(server, notes)
        user = server.local
        chat = await user.create()
        old_log = await user.log(chat)
        at = f"/api/chats/{chat}/messages"
        for content, status, code in (
            ("/odd:none", 404, "not_found"),
            ("/odd:tidy", 400, "invalid_input"),
            ("See @odd:notes://gone", 400, "tool"),
        ):
            refused = await user("POST", at, {"content": content, "expand": True})
            assert (refused.status, refused.code) == (status, code), refused.data
        assert await user.log(chat) == old_log

        text = await type_to(user, chat, "See @odd:notes://all and @odd:notes://picture, but not @other:notes://all.")
        assert text.startswith("See @odd:notes://all and")
        assert "[notes://all]\nsome notes" in text
        assert [image["media_type"] for image in (await messages(user, chat))[-1]["images"]] == ["image/png"]

        chat = await user.create()
        body, key = {"content": "/odd:tidy well", "expand": True}, {"idempotency-key": "typed"}
        first = await user("POST", f"/api/chats/{chat}/messages", body, headers=key)
        notes.write_text("others")
        again = await user("POST", f"/api/chats/{chat}/messages", body, headers=key)
        assert (again.status, again.data) == (200, first.data)
        assert [each["content"].partition(" @")[0] for each in await messages(user, chat)] == [
            "Tidy all well: some notes"
        ]


async def test_users_reach_the_servers_whose_tools_their_chat_has(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    roots = {name: tmp_path / "work" / name for name in ("alice", "bob")}
    for root in roots.values():
        root.mkdir(parents=True)
    (tmp_path / "commands").mkdir()
    (tmp_path / "commands" / "hello.md").write_text("The operator's own words.")
    admission = Admission(OPTIONS, roots=(f"{tmp_path}/work/{{user}}",))
    store = SqliteStore(tmp_path / "treadle.db")
    async with serving(store, tmp_path, [], works=False, options=OPTIONS, admission=admission) as server:
        use_odd(server, notes, str(roots["alice"]))
        alice, bob = server.user("alice"), server.user("bob")
        hers = await alice.create(root=str(roots["alice"]))
        assert (await type_to(alice, hers, "/odd:tidy well")).startswith("Tidy all well: some notes")
        assert await names(alice, hers) == ["odd:tidy", "@odd:notes://all", "@odd:notes://days/"]

        some = await alice.create(root=str(roots["alice"]), tools=["odd__no*"])
        assert await names(alice, some) == await names(alice, hers)

        his = await bob.create(root=str(roots["bob"]))
        without = [await alice.create(root=str(roots["alice"]), tools=each) for each in ([], ["odd__*", "!odd__*"])]
        for user, chat in ((bob, his), *((alice, each) for each in without)):
            assert await names(user, chat) == []
            for content in ("/odd:tidy well", "See @odd:notes://all", "/hello"):
                assert await type_to(user, await copy(user, chat), content) == content
        for path in ("commands", "resources"):
            assert (await bob("GET", f"/api/chats/{hers}/{path}")).code == "not_found"
        assert (await bob("GET", f"/api/commands?root={roots['alice']}")).code == "invalid_input"
        typed = {"content": "/odd:tidy well", "expand": True}
        assert (await bob("POST", f"/api/chats/{hers}/messages", typed)).code == "not_found"
        assert (await type_to(server.local, await server.local.create(), "/hello")) == "The operator's own words."


async def copy(user: Client, chat: str) -> str:
    """Another chat like this one."""
    options = (await user("GET", f"/api/chats/{chat}")).json["options"]
    return await user.create(root=options["root"], tools=options["tools"])
