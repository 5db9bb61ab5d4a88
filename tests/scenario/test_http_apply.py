"""L-18 over HTTP: a block of the last answer is written to a file, with the same approvals and the same undo."""

from pathlib import Path

import pytest

from tests.homes import seed
from tests.scenario.http_kit import serving
from treadle.adapters.models.scripted import Say
from treadle.adapters.stores.sqlite import SqliteStore
from treadle.client import Client as RealClient
from treadle.errors import ApiError

pytestmark = pytest.mark.thorough(one_of=8)

TWO = Say("```\none\n```\nor\n```\ntwo\n```\n")


async def test_a_block_is_applied_approved_and_undone(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    store = SqliteStore(tmp_path / "treadle.db")
    async with serving(store, seed(tmp_path / "home"), [TWO], builtin=True) as server:
        local = server.local
        chat = await local.create("Which?", root=str(project), tools=[])
        await local.until(chat, "session.idle")
        at = f"/api/chats/{chat}"
        for body, status, code in (
            ({"path": "a.txt"}, 400, "invalid_input"),  # which of the two?
            ({"path": "a.txt", "block": 3}, 404, "no_such_block"),
            ({"path": "a.txt", "block": 0}, 400, "invalid_json"),
            ({"path": "", "block": 1}, 400, "invalid_json"),
            ({"path": "a.txt", "block": 1, "content": "x"}, 400, "invalid_input"),
        ):
            refused = await local("POST", f"{at}/apply", body)
            assert (refused.status, refused.code) == (status, code)
        head = len(await local.log(chat))
        key = {"idempotency-key": "a1"}
        for _ in range(2):  # asked again, it gets the first answer
            response = await local("POST", f"{at}/apply", {"path": "a.txt", "block": 2}, headers=key)
            assert (response.status, response.json["status"]) == (200, "pending")
        await local.until(chat, "session.idle", after_seq=head)
        assert (project / "a.txt").read_text() == "two\n"
        assert [event["type"] for event in await local.log(chat)].count("workspace.files_changed") == 1
        assert (await local("POST", f"{at}/undo?wait=60")).status == 200
        assert not (project / "a.txt").exists()

        head = len(await local.log(chat))
        await local("POST", f"{at}/apply", {"path": ".env", "content": "A=1\n"})
        await local.until(chat, "session.action_required", after_seq=head)  # S-06
        assert (await local("POST", f"{at}/apply", {"path": "b", "content": ""})).code == "awaiting_action"
        (action,) = (await local("GET", at)).json["actions"]
        answer = {"decision": "allow", "hash": action["hash"]}
        assert (await local("POST", f"{at}/approvals/{action['action']}", answer)).status == 200
        await local.until(chat, "session.idle", after_seq=head)
        assert (project / ".env").read_text() == "A=1\n"


async def test_by_the_client(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "treadle.db")
    async with (
        serving(store, seed(tmp_path / "home"), [TWO], builtin=True) as server,
        RealClient(server.address, server.local.token) as client,
    ):
        chat = await client.chats.create("Which?", root=str(tmp_path))
        await client.run(chat)
        with pytest.raises(ApiError) as refused:
            await chat.apply("a.txt")
        assert (refused.value.status, refused.value.reason) == (400, "invalid_input")
        accepted = await chat.apply("a.txt", block=1)
        async for event in chat.events(accepted.head):
            if event.type == "session.idle":
                break
        assert (tmp_path / "a.txt").read_text() == "one\n"
