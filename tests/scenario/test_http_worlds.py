"""Isolation for teams (W-11, W-12, S-13): on a server, runs of several people on one project do not touch it, nor each
other, until one of them commits; no user sees the worlds of others."""

from pathlib import Path

import pytest

from tests.homes import seed
from tests.scenario.family import ByTask
from tests.scenario.http_kit import serving
from tests.scenario.kit import of
from treadle.adapters.models.scripted import Call, Say
from treadle.adapters.stores.sqlite import SqliteStore
from treadle.frontends.server.admission import Admission
from treadle.protocol.events import ExecutionComplete
from treadle.protocol.options import ChatOptions

pytestmark = pytest.mark.thorough(one_of=8)

STEPS = [Call("write_file", path="a.txt", content="made\n"), Say("Done.")] * 2


async def test_what_people_do_in_their_worlds_stays_there_until_it_is_committed(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    store = SqliteStore(tmp_path / "treadle.db")
    options = ChatOptions(model="scripted:x", world="chat")
    home = seed(tmp_path / "home")
    admission = Admission(options, roots=(str(tmp_path),))
    async with serving(store, home, STEPS, builtin=True, options=options, admission=admission) as server:
        alice, bob = server.user("alice"), server.user("bob")
        for user in (alice, bob):
            chat = await user.create("Go.", root=str(project))
            await user.until(chat, "session.idle")
        assert not (project / "a.txt").exists()
        (hers,) = (await alice("GET", "/api/worlds")).json["worlds"]
        (his,) = (await bob("GET", "/api/worlds")).json["worlds"]
        assert (await bob("GET", f"/api/worlds/{hers['id']}")).status == 404
        assert (await bob("POST", f"/api/worlds/{hers['id']}/drop", {})).status == 404
        refused = await bob("POST", "/api/chats", {"root": str(project), "world": hers["id"]})
        assert (refused.status, refused.code) == (400, "invalid_input")
        assert (await bob("POST", "/api/chats", {"root": str(project), "world": ""})).code == "invalid_input"
        for root in (str(project), ""):  # out of the world, by naming the root again
            assert (await bob("PATCH", f"/api/chats/{chat}", {"root": root})).code == "invalid_input"
        world_view = (await alice("GET", f"/api/worlds/{hers['id']}")).json
        assert [file["path"] for file in world_view["files"]] == ["a.txt"]
        assert "+made" in world_view["diff"]
        committed = await alice("POST", f"/api/worlds/{hers['id']}/commit", {})
        assert committed.status == 201
        await alice.until(committed.json["id"], "session.idle")
        assert (project / "a.txt").read_text() == "made\n"
        more = await alice("POST", f"/api/chats/{committed.json['id']}/messages", {"content": "More."})
        assert (more.status, more.code) == (400, "invalid_input")  # only a commit touches the project
        assert (await alice("POST", f"/api/chats/{committed.json['id']}/undo?wait=60")).status == 200
        assert not (project / "a.txt").exists()
        assert (await bob("POST", f"/api/worlds/{his['id']}/rebase", {})).status == 200
        assert (await bob("POST", f"/api/worlds/{his['id']}/drop", {})).status == 200
        assert (await bob("GET", "/api/worlds")).json["worlds"] == []


async def test_a_sub_agent_of_a_user_gets_nothing_of_the_operators_and_its_world_is_hers(tmp_path: Path) -> None:
    project = tmp_path / "served" / "project"
    project.mkdir(parents=True)
    (tmp_path / "AGENTS.md").write_text("Words above what is served.")
    home = seed(tmp_path / "home")
    skill = home / "skills" / "own" / "SKILL.md"
    skill.parent.mkdir(parents=True)
    skill.write_text("---\nname: own\ndescription: Of the operator.\n---\nSecret ways.\n")
    options = ChatOptions(model="scripted:x")
    admission = Admission(options, roots=(str(project.parent),))
    (home / "agents").mkdir()
    (home / "agents" / "mine.md").write_text("---\nname: mine\n---\nSecret words.\n")
    tries = [Call("delegate", tasks=[{"task": "Write.", **more}]) for more in ({"agent": "mine"}, {})]
    model = ByTask({"Go": [*tries, Say("Both done.")], "Write": STEPS[:2]})
    store = SqliteStore(tmp_path / "treadle.db")
    async with serving(store, home, model, builtin=True, options=options, admission=admission) as server:
        alice = server.user("alice")
        chat = await alice.create("Go.", root=str(project))
        await alice.until(chat, "session.idle")
        (child,) = (await alice("GET", f"/api/chats/{chat}/children")).json["children"]
        results = of(await server.agent.chat(chat).events(), ExecutionComplete)
        assert "There is no custom agent 'mine'" in results[0].error
        (world,) = (await alice("GET", "/api/worlds")).json["worlds"]
        assert world["id"] == child["world"]
        state = await server.agent.chat(child["chat"]).state()
        assert (state.options.skills, state.options.instructions) == ((), "")
        assert (project / "a.txt").read_text() == "made\n"
