"""Chats over HTTP (A-06, A-08, L-08, L-09, S-08, fault 6): list, change, say, edit, queue, approve, answer, read."""

import asyncio
import base64
import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.homes import seed
from tests.scenario.http_kit import Client, Server, serving
from treadle import ScriptedModel, tool
from treadle.adapters.models.keys import CUSTOM_ADDRESS, CUSTOM_KEY
from treadle.adapters.models.scripted import Call, Fail, Hang, Say, Turn
from treadle.adapters.stores.sqlite import SqliteStore
from treadle.frontends.server.admission import Admission
from treadle.library.model_choice import LastModel
from treadle.library.transfer import import_chat
from treadle.ports.store import Store
from treadle.testing.fake_ollama import FakeOllama
from treadle.testing.fake_openai import FakeOpenAI

pytestmark = pytest.mark.thorough(one_of=8)

DONE: list[str] = []
STEPS = [Call("deploy", target="prod"), Say("Deployed."), Say("More.")]


@tool(needs_approval=True)
async def deploy(target: str = "test") -> str:
    """Bring it somewhere."""
    DONE.append(target)
    return f"deployed to {target}"


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    DONE.clear()
    async with serving(SqliteStore(tmp_path / "treadle.db"), tmp_path, STEPS, deploy) as new_server:
        yield new_server


@pytest.fixture
async def talker(tmp_path: Path) -> AsyncIterator[Server]:
    """Its model says something else each time, and hangs at the third."""
    model = ScriptedModel([Say("One."), Say("Two."), Turn((Say("Three"), Hang()))], follow="calls")
    async with serving(SqliteStore(tmp_path / "treadle.db"), tmp_path, model, builtin=True) as new_server:
        yield new_server


async def idle(client: Client, chat: str) -> dict[str, Any]:
    await client.until(chat, "session.idle")
    view: dict[str, Any] = (await client("GET", f"/api/chats/{chat}")).json
    return view


async def request_approval(client: Client) -> tuple[str, dict[str, Any]]:
    """A chat that asks for an approval."""
    chat = await client.create("Deploy it.")
    events = await client.until(chat, "session.action_required")
    action: dict[str, Any] = events[-1]["data"]["actions"][0]
    return chat, action


# -- approvals ----------------------------------------------------------------------------------------------------


GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "http.md"


async def test_an_approval_carries_its_arguments_and_has_the_id_of_the_guide(server: Server) -> None:  # A-06, S-08
    chat, action = await request_approval(server.local)
    assert action["arguments"] == {"target": "prod"}
    for path in (f"/api/chats/{chat}/actions", f"/api/chats/{chat}/approvals", "/api/actions"):
        assert [each["action"] for each in (await server.local("GET", path)).json["actions"]] == [action]
    (guide_id,) = re.findall(r"/approvals/(\S+)", GUIDE.read_text())
    assert action["action"] == action["call"] == guide_id
    decision = {"decision": "allow", "hash": action["hash"], "arguments": {**action["arguments"], "target": "stage"}}
    assert (await server.local("POST", f"/api/chats/{chat}/approvals/{guide_id}", decision)).status == 200
    await server.local.until(chat, "session.idle")
    assert DONE == ["stage"]


async def test_an_approval_is_answered_once_from_two_front_ends(
    open_shared: Callable[[], Store], tmp_path: Path
) -> None:  # S-08, A-10, fault 6
    DONE.clear()
    async with (
        serving(open_shared(), tmp_path, STEPS, deploy) as server,
        serving(open_shared(), tmp_path, STEPS, deploy) as second_server,
    ):
        await race_of_approvals(server, second_server)


async def race_of_approvals(server: Server, second: Server) -> None:
    chat, action = await request_approval(server.local)
    path = f"/api/chats/{chat}/approvals/{action['action']}"
    assert (await server.local("GET", f"/api/chats/{chat}/approvals")).json["actions"][0]["action"] == action
    assert (await server.local("GET", "/api/actions")).json["actions"][0]["chat"] == chat
    response = await server.local("POST", path, {"decision": "allow", "hash": "0" * 32})
    assert (response.status, response.code) == (409, "hash_mismatch")
    body = {"decision": "allow", "hash": action["hash"]}
    posts = [user("POST", path, body) for user in (server.local, second.local) * 10]
    answers = await asyncio.gather(*posts)
    assert sorted(answer.status for answer in answers) == [200] + [409] * 19
    assert {answer.code for answer in answers if answer.status == 409} == {"no_such_action"}
    assert (await idle(server.local, chat))["last_end"] == "done"
    assert DONE == ["prod"]


async def test_edited_arguments_and_a_refusal_with_feedback(server: Server) -> None:  # S-08
    chat, action = await request_approval(server.local)
    path = f"/api/chats/{chat}/approvals/{action['action']}"
    body = {"decision": "allow", "hash": action["hash"], "arguments": {"target": "stage"}}
    assert (await server.local("POST", path, body)).status == 200
    await idle(server.local, chat)
    assert DONE == ["stage"]
    chat, action = await request_approval(server.local)
    path = f"/api/chats/{chat}/approvals/{action['action']}"
    response = await server.local("POST", path, {"decision": "deny", "hash": action["hash"], "feedback": "on Fridays?"})
    assert response.status == 200
    await idle(server.local, chat)
    assert DONE == ["stage"]
    results = [
        message for message in (await server.local("GET", f"/api/chats/{chat}/messages")).json["messages"]
        if message["role"] == "tool"
    ]  # fmt: skip
    assert "on Fridays?" in results[0]["results"][0]["text"]


async def test_a_rule_is_one_of_those_that_were_offered(tmp_path: Path) -> None:  # S-07
    steps = [Call("run_command", command="touch made.txt"), Say("Made."), Call("run_command", command="touch made.txt")]
    (tmp_path / "project").mkdir()
    store = SqliteStore(tmp_path / "t.db")
    async with serving(store, seed(tmp_path / "home"), steps, builtin=True, admission=_open(tmp_path)) as server:
        bob = server.user("bob")
        chat = await bob.create("Touch.", root=str(tmp_path / "project"), mode="confirm")
        events = await bob.until(chat, "session.action_required")
        action = events[-1]["data"]["actions"][0]
        assert action["offers"]
        path = f"/api/chats/{chat}/approvals/{action['action']}"
        body = {"decision": "allow", "hash": action["hash"]}
        for wish in ({"offer": 99}, {"offer": 0, "scope": "user"}, {"offer": 0, "scope": "project"}):
            refused = await bob("POST", path, body | {"rule": wish})
            assert (refused.status, refused.code) == (400, "invalid_input")
        assert (await bob("POST", path, body | {"rule": {"offer": 0, "expires_s": 60}})).status == 200
        view = await idle(bob, chat)
        (rule,) = view["options"]["rules"]
        assert (rule["scope"], rule["tool"]) == ("chat", "run_command")
        assert (tmp_path / "project" / "made.txt").exists()


async def test_an_approval_reaches_no_further_than_the_server_lets_its_users(tmp_path: Path) -> None:  # S-13
    steps = [Call("run_command", command="pip install six"), Say("Then not.")]
    (tmp_path / "project").mkdir()
    store, admission = SqliteStore(tmp_path / "t.db"), replace(_open(tmp_path), network=("npm",))
    async with serving(store, seed(tmp_path / "home"), steps, builtin=True, admission=admission) as server:
        bob = server.user("bob")
        chat = await bob.create("Install.", root=str(tmp_path / "project"), mode="ask")
        action = (await bob.until(chat, "session.action_required"))[-1]["data"]["actions"][0]
        assert action["network"] == ["pypi"]
        path, body = f"/api/chats/{chat}/approvals/{action['action']}", {"hash": action["hash"]}
        for more in ({}, {"rule": {"offer": 0}}, {"rule": {"offer": 1, "scope": "once"}}):
            refused = await bob("POST", path, {**body, "decision": "allow", **more})
            assert (refused.status, refused.code) == (400, "invalid_input")
            assert "serve_network" in refused.json["error"]["message"]
        assert (await bob("POST", path, {**body, "decision": "deny"})).status == 200
        assert (await idle(bob, chat))["options"].get("rules", []) == []


def _open(folder: Path) -> Admission:
    from treadle.protocol.options import ChatOptions

    options = ChatOptions(model="scripted:test", interactive=True, summarize=False, verify=False)
    return Admission(options, roots=(str(folder / "project"),), models=("scripted:*",))


async def test_a_question_is_answered(tmp_path: Path) -> None:  # T-07
    steps = [Call("ask_user", question="Which?", options=["a", "b"]), Say("Good.")]
    async with serving(SqliteStore(tmp_path / "t.db"), tmp_path, steps) as server:
        chat = await server.local.create("Ask me.")
        events = await server.local.until(chat, "session.action_required")
        path = f"/api/chats/{chat}/answers/{events[-1]['data']['actions'][0]['action']}"
        assert (await server.local("POST", path, {"answer": " "})).code == "empty"
        assert (await server.local("POST", path, {"answer": "b"})).status == 200
        again = await server.local("POST", path, {"answer": "a"})
        assert (again.status, again.code) == (409, "no_such_action")
        assert (await idle(server.local, chat))["last_end"] == "done"


# -- the conversation ---------------------------------------------------------------------------------------------


async def test_queue_and_interrupt(talker: Server) -> None:  # L-08, L-07
    client = talker.local
    chat = await client.create("1")
    await idle(client, chat)
    for text in ("2", "3"):
        message = (await client("POST", f"/api/chats/{chat}/messages", {"content": text})).json
        assert message["queued"] == ""
        if text == "2":
            await client.until(chat, "session.idle", after_seq=message["head"])
    at = f"/api/chats/{chat}"
    await client.until(chat, "assistant.message_delta")
    queued = [(await client("POST", f"{at}/messages", {"content": text})).json["queued"] for text in "abc"]
    assert all(queued)
    assert (await client("PUT", f"{at}/queue/{queued[0]}", {"content": "A"})).status == 200
    assert (await client("DELETE", f"{at}/queue/{queued[1]}")).status == 200
    assert (await client("DELETE", f"{at}/queue/{queued[1]}")).status == 404
    assert (await client("POST", f"{at}/queue/{queued[2]}/promote")).status == 200
    queue = (await client("GET", f"{at}/queue")).json["queue"]
    assert [(item["content"], item["delivery"]) for item in queue] == [("A", "queued"), ("c", "steering")] or [
        (item["content"], item["delivery"]) for item in queue
    ] == [("c", "steering"), ("A", "queued")]
    busy = await client("POST", f"{at}/compact")
    assert (busy.status, busy.code) == (409, "busy")
    for _ in range(18):
        assert (await client("POST", f"{at}/messages", {"content": "x"})).status == 200
    full = await client("POST", f"{at}/messages", {"content": "x"})
    assert (full.status, full.code) == (409, "queue_full")
    assert (await client("POST", f"{at}/extend", {"turns": 5})).status == 200
    assert (await client("POST", f"{at}/interrupt")).status == 200
    await client.until(chat, "session.idle", after_seq=(await client("GET", at)).json["head"] - 3)
    assert (await client("GET", at)).json["status"] == "idle"
    stopped = await client("POST", f"{at}/interrupt")
    assert (stopped.status, stopped.code) == (409, "not_running")
    messages = (await client("GET", f"{at}/messages")).json
    assert messages["messages"][-1]["content"] == "Three"


async def test_editing_an_earlier_message(talker: Server) -> None:  # L-09
    client = talker.local
    chat = await client.create("1")
    await idle(client, chat)
    at = f"/api/chats/{chat}"
    first = (await client("GET", f"{at}/messages")).json["messages"][0]
    assert (first["role"], first["content"]) == ("user", "1")
    response = await client("PUT", f"{at}/messages/{first['seq']}", {"content": "one"})
    assert response.status == 200
    await client.until(chat, "session.idle", after_seq=response.json["head"])
    messages = [(each["role"], each["content"]) for each in (await client("GET", f"{at}/messages")).json["messages"]]
    assert messages == [("user", "one"), ("assistant", "Two.")]
    repeat_response = await client("PUT", f"{at}/messages/{first['seq']}", {"content": "again"})
    assert (repeat_response.status, repeat_response.code) == (404, "no_such_message")
    assert (await client("PUT", f"{at}/messages/x", {"content": "again"})).status == 400


async def test_pages_of_the_conversation_and_of_the_log(server: Server) -> None:
    chat, action = await request_approval(server.local)
    path = f"/api/chats/{chat}"
    await server.local("POST", f"{path}/approvals/{action['action']}", {"decision": "allow", "hash": action["hash"]})
    await idle(server.local, chat)
    conversation = (await server.local("GET", f"{path}/messages")).json
    assert [message["place"] for message in conversation["messages"]] == [1, 2, 3, 4]
    assert [message["role"] for message in conversation["messages"]] == ["user", "assistant", "tool", "assistant"]
    assert conversation["messages"][1]["calls"][0]["name"] == "deploy"
    places = [
        [message["place"] for message in (await server.local("GET", f"{path}/messages?{query}")).json["messages"]]
        for query in ("limit=2", "limit=2&before=3", "after=1&limit=2", "after=9", "before=2&after=1")
    ]
    assert places == [[3, 4], [1, 2], [2, 3], [], []]
    log = await server.local.log(chat)
    read: list[dict[str, Any]] = []
    while page := (await server.local("GET", f"{path}/log?limit=3&after={len(read)}")).json["events"]:
        read += page
    assert read == log
    usage = (await server.local("GET", f"{path}/usage")).json
    assert (usage["turns"], usage["tool_calls"]) == (2, 1)
    assert (await server.local("GET", "/api/usage")).json["turns"] == 2


async def test_an_image_is_kept_and_sent(talker: Server) -> None:
    chat = await talker.local.create()
    picture = {"media_type": "image/png", "data": base64.b64encode(b"\x89PNG").decode()}
    body = {"content": "Look.", "images": [picture]}
    assert (await talker.local("POST", f"/api/chats/{chat}/messages", body)).status == 200
    log = await talker.local.log(chat)
    (image,) = log[1]["data"]["images"]
    assert await talker.agent.deps.store.get_blob(image["blob"]) == b"\x89PNG"
    body = {"images": [picture | {"data": "no base64!"}]}
    assert (await talker.local("POST", f"/api/chats/{chat}/messages", body)).code == "invalid_input"


# -- lists and changes --------------------------------------------------------------------------------------------


async def test_lists(talker: Server) -> None:  # A-06, S-13
    client = talker.local
    ids = [await client.create(title=f"Chat {number}", labels=["x", f"n{number % 2}"]) for number in range(5)]
    await client("PATCH", f"/api/chats/{ids[4]}", {"archived": True})

    async def list_chat_ids(query: str) -> list[str]:
        chat_ids: list[str] = []
        cursor = ""
        while True:
            page = (await client("GET", f"/api/chats?{query}&cursor={cursor}")).json
            chat_ids += [chat["id"] for chat in page["chats"]]
            if not (cursor := page["next"]):
                return chat_ids

    assert await list_chat_ids("limit=2") == await list_chat_ids("limit=200")
    assert set(await list_chat_ids("limit=1")) == set(ids)
    assert await list_chat_ids("archived=true") == [ids[4]]
    assert set(await list_chat_ids("archived=false&label=n1")) == {ids[1], ids[3]}
    assert await list_chat_ids("query=chat%203") == [ids[3]]
    assert await list_chat_ids("status=running") == []
    assert (await talker.user("bob")("GET", "/api/chats")).json == {"chats": [], "next": ""}
    for bogus in ("limit=0", "limit=x", "status=lazy", "archived=maybe", "cursor=%25", "cursor=abc", "colour=red",
                  "limit=1&limit=2"):  # fmt: skip
        refused = await client("GET", f"/api/chats?{bogus}")
        assert (refused.status, refused.code) == (400, "bad_request"), bogus


async def test_changing_a_chat(talker: Server) -> None:
    client = talker.local
    chat = await client.create()
    at = f"/api/chats/{chat}"
    changes = {"title": "Mine", "labels": ["a"], "mode": "read-only", "max_turns": 7}
    view = (await client("PATCH", at, changes)).json
    assert (view["title"], view["labels"], view["options"]["mode"]) == ("Mine", ["a"], "read-only")
    assert view["options"]["max_turns"] == 7
    old_data = (await client("GET", at)).data
    for wrong in ({"mode": "reckless"}, {"max_turns": 0}, {"labels": [""]}, {"title": "a\nb"}, {"colour": "red"},
                  {"title": " ", "mode": "ask"}, {"root": "relative"}, {"root": "/"}, {"owner": "bob"},
                  {"max_tokens": 10**30}):  # fmt: skip
        refused = await client("PATCH", at, wrong)
        assert refused.status == 400, wrong
        assert (await client("GET", at)).data == old_data
    assert (await client("PATCH", at, {"archived": True})).json["archived"] is True
    refused = await client("POST", f"{at}/messages", {"content": "hi"})
    assert (refused.status, refused.code) == (400, "archived")


async def test_begin_with_what_does_not_fit(talker: Server) -> None:
    for wrong in ({"content": "  "}, {"content": 7}, {"model": "x" * 3_000}, {"root": "/nowhere/at/all"}, []):
        refused = await talker.local("POST", "/api/chats", wrong)
        assert refused.status == 400, wrong
    assert (await talker.local("GET", "/api/chats")).json["chats"] == []


async def test_export(talker: Server) -> None:  # D-08
    chat = await talker.local.create("1")
    await idle(talker.local, chat)
    lines = (await talker.local("GET", f"/api/chats/{chat}/export")).data.splitlines()
    assert len(lines) == len(await talker.local.log(chat))
    assert import_chat is not None


async def test_models_and_me(talker: Server) -> None:
    models = (await talker.local("GET", "/api/models")).json
    assert models["default"] == "scripted:test"
    assert models["models"][0]["usable"] is True
    assert (await talker.local("GET", "/api/me")).json["user"] == "local"
    assert (await talker.user("bob")("GET", "/api/me")).json == {"user": "bob", "root": "", "mode": "auto-edit"}


async def test_models_of_local_servers_are_listed(tmp_path: Path) -> None:  # U-10: the list of every front end
    with FakeOllama(models=["qwen3-coder:30b"]) as ollama, FakeOpenAI() as custom:
        env = {"OLLAMA_HOST": ollama.url, CUSTOM_ADDRESS: custom.base_url, CUSTOM_KEY: "k"}
        async with serving(SqliteStore(tmp_path / "t.db"), tmp_path, (), env=env) as server:
            models = {each["model"]: each for each in (await server.local("GET", "/api/models")).json["models"]}
    assert (models["ollama:qwen3-coder:30b"]["usable"], models["ollama:qwen3-coder:30b"]["place"]) == (True, "Ollama")
    assert models["custom:fake"]["place"] == ""
    assert any(model.startswith("openai:") for model in models)


# -- files --------------------------------------------------------------------------------------------------------


async def test_files_of_the_project_and_of_nothing_else(talker: Server, tmp_path: Path) -> None:  # S-01
    root = tmp_path / "project"
    (root / "src").mkdir(parents=True)
    (root / "a.txt").write_bytes(b"hello\xff\n")
    (root / "out").symlink_to(tmp_path)
    (tmp_path / "secret").write_text("no")
    chat = await talker.local.create(root=str(root))
    at = f"/api/chats/{chat}/files"
    listing = (await talker.local("GET", at)).json
    assert [(entry["name"], entry["kind"]) for entry in listing["entries"]] == [
        ("src", "directory"), ("a.txt", "file"), ("out", "link"),
    ]  # fmt: skip
    read = await talker.local("GET", f"{at}/content?path=a.txt")
    assert (read.data, read.headers["content-type"]) == (b"hello\xff\n", "application/octet-stream")
    for path in ("../secret", "out/secret", f"{tmp_path}/secret", "/etc/passwd"):
        refused = await talker.local("GET", f"{at}/content?path={path}")
        assert (refused.status, refused.code) == (400, "outside_root")
    assert (await talker.local("GET", f"{at}/content?path=missing")).code == "tool"
    assert (await talker.local("GET", f"{at}/content?path=src")).code == "tool"
    assert (await talker.local("GET", f"{at}?path=..")).code == "outside_root"
    bare = await talker.local.create()
    assert (await talker.local("GET", f"/api/chats/{bare}/files")).code == "tool"


async def test_a_chat_says_why_it_is_in_error(tmp_path: Path) -> None:
    model = ScriptedModel([Turn((Fail("auth", "the key was refused"),)), Say("Hello again.")], follow="calls")
    async with serving(SqliteStore(tmp_path / "t.db"), tmp_path, model) as server:
        chat = await server.local.create("Hello.")
        failed = await idle(server.local, chat)
        expected_error = {"class": "auth", "message": "the key was refused"}
        assert (failed["status"], failed["last_error"]) == ("error", expected_error)
        (line,) = (await server.local("GET", "/api/chats")).json["chats"]
        assert (line["status"], line["last_error"]) == ("error", expected_error)
        failure = (await server.agent.chat(chat).state()).last_error
        assert failure is not None
        assert failure.message == expected_error["message"]
        head = failed["head"]
        await server.local("POST", f"/api/chats/{chat}/messages", {"content": "Again."})
        await server.local.until(chat, "session.idle", after_seq=head)
        mended = (await server.local("GET", f"/api/chats/{chat}")).json
        assert (mended["status"], mended["last_error"]) == ("idle", None)
        assert (await server.local("GET", "/api/chats")).json["chats"][0]["last_error"] is None


async def test_the_model_of_the_web_app_is_remembered(tmp_path: Path, talker: Server) -> None:  # U-10
    last = LastModel(tmp_path)
    chat = (await talker.local("POST", "/api/chats", {"model": "openai:gpt-4.1"})).json["id"]
    assert last.read() == "openai:gpt-4.1"
    await talker.user("bob")("POST", "/api/chats", {"model": "openai:gpt-4o"})
    assert last.read() == "openai:gpt-4.1"
    await talker.local("PATCH", f"/api/chats/{chat}", {"model": "openai:gpt-4.1-mini"})
    assert last.read() == "openai:gpt-4.1-mini"
