"""Changes of files over HTTP: seen by hunk, undone, redone, kept; going back (A-06, W-02 to W-04, L-09)."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.homes import seed
from tests.scenario.command_line import CommandLine
from tests.scenario.http_kit import Client, Server, serving
from treadle import Agent, ScriptedModel
from treadle.adapters.models.scripted import Call, Hang, Say, Turn
from treadle.adapters.stores.sqlite import SqliteStore
from treadle.client import Client as RealClient
from treadle.client import sync as without_async
from treadle.errors import ApiError
from treadle.frontends.server.routes import changes
from treadle.ports.store import Store
from treadle.protocol.options import ChatOptions

pytestmark = pytest.mark.thorough(one_of=8)

LINES = [f"line {number}\n" for number in range(1, 21)]
WORK: list[Any] = [
    [
        Call("edit_file", path="a.txt", old_str="line 2\n", new_str="two\n"),
        Call("edit_file", path="a.txt", old_str="line 18\n", new_str="eighteen\n"),
        Call("write_file", path="made/new.txt", content="agent\n"),
    ],
    Say("Done."),
    [Call("write_file", path="b.txt", content="more\n")],
    Say("More."),
    Turn((Say("Never"), Hang())),
]

WORK_AS_SCRIPT = """
[[turn]]
call = [
    { name = "edit_file", args = { path = "a.txt", old_str = "line 2\\n", new_str = "two\\n" } },
    { name = "write_file", args = { path = "made/new.txt", content = "agent\\n" } },
]
[[turn]]
text = "Done."
"""


def text(*edits: tuple[int, str]) -> str:
    lines = list(LINES)
    for number, line in edits:
        lines[number - 1] = line
    return "".join(lines)


OLD, NEW = text(), text((2, "two\n"), (18, "eighteen\n"))


class Place(NamedTuple):
    server: Server
    project: Path
    chat: str

    @property
    def local(self) -> Client:
        return self.server.local

    @property
    def at(self) -> str:
        return f"/api/chats/{self.chat}"

    def a(self) -> str:
        return (self.project / "a.txt").read_text()


async def begin(client: Client, project: Path) -> str:
    chat = await client.create("Do the work.", root=str(project))
    await client.until(chat, "session.idle")
    assert (project / "a.txt").read_text() == NEW
    return chat


def prepare(folder: Path) -> Path:
    project = folder / "project"
    project.mkdir()
    (project / "a.txt").write_text(OLD)
    return project


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    """A chat whose first run has made two hunks in one file, and a new file in a new folder."""
    project = prepare(tmp_path)
    model = ScriptedModel(WORK, follow="calls")
    async with serving(SqliteStore(tmp_path / "treadle.db"), tmp_path, model, builtin=True) as server:
        yield Place(server, project, await begin(server.local, project))


async def test_changes_are_seen_by_hunk(place: Place) -> None:  # W-04
    change_list = (await place.local("GET", f"{place.at}/changes")).json
    assert change_list["total"] == 2
    by_path = {file["path"]: file for file in change_list["files"]}
    assert list(by_path) == ["a.txt", "made/new.txt"]
    a = by_path["a.txt"]
    assert (a["action"], a["added"], a["removed"], a["cut"]) == ("modified", 2, 2, False)
    assert [hunk["number"] for hunk in a["hunks"]] == [1, 2]
    assert {"-line 2", "+two"} <= set(a["hunks"][0]["lines"])
    assert by_path["made/new.txt"]["action"] == "created"
    one = (await place.local("GET", f"{place.at}/changes?limit=1&after=1")).json
    assert ([file["path"] for file in one["files"]], one["total"]) == (["made/new.txt"], 2)
    one = (await place.local("GET", f"{place.at}/changes?path=made/../made/")).json
    assert ([file["path"] for file in one["files"]], one["total"]) == (["made/new.txt"], 1)
    runs = (await place.local("GET", f"{place.at}/runs")).json
    assert [(run["run"], run["content"]) for run in runs["runs"]] == [(1, "Do the work.")]
    for query, code in (("run=2", "invalid_input"), ("run=x", "bad_request"), ("path=../x", "outside_root")):
        refused = await place.local("GET", f"{place.at}/changes?{query}")
        assert (refused.status, refused.code) == (400, code)


async def test_what_is_no_utf8_is_seen_too(tmp_path: Path) -> None:
    project = prepare(tmp_path)
    (project / "old.txt").write_bytes(b"caf\xe9\n")
    steps = [[Call("run_command", command="printf 'th\\351\\n' >> old.txt")], Say("Done.")]
    options = ChatOptions(model="scripted:test", auto_approve_commands=True, summarize=False, verify=False)
    async with serving(
        SqliteStore(tmp_path / "t.db"), seed(tmp_path / "home"), steps, builtin=True, options=options
    ) as server:
        chat = await server.local.create("Write.", root=str(project))
        await server.local.until(chat, "session.idle")
        (changed_file,) = (await server.local("GET", f"/api/chats/{chat}/changes")).json["files"]
        assert changed_file["hunks"][0]["lines"] == [" caf\ufffd", "+th\ufffd"]


@pytest.mark.thorough(one_of=8)
async def test_an_undo_of_very_many_files_lists_them_all(tmp_path: Path) -> None:  # W-02, D-06
    project = prepare(tmp_path)
    steps = [[Call("run_command", command="mkdir d && for i in $(seq 1 250); do echo $i > d/f$i; done")], Say("Done.")]
    options = ChatOptions(model="scripted:test", auto_approve_commands=True, summarize=False, verify=False)
    async with serving(
        SqliteStore(tmp_path / "t.db"), seed(tmp_path / "home"), steps, builtin=True, options=options
    ) as server:
        chat = await server.local.create("Write.", root=str(project))
        await server.local.until(chat, "session.idle")
        assert (await server.local("GET", f"/api/chats/{chat}/changes?limit=1")).json["total"] == 250
        undo_result = (await server.local("POST", f"/api/chats/{chat}/undo?wait=60")).json
        assert (undo_result["total"], len(undo_result["files"])) == (250, 251)
        assert not (project / "d").exists()


async def test_undo_redo_and_what_it_says(place: Place) -> None:  # W-02
    old_log = await place.local.log(place.chat)
    plan = (await place.local("POST", f"{place.at}/undo", {"preview": True})).json
    assert (plan["preview"], plan["total"], plan["conflicts"]) == (True, 2, [])
    assert place.a() == NEW
    assert await place.local.log(place.chat) == old_log
    response = await place.local("POST", f"{place.at}/undo?wait=60")
    assert response.status == 200
    assert {file["path"] for file in response.json["files"]} == {"a.txt", "made", "made/new.txt"}
    assert response.json["total"] == 2  # a folder is no file
    assert (response.json["error"], place.a(), (place.project / "made").exists()) == ("", OLD, False)
    undone = [event for event in await place.local.log(place.chat) if event["type"] == "workspace.undone"]
    assert [event["data"]["restore"] for event in undone] == [response.json["restore"]]
    assert (await place.local("GET", f"{place.at}/changes")).json["files"] == []
    again = await place.local("POST", f"{place.at}/redo?wait=60", {"undo": response.json["restore"]})
    assert (again.status, place.a()) == (200, NEW)
    none = await place.local("POST", f"{place.at}/redo", {})
    assert (none.status, none.code) == (400, "invalid_input")


async def test_hunks_are_kept_and_undone(place: Place) -> None:  # W-03
    keep_response = await place.local("POST", f"{place.at}/keep?wait=60", {"hunks": {"a.txt": [1]}})
    assert (keep_response.status, keep_response.json["error"]) == (200, "")
    (remaining_file,) = (await place.local("GET", f"{place.at}/changes?path=a.txt")).json["files"]
    assert "+eighteen" in remaining_file["hunks"][0]["lines"]
    assert len(remaining_file["hunks"]) == 1
    undo_response = await place.local("POST", f"{place.at}/undo?wait=60", {"hunks": {"./a.txt": [1]}})
    assert (undo_response.status, undo_response.json["error"]) == (200, "")
    assert place.a() == text((2, "two\n"))
    assert (place.project / "made/new.txt").exists()
    await place.local("POST", f"{place.at}/undo?wait=60", {"run": "all", "even_kept": True})
    assert place.a() == OLD


async def test_what_somebody_changed_since_is_left_alone_or_merged(place: Place) -> None:  # W-02
    (place.project / "a.txt").write_text(text((2, "two\n"), (10, "mine\n"), (18, "eighteen\n")))
    undo_result = (await place.local("POST", f"{place.at}/undo?wait=60", {"paths": ["a.txt"]})).json
    assert ([conflict["path"] for conflict in undo_result["conflicts"]], undo_result["files"]) == (["a.txt"], [])
    undo_result = (await place.local("POST", f"{place.at}/undo?wait=60", {"paths": ["a.txt"], "merge": True})).json
    assert undo_result["conflicts"] == []
    assert place.a() == text((10, "mine\n"))


async def test_the_same_undo_again_gets_the_first_answer(place: Place) -> None:
    key = {"idempotency-key": "u1"}
    posts = [place.local("POST", f"{place.at}/undo?wait=60", {}, headers=key) for _ in range(5)]
    answers = await asyncio.gather(*posts)
    assert {answer.status for answer in answers} == {200}
    assert len({answer.json["restore"] for answer in answers}) == 1
    first = await place.local("POST", f"{place.at}/undo", {}, headers=key)
    assert (first.status, first.json["restore"]) == (202, answers[0].json["restore"])
    assert (await place.local("POST", f"{place.at}/undo", {"merge": True}, headers=key)).status == 422
    log = await place.local.log(place.chat)
    assert [event["type"] for event in log].count("workspace.undone") == 1


async def test_a_killed_undo_is_completed_before_anything_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # W-02, fault 3
    all_there = asyncio.Barrier(3)
    recorded = changes._wait_for_outcome

    async def wait_and_record(*arguments: Any) -> Any:
        await all_there.wait()
        return await recorded(*arguments)

    monkeypatch.setattr(changes, "_wait_for_outcome", wait_and_record)
    cli = CommandLine(tmp_path)
    (cli.project / "a.txt").write_text(OLD)
    assert cli("run", "Do the work.", "--model", cli.script(WORK_AS_SCRIPT)).code == 0
    assert cli("undo", env={"TREADLE_FAULTS": "kill@transaction.put"}).code < 0
    (database,) = cli.home.glob("*.db")
    async with serving(SqliteStore(database), cli.home, WORK, works=False, builtin=True) as server:
        ((chat,),) = [[each["id"] for each in (await server.local("GET", "/api/chats")).json["chats"]]]
        at = f"/api/chats/{chat}"
        requests = [
            asyncio.create_task(server.local("POST", f"{at}/undo", body, headers={"idempotency-key": key}))
            for body, key in (({}, "u1"), ({"preview": True}, "u2"))
        ]
        await all_there.wait()  # both came while it was not completed yet
        server.agent.worker.start(chat)
        again, preview = [await each for each in requests]
        assert again.status == 200, again.data
        assert {file["path"] for file in again.json["files"]} == {"a.txt", "made", "made/new.txt"}
        assert ((cli.project / "a.txt").read_text(), (cli.project / "made").exists()) == (OLD, False)
        assert (preview.json["preview"], preview.json["total"]) == (True, 0)
        log = await server.local.log(chat)
        assert [event["type"] for event in log].count("workspace.undone") == 1
        repeat = await server.local("POST", f"{at}/undo", {}, headers={"idempotency-key": "u1"})
        assert (repeat.status, repeat.data) == (200, again.data)


async def test_what_is_refused_changes_nothing(place: Place) -> None:
    wrong: list[tuple[str, Any, str]] = [
        ("undo", {"run": 7}, "invalid_input"),
        ("undo", {"run": 1, "since": 2}, "invalid_input"),
        ("undo", {"paths": ["a.txt"], "hunks": {"a.txt": [1]}}, "invalid_input"),
        ("undo", {"paths": ["/etc/passwd"]}, "outside_root"),
        ("undo", {"hunks": {"a.txt": [9]}, "preview": True}, "tool"),
        ("undo", {"hunks": {"a.txt": [0]}}, "invalid_json"),
        ("keep", {"paths": [""]}, "invalid_json"),
        ("back", {"message": 2, "conversation": False, "files": False}, "invalid_input"),
        ("back", {}, "invalid_json"),
    ]
    old_log = await place.local.log(place.chat)
    for route, body, code in wrong:
        refused = await place.local("POST", f"{place.at}/{route}", body)
        assert (refused.status, refused.code) == (400, code), (route, body)
    response = await place.local("POST", f"{place.at}/back", {"message": 3})
    assert (response.status, response.code) == (404, "no_such_message")
    assert await place.local.log(place.chat) == old_log
    assert place.a() == NEW
    await place.local("PATCH", place.at, {"archived": True})
    assert (await place.local("POST", f"{place.at}/undo")).code == "archived"


async def test_a_chat_that_works_is_not_restored(place: Place) -> None:
    for content in ("More.", "And more."):
        sent_message = (await place.local("POST", f"{place.at}/messages", {"content": content})).json
        if content == "More.":
            await place.local.until(place.chat, "session.idle", after_seq=sent_message["head"])
    await place.local.until(place.chat, "assistant.message_delta", after_seq=sent_message["head"])
    busy = await place.local("POST", f"{place.at}/undo?wait=60")
    assert (busy.status, busy.code) == (409, "busy")
    assert (await place.local("POST", f"{place.at}/undo", {"preview": True})).status == 200
    assert (await place.local("POST", f"{place.at}/interrupt")).status == 200


async def test_back_to_an_earlier_message(place: Place) -> None:  # W-03, L-09
    sent_message = (await place.local("POST", f"{place.at}/messages", {"content": "More."})).json
    await place.local.until(place.chat, "session.idle", after_seq=sent_message["head"])
    assert (place.project / "b.txt").exists()
    messages = (await place.local("GET", f"{place.at}/messages")).json["messages"]
    first, second = [message["seq"] for message in messages if message["role"] == "user"]
    back_response = await place.local("POST", f"{place.at}/back?wait=60", {"message": second, "files": False})
    assert (back_response.status, back_response.json["restore"]) == (200, "")
    assert (place.project / "b.txt").exists()
    assert len((await place.local("GET", f"{place.at}/messages")).json["messages"]) == 4
    full_response = await place.local("POST", f"{place.at}/back?wait=60", {"message": first})
    assert (full_response.status, place.a(), (place.project / "b.txt").exists()) == (200, OLD, False)
    assert (await place.local("GET", f"{place.at}/messages")).json["messages"] == []


async def test_an_edit_that_takes_the_files_back_first(place: Place) -> None:  # L-09
    first = (await place.local("GET", f"{place.at}/messages")).json["messages"][0]["seq"]
    edit_response = await place.local("PUT", f"{place.at}/messages/{first}", {"content": "Otherwise.", "files": True})
    assert (edit_response.status, bool(edit_response.json["restore"])) == (200, True)
    await place.local.until(place.chat, "session.idle", after_seq=edit_response.json["head"])
    assert place.a() == OLD
    assert (place.project / "b.txt").read_text() == "more\n"


@pytest.mark.thorough(one_of=8)
async def test_very_much_is_cut(tmp_path: Path) -> None:
    project = prepare(tmp_path)
    long = "x" * 1023 + "\n"
    steps = [[Call("write_file", path=f"{name}.txt", content=long * 700) for name in "xyz"], Say("Done.")]
    async with serving(SqliteStore(tmp_path / "t.db"), tmp_path, steps, builtin=True) as server:
        chat = await server.local.create("Write.", root=str(project))
        await server.local.until(chat, "session.idle")
        reply = await server.local("GET", f"/api/chats/{chat}/changes")
        assert len(reply.data) < 2 << 20
        assert [(file["added"], file["cut"]) for file in reply.json["files"]] == [
            (700, False),
            (700, True),
            (700, True),
        ]
        one = (await server.local("GET", f"/api/chats/{chat}/changes?path=y.txt")).json
        assert [file["cut"] for file in one["files"]] == [False]


async def test_a_worker_elsewhere_carries_it_out(open_shared: Callable[[], Store], tmp_path: Path) -> None:
    project = prepare(tmp_path)
    options = ChatOptions(model="scripted:test", interactive=True, summarize=False, verify=False)
    async with serving(open_shared(), tmp_path, WORK, works=False, builtin=True) as server:
        local = server.local
        async with Agent(open_shared(), model=ScriptedModel(WORK), options=options, home=tmp_path) as other_agent:
            chat = await local.create("Do the work.", root=str(project))
            other_agent.worker.start(chat)  # type: ignore[arg-type]
            await local.until(chat, "session.idle")
            assert (await local("GET", f"/api/chats/{chat}/changes")).json["total"] == 2
            undo_response = await local("POST", f"/api/chats/{chat}/undo")
            assert (undo_response.status, undo_response.json["status"]) == (202, "pending")
            other_agent.worker.start(chat)  # type: ignore[arg-type]
            events = await local.until(chat, "workspace.undone", after_seq=undo_response.json["head"])
            assert events[-1]["data"]["restore"] == undo_response.json["restore"]
            assert (project / "a.txt").read_text() == OLD
            waiting = asyncio.create_task(local("POST", f"/api/chats/{chat}/redo?wait=60"))
            await local.until(chat, "workspace.restore_requested", after_seq=events[-1]["seq"])
            other_agent.worker.start(chat)  # type: ignore[arg-type]
            assert (await waiting).status == 200
            assert (project / "a.txt").read_text() == NEW


async def test_a_project_on_another_machine(tmp_path: Path) -> None:
    """The answer has the data in the log, but none that only the other machine has."""
    project = prepare(tmp_path)
    model = ScriptedModel(WORK, follow="calls")
    async with serving(SqliteStore(tmp_path / "t.db"), tmp_path, model, builtin=True) as server:
        chat = await begin(server.local, project)
    project.rename(tmp_path / "gone")
    async with serving(SqliteStore(tmp_path / "t.db"), tmp_path / "home", model, works=False, builtin=True) as server:
        local = server.local
        response = await local("GET", f"/api/chats/{chat}/changes")
        assert [file["path"] for file in response.json["files"]] == ["a.txt", "made/new.txt"]
        plan = await local("POST", f"/api/chats/{chat}/undo", {"preview": True})
        assert (plan.status, plan.code) == (400, "tool")


# -- the client -------------------------------------------------------------------------------------------------------


async def test_with_the_client(place: Place) -> None:
    async with RealClient(place.server.address, place.local.token) as client:
        files = client.chat(place.chat).files
        assert [run.content for run in await files.runs()] == ["Do the work."]
        (a,) = await files.changes(path="a.txt")
        assert [hunk.number for hunk in a.hunks] == [1, 2]
        assert (await files.preview(paths=["a.txt"])).total == 1
        assert place.a() == NEW
        undo_result = await files.undo(hunks={"a.txt": [2]})
        assert (undo_result.status, undo_result.error, place.a()) == ("", "", text((2, "two\n")))
        await files.redo(undo_result.restore)
        assert place.a() == NEW
        await files.keep(paths=["made"])
        assert [file.path for file in await files.changes()] == ["a.txt"]
        (run,) = await files.runs()
        back = await files.back_to(run.message)
        assert {file.path for file in back.files} == {"a.txt"}
        assert place.a() == OLD
        with pytest.raises(ApiError) as refused:
            await files.undo(run=9)
        assert refused.value.reason == "invalid_input"


async def test_with_the_client_without_async(place: Place) -> None:
    def work() -> tuple[int, str, int, int]:
        with without_async.Client(place.server.address, place.local.token) as client:
            files = client.chat(place.chat).files
            change_count = len(files.changes("all"))
            files.keep(paths=["made"])
            undo_result = files.undo()
            files.redo()
            back = files.back_to(files.runs()[0].message, conversation=False)
            return change_count, undo_result.error, files.preview().total, len(back.files)

    assert await asyncio.to_thread(work) == (2, "", 0, 1)
    assert place.a() == OLD
