"""The library and the HTTP routes carry out commands by one path: the same checks, whoever asks (S-07, A-06)."""

from pathlib import Path

import pytest

from tests.scenario.http_kit import Server, serving
from tests.scenario.kit import Stage, play
from treadle.adapters.models.scripted import Call, Say
from treadle.adapters.stores.sqlite import SqliteStore
from treadle.errors import ConfigError
from treadle.protocol import commands as c


def damage_rules(home: Path) -> None:
    (home / "rules.json").write_text("{")
    (home / "rules.json").chmod(0o600)


async def test_no_run_begins_over_http_when_the_rules_cannot_be_read(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    steps = [Call("write_file", path=".env", content="x"), Say("Done.")]
    async with serving(SqliteStore(tmp_path / "t.db"), home, steps, builtin=True) as server:
        local = server.local
        chat = await local.create("Go.", root=str(tmp_path))
        action = (await local.until(chat, "session.action_required"))[-1]["data"]["actions"][0]
        head = (await local("GET", f"/api/chats/{chat}")).json["head"]
        damage_rules(home)
        await _check_refusals(server, chat, action)
        assert (await local("GET", f"/api/chats/{chat}")).json["head"] == head
        assert len((await local("GET", "/api/chats")).json["chats"]) == 1
        assert (await local("POST", f"/api/chats/{chat}/interrupt")).status == 200, "a stop needs no rules"


async def _check_refusals(server: Server, chat: str, action: dict[str, str]) -> None:
    decision = {"decision": "allow", "hash": action["hash"]}
    for method, path, body in (
        ("POST", "/api/chats", {"content": "Another."}),
        ("POST", f"/api/chats/{chat}/messages", {"content": "More."}),
        ("POST", f"/api/chats/{chat}/approvals/{action['action']}", decision),
        ("POST", f"/api/chats/{chat}/extend", {"turns": 5}),
    ):
        refused = await server.local(method, path, body)
        assert (refused.status, refused.code) == (400, "config"), path
        assert "rules.json is damaged" in refused.json["error"]["message"]


async def test_more_turns_need_rules_that_can_be_read_and_an_undo_does_not(stage: Stage, tmp_path: Path) -> None:
    home, project = tmp_path / "home", tmp_path / "project"
    home.mkdir()
    project.mkdir()
    steps = [Call("write_file", path="f", content="x"), Say("Done."), Call("write_file", path=".env", content="y")]
    chat = stage.agent(steps, builtin=True, home=home).chat(root=str(project), interactive=True)
    await play(chat.send("Go."))
    await play(chat.send("More."))  # its run waits for an approval
    damage_rules(home)
    with pytest.raises(ConfigError, match=r"rules\.json is damaged"):
        await chat.command(c.ExtendTurns(5))
    await chat.interrupt()
    (home / "rules.json").unlink()
    await play(chat.resume())
    damage_rules(home)
    undone = await chat.files.undo()
    assert [file.path for file in undone.files] == ["f"]
    assert not (project / "f").exists()
