"""A chat is bound to the folder that its root was when it was made, not to a path (S-01, S-13): a file or folder
that any user puts in its place is neither read nor written. Naming the root again binds the chat anew."""

import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.scenario.http_kit import Client, Server, serving
from treadle import Agent, ScriptedModel
from treadle.adapters.models.scripted import Call, Say
from treadle.adapters.stores.sqlite import SqliteStore
from treadle.errors import InvalidInput, RootChanged, RunFailed
from treadle.frontends.server.admission import Admission
from treadle.protocol import commands as c
from treadle.protocol import events as e
from treadle.protocol.options import ChatOptions

SECRET = "the other user's word is heron"
OPTIONS = ChatOptions(model="scripted:test", interactive=True, summarize=False, verify=False)


def link(mine: Path, replacement: Path) -> None:
    mine.rename(mine.with_name("aside"))
    mine.symlink_to(replacement)


def link_above(mine: Path, replacement: Path) -> None:
    mine.parent.rename(mine.parent.with_name("aside"))
    mine.parent.symlink_to(replacement.parent)


def folder(mine: Path, replacement: Path) -> None:
    mine.rename(mine.with_name("aside"))
    replacement.rename(mine)


Swap = Callable[[Path, Path], None]
SWAPS = pytest.mark.parametrize("swap", [link, link_above, folder])


class Places:
    def __init__(self, top: Path) -> None:
        self.top = top
        self.mine = top / "alice" / "work" / "app"
        self.other = top / "bob" / "app"
        for project in (self.mine, self.other):
            project.mkdir(parents=True)
        (self.mine / "a.txt").write_text("mine\n")
        (self.other / "a.txt").write_text(SECRET + "\n")
        (self.other / "AGENTS.md").write_text(SECRET + "\n")


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(tmp_path / "srv")


WORK: list[Any] = [[Call("write_file", path="b.txt", content="made\n")], Say("Done."), Say("Again.")]


@pytest.fixture
async def server(tmp_path: Path, places: Places) -> AsyncIterator[Server]:
    admission = Admission(OPTIONS, roots=(f"{places.top}/{{user}}",))
    store = SqliteStore(tmp_path / "treadle.db")
    async with serving(store, tmp_path, WORK, builtin=True, options=OPTIONS, admission=admission) as running_server:
        yield running_server


async def expect_refusal(client: Client, method: str, path: str, body: Any = None) -> None:
    answer = await client(method, path, body)
    assert (answer.status, answer.code) == (409, "root_changed"), answer.data
    assert SECRET not in answer.data.decode()


@SWAPS
async def test_what_is_put_in_the_place_of_a_root_is_not_served(server: Server, places: Places, swap: Swap) -> None:
    alice = server.user("alice")
    chat = await alice.create("Make b.", root=str(places.mine))
    await alice.until(chat, "session.idle")
    head = (await alice("GET", f"/api/chats/{chat}")).json["head"]
    swap(places.mine, places.other)
    at = f"/api/chats/{chat}"
    await expect_refusal(alice, "GET", f"{at}/files")
    await expect_refusal(alice, "GET", f"{at}/files/content?path=a.txt")
    await expect_refusal(alice, "GET", f"{at}/changes")
    await expect_refusal(alice, "POST", f"{at}/undo", {})
    await expect_refusal(alice, "POST", f"{at}/undo", {"preview": True})
    await expect_refusal(alice, "POST", f"{at}/messages", {"content": "Read a."})
    assert (await alice("GET", at)).json["head"] == head
    assert (await alice("PATCH", at, {"title": "still mine"})).status == 200


async def test_the_owner_binds_a_chat_anew_within_the_open_folders(server: Server, places: Places) -> None:
    alice = server.user("alice")
    chat = await alice.create("Make b.", root=str(places.mine))
    await alice.until(chat, "session.idle")
    link(places.mine, places.other)
    stolen = await alice("PATCH", f"/api/chats/{chat}", {"root": str(places.mine)})
    assert (stolen.status, stolen.code) == (400, "invalid_input")  # it leads to bob's folder
    places.mine.unlink()
    places.mine.mkdir()
    (places.mine / "a.txt").write_text("cloned anew\n")
    await expect_refusal(alice, "GET", f"/api/chats/{chat}/files/content?path=a.txt")
    assert (await alice("PATCH", f"/api/chats/{chat}", {"root": str(places.mine)})).status == 200
    assert (await alice("GET", f"/api/chats/{chat}/files/content?path=a.txt")).data == b"cloned anew\n"


async def test_folders_that_are_open_no_more(tmp_path: Path, server: Server, places: Places) -> None:
    alice = server.user("alice")
    chat = await alice.create("Make b.", root=str(places.mine))
    await alice.until(chat, "session.idle")
    server.service.admission = Admission(OPTIONS, roots=(f"{tmp_path}/elsewhere/{{user}}",))
    for method, path, body in (
        ("GET", "files", None),
        ("POST", "undo", {}),
        ("POST", "messages", {"content": "Go on."}),
    ):
        answer = await alice(method, f"/api/chats/{chat}/{path}", body)
        assert (answer.status, answer.code) == (400, "invalid_input"), path


async def test_instructions_above_what_is_open_are_not_read(server: Server, places: Places) -> None:  # E-03
    (places.top / ".git").mkdir()
    (places.top / "AGENTS.md").write_text(SECRET)
    (places.top / "alice" / "AGENTS.md").write_text("mine to say")
    creation = await server.user("alice")("POST", "/api/chats", {"root": str(places.mine)})
    assert SECRET not in creation.json["options"]["instructions"]


# -- the library, and so the command line ------------------------------------------------------------------------------

TOOLS: list[Call] = [
    Call("read_file", path="a.txt"),
    Call("list_directory", path="."),
    Call("find_files", pattern="*"),
    Call("grep_search", pattern="word"),
    Call("write_file", path="c.txt", content="x"),
    Call("run_command", command="cat a.txt"),
    Call("get_diagnostics", path="a.txt"),
]


def agent_of(tmp_path: Path, steps: list[Any]) -> Agent:
    return Agent(tmp_path / "t.db", model=ScriptedModel(steps), home=tmp_path / "home", options=OPTIONS)


@SWAPS
async def test_a_run_whose_root_was_replaced_ends_before_it_begins(tmp_path: Path, places: Places, swap: Swap) -> None:
    async with agent_of(tmp_path, [Say("Hi.")]) as agent:
        chat = agent.chat(root=str(places.mine), interactive=False)
        await chat.ask("Hello.")
    swap(places.mine, places.other)
    async with agent_of(tmp_path, []) as agent:  # after a restart, too
        events = [each async for each in agent.chat(chat.id).send("Read a.")]
        errors = [each.data for each in events if isinstance(each.data, e.SessionError)]
        assert [error.error_class for error in errors] == ["root_changed"]
        assert not any(isinstance(each.data, e.TurnStart) for each in events)
        with pytest.raises(RootChanged):
            await agent.chat(chat.id).files.preview()


@pytest.mark.thorough(one_of=8)
@SWAPS
async def test_no_tool_follows_a_swap_in_the_middle_of_a_run(tmp_path: Path, places: Places, swap: Swap) -> None:
    steps: list[Any] = [[Call("run_command", command="true")], TOOLS, Say("Done.")]
    async with agent_of(tmp_path, steps) as agent:
        chat = agent.chat(root=str(places.mine), mode="autopilot", auto_approve_commands=True, max_continuations=0)
        results: list[e.ExecutionComplete] = []
        async for envelope in chat.send("Look around."):
            if isinstance(envelope.data, e.ExecutionComplete):
                results.append(envelope.data)
                if len(results) == 1:
                    swap(places.mine, places.other)
        assert len(results) == 1 + len(TOOLS)
        for call, result in zip(TOOLS, results[1:], strict=True):
            assert not result.success, (call, result)
            assert "bound to" in result.error, (call, result)
            assert SECRET not in str(result)
    assert not list(places.top.rglob("c.txt"))


async def test_naming_the_root_again_binds_the_chat_anew(tmp_path: Path, places: Places) -> None:
    async with agent_of(tmp_path, [Say("Hi."), [Call("read_file", path="a.txt")], Say("Read.")]) as agent:
        chat = agent.chat(root=str(places.mine), interactive=False)
        await chat.ask("Hello.")
        places.mine.rename(places.mine.with_name("aside"))
        places.mine.mkdir()
        (places.mine / "a.txt").write_text("cloned anew\n")
        with pytest.raises(RunFailed):
            await chat.ask("Read a.")
        again = agent.chat(chat.id, root=str(places.mine))
        assert (await again.ask("Read a.")).text == "Read."
        log = [each.data for each in await again.events()]
        assert any(isinstance(each, e.ExecutionComplete) and "cloned anew" in each.result for each in log)


async def test_a_root_that_nobody_saw_is_bound_where_it_is_first_used(tmp_path: Path, places: Places) -> None:
    missing = places.top / "later"
    async with agent_of(tmp_path, [Say("Hi."), Say("Again.")]) as agent:
        chat = agent.chat(root=str(missing), interactive=False)
        await chat.ask("Hello.")
        assert (await chat.state()).options.root_id == ""
        missing.mkdir()
        await chat.ask("Again.")
        assert (await chat.state()).options.root_id
        await chat.command(c.ChangeOptions({"root": str(places.mine)}))
        assert (await chat.state()).options.root_id == ""  # another root is another folder


async def test_a_root_whose_name_cannot_be_recorded_is_refused(server: Server, places: Places) -> None:  # S-01
    odd = os.fsencode(places.mine) + b"\xff"
    os.mkdir(odd)
    async with Agent(model=ScriptedModel([Say("Done.")])) as agent:
        with pytest.raises(InvalidInput, match="not valid UTF-8"):
            agent.chat(root=os.fsdecode(odd))
        chat = agent.chat(root=places.mine)
        with pytest.raises(InvalidInput, match="not valid UTF-8"):
            agent.chat(chat.id, root=os.fsdecode(odd))
    linked = places.mine.with_name("linked")
    linked.symlink_to(os.fsdecode(odd))
    answer = await server.user("alice")("POST", "/api/chats", {"root": str(linked)})
    assert (answer.status, answer.code) == (400, "invalid_input")
    assert "not valid UTF-8" in answer.data.decode()
