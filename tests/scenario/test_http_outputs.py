"""References of events, over HTTP: outputs by range and pictures; and rules with their owners (U-03, S-07, S-13)."""

import base64
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.scenario.http_kit import Server, serving
from treadle import ScriptedModel
from treadle.adapters.models.scripted import Say
from treadle.adapters.stores.memory import MemoryStore
from treadle.protocol.options import ChatOptions
from treadle.protocol.permissions import Rule

pytestmark = pytest.mark.thorough(one_of=8)

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    (tmp_path / "project" / "src").mkdir(parents=True)
    (tmp_path / "project" / "src" / "needle.py").touch()
    options = ChatOptions(model="scripted:test", root=str(tmp_path / "project"), summarize=False, verify=False)
    model = ScriptedModel([[Say("Hello.")]] * 9, follow="calls")
    async with serving(MemoryStore(), tmp_path / "home", model, options=options) as served:
        yield served


async def test_pictures_and_outputs_of_events(server: Server) -> None:  # U-03, S-13
    response = await server.local(
        "POST", "/api/chats", {"content": "See.", "images": [{"media_type": "image/png", "data": PIXEL}]}
    )
    chat = response.json["id"]
    await server.local.until(chat, "session.idle")
    seq = next(event["seq"] for event in await server.local.log(chat) if event["type"] == "user.message")
    at = f"/api/chats/{chat}/events/{seq}"
    picture = await server.local("GET", f"{at}/images/0")
    assert (picture.headers["content-type"], picture.data) == ("image/png", base64.b64decode(PIXEL))
    assert picture.headers["x-content-type-options"] == "nosniff"
    for wrong in ("images/1", "images/00001", "images/-1", "images/x", "output"):
        assert (await server.local("GET", f"{at}/{wrong}")).code == "not_found"
    for seq_of_none in ("0", "999", "x", "9" * 30):
        assert (await server.local("GET", f"/api/chats/{chat}/events/{seq_of_none}/output")).code == "not_found"
    assert (await server.user("alice")("GET", f"{at}/images/0")).code == "not_found"
    assert (await server.anonymous_client("GET", f"{at}/images/0")).status == 401


async def test_a_range_of_an_output(server: Server) -> None:  # U-03
    chat = await server.local.create("Hi.")
    await server.local.until(chat, "session.idle")
    await server.local("POST", f"/api/chats/{chat}/apply", {"path": "a.txt", "content": "one\n"})
    events = await server.local.until(chat, "tool.execution_complete")
    seq, result = events[-1]["seq"], events[-1]["data"]["result"] or events[-1]["data"]["error"]
    at, full_output = f"/api/chats/{chat}/events/{seq}/output", result.encode()
    assert (await server.local("GET", at)).data == full_output
    size = len(full_output)
    for byte_range, (first, last) in {"0-3": (0, 3), "4-": (4, size - 1), "-2": (size - 2, size - 1)}.items():
        piece = await server.local("GET", at, headers={"range": f"bytes={byte_range}", "accept-encoding": "gzip"})
        assert (piece.status, piece.data) == (206, full_output[first : last + 1])
        assert piece.headers["content-range"] == f"bytes {first}-{last}/{size}"
        assert "content-encoding" not in piece.headers
    beyond = await server.local("GET", at, headers={"range": f"bytes={size}-"})
    assert (beyond.status, beyond.headers["content-range"]) == (416, f"bytes */{size}")
    for wrong in ("bytes=-", "bytes=3-1", "lines=1-2", "bytes=0-1,3-4"):
        assert (await server.local("GET", at, headers={"range": wrong})).code == "bad_request"


async def test_rules_belong_to_somebody(server: Server) -> None:  # S-07, S-13
    book = server.service.agent.rules
    rule = book.add(Rule("allow", "run_command", "make test", "user"))
    book.note_use([rule, Rule("allow", "run_command", "x", id="../../escape")])
    assert not (Path(str(server.service.agent.rules._home)).parent / "escape").exists()
    (mine,) = (await server.local("GET", "/api/rules")).json["rules"]
    assert (mine["rule"]["pattern"], mine["chat"]) == ("make test", "")
    assert mine["used_ms"] > 0
    alice = server.user("alice")
    chat = await alice.create(
        "", root="", rules=[{"effect": "allow", "tool": "run_command", "pattern": "ls", "id": "r1"}]
    )
    assert (await alice("GET", "/api/rules")).json["rules"] == []
    (hers,) = (await alice("GET", f"/api/rules?chat={chat}")).json["rules"]
    assert (hers["rule"]["pattern"], hers["chat"]) == ("ls", chat)
    assert (await server.local("GET", f"/api/rules?chat={chat}")).code == "not_found"
    assert (await alice("DELETE", f"/api/rules/{rule.id}", {})).code == "not_found"
    assert (await alice("DELETE", f"/api/rules/r1?chat={chat}", {})).status == 204
    assert (await alice("GET", f"/api/rules?chat={chat}")).json["rules"] == []
    key = {"idempotency-key": "revoke 1"}
    assert (await server.local("DELETE", f"/api/rules/{rule.id}", {}, headers=key)).status == 204
    assert (await server.local("DELETE", f"/api/rules/{rule.id}", {}, headers=key)).status == 204
    assert (await server.local("DELETE", f"/api/rules/{rule.id}", {})).code == "not_found"
    assert book.read_last_use_ms(rule.id) == 0


async def test_files_of_a_chat_to_come(server: Server) -> None:  # U-10, S-13
    response = await server.local("GET", "/api/files/find?query=ndl")
    assert response.json["paths"] == ["src/needle.py"]
    chat = await server.local.create("")
    assert (await server.local("GET", f"/api/chats/{chat}/files/find?query=ndl")).json["paths"] == ["src/needle.py"]
    place = (await server.local("GET", "/api/project")).json
    assert (Path(place["root"]).name, place["branch"]) == ("project", "")
    alice = server.user("alice")
    assert (await alice("GET", "/api/files/find?query=ndl")).json["paths"] == []
    assert (await alice("GET", "/api/project")).json["root"] == ""
    assert (await alice("GET", f"/api/files/find?root={place['root']}")).code == "invalid_input"
