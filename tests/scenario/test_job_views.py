"""A background command runs on a view of the project: its changes are judged, shown, committed and undone like the
changes of any command, when it ends, is stopped, or the model asks for it (W-08 to W-10, S-16, S-19; faults 31, 41)."""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.scenario.kit import of, play
from tests.unit.adapters.tools.builtin.command.viewing import sandbox_with_views
from treadle import Agent, Chat
from treadle.adapters.models.scripted import Call, Say, ScriptedModel
from treadle.adapters.sandbox.supervisor import folder as supervisor_folder
from treadle.adapters.tools.builtin.command import background, project
from treadle.protocol import events as e
from treadle.protocol.permissions import Rule

pytestmark = pytest.mark.thorough(one_of=8)

STEPS = 'while read -r line; do eval "$line"; echo "done $line"; done'
"""A program that does what is written to it, line by line."""


class Scene:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.project = folder / "project"
        self.project.mkdir()
        self.agents: list[Agent] = []

    def agent(self, *steps: Any) -> Agent:
        home = self.folder / "home"
        home.mkdir(exist_ok=True)
        new_agent = Agent(home / "chats.db", model=ScriptedModel([*steps], follow="calls"), home=home)
        self.agents.append(new_agent)
        return new_agent

    async def play(self, *steps: Any, mode: str = "ask", **options: Any) -> tuple[Chat, list[Any]]:
        """A run of a new chat with these steps."""
        options = {"interactive": True, **options}
        chat = self.agent(*steps).chat(root=str(self.project), mode=mode, **options)  # type: ignore[arg-type]
        return chat, await play(chat.send("Go."))

    async def again(self, chat: Chat, *steps: Any) -> tuple[Chat, list[Any]]:
        """The next run of a chat, in another process."""
        same_chat = self.agent(*steps).chat(chat.id)
        return same_chat, await play(same_chat.send("Go on."))

    async def close(self) -> None:
        for agent in self.agents:
            for job in await agent.jobs():
                if job.view.status == "running":
                    await job.stop()
            await agent.close()


@pytest.fixture
async def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Scene]:
    sandbox_with_views()
    monkeypatch.setattr(background, "ANSWER_S", 30.0)  # it ends with the first news
    new_scene = Scene(tmp_path)
    yield new_scene
    await new_scene.close()


def begin(command: str, **arguments: Any) -> Call:
    return Call("run_command", command=command, background=True, **arguments)


def step(line: str) -> Call:
    return Call("send_input", handle="1.0", text=line)


def check(**arguments: Any) -> Call:
    return Call("check_command", handle="1.0", **arguments)


def results(events: list[Any]) -> list[e.ExecutionComplete]:
    return of(events, e.ExecutionComplete)


def list_changed_paths(events: list[Any]) -> list[list[str]]:
    return [[file.path for file in event.files] for event in of(events, e.FilesChanged)]


async def wait_for_jobs(chat: Chat) -> None:
    async with asyncio.timeout(30):
        while any(job.view.status == "running" for job in await chat.jobs()):  # noqa: ASYNC110 - of other processes
            await asyncio.sleep(0.02)


@pytest.mark.thorough(one_of=8)
async def test_a_job_changes_nothing_before_its_effect_is_committed_by_a_check(scene: Scene) -> None:
    _, events = await scene.play(
        begin("echo made > made; echo up; read -r line"),
        Call("run_command", command="ls -A"),
        Call("stop_command", handle="1.0"),
        Say("Done."),
    )
    start, listed, stopped = results(events)
    assert start.effect == "view"
    assert "made" not in listed.result
    assert "A made" in stopped.result
    assert list_changed_paths(events) == [["made"]]
    assert of(events, e.FilesChanged)[0].source == "view"
    assert [(event.ending, event.by, event.pending) for event in of(events, e.JobEnded)] == [("stopped", "model", 0)]
    assert (scene.project / "made").read_text() == "made\n"


@pytest.mark.thorough(one_of=8)
async def test_a_check_that_finds_it_ended_commits_it_and_undo_takes_it_back(scene: Scene) -> None:
    (scene.project / "kept").write_text("old\n")
    chat, events = await scene.play(begin("echo new > kept; echo made > made"), check(wait_s=20), Say("Done."))
    assert (scene.project / "kept").read_text() == "new\n"
    assert list_changed_paths(events) == [["kept", "made"]]
    await chat.files.undo()
    assert (scene.project / "kept").read_text() == "old\n"
    assert not (scene.project / "made").exists()


@pytest.mark.thorough(one_of=8)
async def test_a_running_job_is_committed_as_it_is_then_and_later_only_what_changed_since(scene: Scene) -> None:
    chat, events = await scene.play(
        begin(STEPS),
        step("echo 1 > one; echo 1 > two"),
        check(commit=True),
        step("echo 2 > two"),
        check(commit=True),
        check(commit=True),
        Say("Goes on."),
        mode="autopilot",
    )
    assert list_changed_paths(events) == [["one", "two"], ["two"]]
    assert ["[nothing to commit]" in result.result for result in results(events)] == [False] * 5 + [True]
    assert (scene.project / "two").read_text() == "2\n"
    (scene.project / "one").write_text("mine\n")  # a person edits what was committed
    _, events = await scene.again(chat, step("echo 3 > three; rm two"), check(commit=True), Say("More."))
    assert list_changed_paths(events) == [["three", "two"]]
    assert (scene.project / "one").read_text() == "mine\n"
    assert not (scene.project / "two").exists()
    _, events = await scene.again(chat, step("echo 4 > one"), check(commit=True), Say("More."))
    assert "others changed the same files" in results(events)[-1].error
    assert (scene.project / "one").read_text() == "mine\n"
    _, events = await scene.again(chat, step("rm one; rm three"), Call("stop_command", handle="1.0"), Say("End."))
    assert (scene.project / "one").read_text() == "mine\n"


@pytest.mark.thorough(one_of=8)
async def test_folders_that_a_running_job_makes_and_removes_between_commits(scene: Scene) -> None:
    (scene.project / "d").mkdir()
    (scene.project / "d/old").write_text("old\n")
    chat, events = await scene.play(
        begin(STEPS),
        step("rm -r d; mkdir d; echo 1 > d/new; mkdir n; echo 1 > n/x"),
        check(commit=True),
        Say("Goes on."),
        mode="autopilot",
    )
    assert list_changed_paths(events) == [["d/new", "d/old", "n", "n/x"]]
    (scene.project / "d/mine").write_text("mine\n")
    _, events = await scene.again(chat, step("rm d/new; rm -r n"), check(commit=True), Say("More."))
    assert sorted(list_changed_paths(events)[0]) == ["d/new", "n", "n/x"]
    assert (scene.project / "d/mine").read_text() == "mine\n"
    assert not (scene.project / "n").exists()
    (scene.project / "d/new").write_text("mine, too\n")  # the job's removal was committed: this is a person's file
    _, events = await scene.again(chat, Call("stop_command", handle="1.0"), Say("End."))
    assert list_changed_paths(events) == []
    assert (scene.project / "d/new").read_text() == "mine, too\n"


@pytest.mark.thorough(one_of=8)
async def test_a_running_job_replaces_a_committed_file_by_a_folder(scene: Scene) -> None:  # W-08, W-10
    _, events = await scene.play(
        begin(STEPS),
        step("echo 1 > d"),
        check(commit=True),
        step("rm d; mkdir d; echo 2 > d/x"),
        check(commit=True),
        Say("Goes on."),
        mode="autopilot",
    )
    assert list_changed_paths(events) == [["d"], ["d", "d/x"]]
    assert (scene.project / "d/x").read_text() == "2\n"


@pytest.mark.thorough(one_of=8)
async def test_permissions_that_a_running_job_changes_between_commits(scene: Scene) -> None:  # W-08, W-10
    (scene.project / "old").write_text("old\n")
    _, events = await scene.play(
        begin(STEPS),
        step("chmod 000 old; mkdir d; echo 1 > d/x; chmod 000 d"),
        check(commit=True),
        step("chmod 644 old; chmod 755 d"),
        check(commit=True),
        step("chmod 040 old"),
        check(commit=True),
        Say("Goes on."),
        mode="autopilot",
    )
    assert list_changed_paths(events) == [["d", "d/x", "old"], ["d", "old"], ["old"]]
    assert (scene.project / "d").stat().st_mode & 0o777 == 0o755
    assert (scene.project / "old").stat().st_mode & 0o777 == 0o040


@pytest.mark.thorough(one_of=8)
async def test_a_job_that_never_stops_writing_is_committed_as_it_is_at_that_moment(scene: Scene) -> None:
    _, events = await scene.play(
        begin("while :; do echo line >> log; echo tick; done"), check(wait_s=20, commit=True), Say("Goes on.")
    )
    assert list_changed_paths(events) == [["log"]]
    [file] = of(events, e.FilesChanged)[0].files
    content = (scene.project / "log").read_bytes()
    assert file.after is not None
    assert file.after.digest == hashlib.sha256(content).hexdigest()


@pytest.mark.thorough(one_of=8)
async def test_an_effect_that_raises_a_concern_is_asked_for_with_the_effect_shown(scene: Scene) -> None:
    # S-06, S-08, W-09: the words say nothing of .env
    job = "name=.e; echo A=1 > ${name}nv; echo up; read -r line"
    chat, _ = await scene.play(begin(job), Say("It runs."))
    await wait_for_output(chat, "up")
    chat, events = await scene.again(chat, check(commit=True), Say("Goes on."))
    [request] = of(events, e.PermissionRequested)
    assert "+A=1" in request.shown
    assert job in request.shown
    assert not (scene.project / ".env").exists()
    events = await play(chat.approve(*await chat.actions()))
    assert list_changed_paths(events) == [[".env"]]
    assert (scene.project / ".env").read_text() == "A=1\n"


@pytest.mark.thorough(one_of=8)
async def test_changes_that_a_person_refuses_are_discarded_and_not_asked_for_again(scene: Scene) -> None:  # W-09
    chat, events = await scene.play(begin("n=.e; echo A=1 > ${n}nv"), check(wait_s=20), check(), Say("Well."))
    assert of(events, e.PermissionRequested)
    events = await play(chat.deny(*await chat.actions()))
    assert of(events, e.PermissionRequested) == []
    assert "discarded" in results(events)[-1].result
    assert [job.view.pending for job in await chat.jobs()] == [0]
    outcomes = [(event.outcome, event.by) for event in of(await chat.events(), e.JobSettled)]
    assert outcomes == [("discarded", "person")]
    assert not (scene.project / ".env").exists()


@pytest.mark.thorough(one_of=8)
async def test_refusing_a_commit_of_a_running_job_leaves_what_it_changed_to_the_next_call(scene: Scene) -> None:
    chat, _ = await scene.play(
        begin("n=.e; echo A=1 > ${n}nv; echo up; read -r line"),
        check(wait_s=20, commit=True),
        Call("stop_command", handle="1.0"),
        Say("Well."),
    )
    events = await play(chat.deny(*await chat.actions()))
    assert "A .env" in of(events, e.PermissionRequested)[0].shown
    await play(chat.approve(*await chat.actions()))
    assert (scene.project / ".env").read_text() == "A=1\n"


@pytest.mark.thorough(one_of=8)
async def test_refusing_a_check_whose_effect_was_not_shown_discards_nothing(scene: Scene) -> None:
    rules = (Rule("ask", "check_command"),)
    chat, events = await scene.play(begin("sleep 0.5; echo made > made"), check(wait_s=20), Say("Well."), rules=rules)
    assert "made" not in of(events, e.PermissionRequested)[0].shown
    await wait_for_jobs(chat)
    await play(chat.deny(*await chat.actions()))
    await scene.again(chat, Say("Done."))
    assert (scene.project / "made").read_text() == "made\n"


@pytest.mark.thorough(one_of=8)
async def test_a_person_discards_what_is_pending(scene: Scene) -> None:
    chat, _ = await scene.play(begin("sleep 0.5; n=.e; echo A=1 > ${n}nv"), Say("It runs."))
    await wait_for_jobs(chat)
    [job] = await chat.jobs()
    assert job.view.pending == 1
    assert (await job.discard()).pending == 0
    assert [event.outcome for event in of(await chat.events(), e.JobSettled)] == ["discarded"]
    assert not (scene.project / ".env").exists()


@pytest.mark.thorough(one_of=8)
async def test_nobody_there_to_be_asked_leaves_it_pending(scene: Scene) -> None:
    chat, events = await scene.play(begin("n=.e; echo A=1 > ${n}nv"), check(wait_s=20), Say("Well."), interactive=False)
    assert "not committed: it needs a person's approval" in results(events)[-1].error
    assert [job.view.pending for job in await chat.jobs()] == [1]


@pytest.mark.thorough(one_of=8)
async def test_a_read_only_chat_keeps_nothing_of_it(scene: Scene) -> None:
    chat, events = await scene.play(begin("echo made > made"), check(wait_s=20), Say("Well."), mode="read-only")
    assert "read-only" in results(events)[-1].error
    assert not (scene.project / "made").exists()
    assert [job.view.pending for job in await chat.jobs()] == [0]


@pytest.mark.thorough(one_of=8)
async def test_an_effect_that_nobody_checked_is_pending_and_the_next_run_commits_it_once(scene: Scene) -> None:
    chat, _ = await scene.play(begin("sleep 0.5; echo made > made"), Say("It runs."))
    await wait_for_jobs(chat)
    assert not (scene.project / "made").exists()
    [job] = await scene.agent().chat(chat.id).jobs()
    assert (job.view.status, job.view.pending) == ("exited", 1)
    _, events = await scene.again(chat, Call("check_command"), check(), Say("Done."))
    assert list_changed_paths(await chat.events()) == [["made"]]
    assert [(event.outcome, event.by) for event in of(await chat.events(), e.JobSettled)] == [("committed", "run")]
    assert "not committed" not in results(events)[0].result
    assert (scene.project / "made").read_text() == "made\n"
    await chat.files.undo(paths=["made"])
    assert not (scene.project / "made").exists()


@pytest.mark.thorough(one_of=8)
@pytest.mark.parametrize("safe", [True, False])
async def test_after_a_power_cut_only_an_end_that_is_safe_on_the_disk_counts(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, safe: bool
) -> None:  # fault 41
    chat, _ = await scene.play(begin("sleep 0.5; echo made > made"), Say("It runs."))
    await wait_for_jobs(chat)
    synced = scene.folder / "home" / "commands" / chat.id / "1.0" / "synced"
    async with asyncio.timeout(60):
        while not synced.exists():  # noqa: ASYNC110 - a fact of another process
            await asyncio.sleep(0.02)
    if not safe:
        synced.unlink()
    monkeypatch.setattr(supervisor_folder, "_boot", "after-the-power-cut")
    await scene.again(chat, Say("Done."))
    assert (scene.project / "made").exists() == safe
    outcomes = [event.outcome for event in of(await chat.events(), e.JobSettled)]
    assert outcomes == ["committed" if safe else "discarded"]


@pytest.mark.thorough(one_of=8)
async def test_what_the_next_run_would_have_to_ask_for_stays_pending_and_is_listed(scene: Scene) -> None:
    chat, _ = await scene.play(begin("sleep 0.5; n=.e; echo A=1 > ${n}nv"), Say("It runs."))
    await wait_for_jobs(chat)
    chat, events = await scene.again(chat, Call("check_command"), check(), Say("Done."))
    assert '"1.0" ended, 1 change not committed' in results(events)[0].result
    assert of(events, e.PermissionRequested)
    await play(chat.approve(*await chat.actions()))
    assert (scene.project / ".env").read_text() == "A=1\n"
    assert [job.view.pending for job in await chat.jobs()] == [0]


@pytest.mark.thorough(one_of=8)
async def test_a_terminal_program_runs_on_a_view_too(scene: Scene) -> None:
    _, events = await scene.play(
        Call("run_command", command="tty > /dev/null && echo made > made", pty=True), Say("Done.")
    )
    assert results(events)[0].effect == "view"
    assert list_changed_paths(events) == [["made"]]


# -- judged as it was started -----------------------------------------------------------------------------------------


@pytest.mark.thorough(one_of=8)
@pytest.mark.parametrize("changed_before", [True, False])
async def test_a_job_is_judged_by_the_variables_of_its_start(scene: Scene, changed_before: bool) -> None:  # S-23
    """With a changed PATH the words of a rule do not say which program runs; later changes do not matter."""
    (scene.project / "precious").write_text("the only copy\n")
    (scene.project / "Makefile").write_text("job:\n\trm precious && echo removed\n")
    rules = (Rule("allow", "run_command", "make *"),)
    change = Call("run_command", command='export PATH="$PWD/bin:$PATH"')
    put_back = Call("run_command", command='export PATH="${PATH#*:}"')
    job = begin("make job")
    end = Call("check_command", handle="2.0" if changed_before else "1.0", wait_s=20)
    steps = [change, job, put_back, end] if changed_before else [job, change, end]
    _, events = await scene.play(*steps, Say("Done."), rules=rules)
    requests = of(events, e.PermissionRequested)
    assert [event.call for event in requests] == (["4.0"] if changed_before else []), requests
    assert (scene.project / "precious").exists() is changed_before


async def test_a_job_is_judged_in_the_folder_of_its_start(scene: Scene) -> None:
    (scene.project / "sub").mkdir()
    (scene.project / "sub/notes.md").write_text("old\n")
    rules = (Rule("ask", "edit_file", "sub/**"),)
    _, events = await scene.play(begin("echo new > notes.md", cwd="sub"), check(wait_s=20), Say("Done."), rules=rules)
    assert of(events, e.PermissionRequested)


# -- live -------------------------------------------------------------------------------------------------------------

WATCH = """
import ctypes, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
queue = libc.inotify_init()
assert libc.inotify_add_watch(queue, b"src", 0x2 | 0x80 | 0x100) >= 0  # modified, moved to, created
print("watching", flush=True)
while True:
    data = os.read(queue, 4096)
    while data:
        length = struct.unpack("iIII", data[:16])[3]
        name = data[16 : 16 + length].rstrip(bytes(1)).decode()
        if os.path.exists("src/" + name):
            print("saw", name, open("src/" + name).read().strip(), flush=True)
        data = data[16 + length :]
"""
WRITE = "for f in src/new src/app.py node_modules/c/x .next/y; do echo 1 > $f && echo wrote $f; done; "


async def wait_for_output(chat: Chat, expected: str) -> str:
    [job] = await chat.jobs()
    async with asyncio.timeout(30):
        while expected not in (text := (await job.tail()).text):  # noqa: ASYNC110 - a fact of other processes
            await asyncio.sleep(0.02)
    return text


def lay_out(project: Path) -> None:
    (project / "src").mkdir()
    (project / "src/app.py").write_text("old\n")
    (project / "node_modules/c").mkdir(parents=True)
    (project / ".gitignore").write_text("node_modules/\n")
    (project / "watch.py").write_text(WATCH)


@pytest.mark.thorough(one_of=8)
async def test_a_live_job_sees_edits_by_inotify_and_writes_only_where_it_may(scene: Scene) -> None:
    lay_out(scene.project)
    chat, events = await scene.play(begin(WRITE + "python3 watch.py", live=True, writes=[".next"]), Say("It runs."))
    assert list_changed_paths(events) == [[".next"]]
    output = await wait_for_output(chat, "watching")
    assert "src/new: Read-only file system" in output
    assert "src/app.py: Read-only file system" in output
    assert "wrote node_modules/c/x\nwrote .next/y" in output
    (scene.project / "src/app.py").write_text("edited\n")
    await wait_for_output(chat, "saw app.py edited")
    (scene.project / "src/.app").write_text("replaced\n")
    (scene.project / "src/.app").rename(scene.project / "src/app.py")
    await wait_for_output(chat, "saw app.py replaced")
    assert not list((scene.project / ".next").iterdir())
    _, events = await scene.again(chat, Call("stop_command", handle="1.0"), Say("Stopped."))
    assert list_changed_paths(events) == [[".next/y", "node_modules/c/x"]]
    assert (scene.project / "node_modules/c/x").read_text() == "1\n"
    await chat.files.undo(paths=[".next/y", "node_modules/c/x"])
    assert not (scene.project / "node_modules/c/x").exists()


@pytest.mark.thorough(one_of=8)
async def test_a_live_job_brings_back_no_folder_that_somebody_removed(scene: Scene) -> None:  # W-10
    lay_out(scene.project)
    (scene.project / ".gitignore").write_text("node_modules/\ncache/\n")
    for folder in ("cache/deep", "sub/cache"):
        (scene.project / folder).mkdir(parents=True)
    chat, _ = await scene.play(begin("echo 1 > cache/x && echo wrote; read -r line", live=True), Say("It runs."))
    await wait_for_output(chat, "wrote")
    for folder in ("node_modules/c", "node_modules", "sub/cache", "sub", "cache/deep", "cache"):
        (scene.project / folder).rmdir()
    _, events = await scene.again(chat, Call("stop_command", handle="1.0"), Say("Stopped."))
    assert list_changed_paths(events) == [["cache", "cache/x"]]
    assert (scene.project / "cache/x").read_text() == "1\n"
    assert not (scene.project / "node_modules").exists()
    assert not (scene.project / "sub").exists()
    await chat.files.undo()
    assert not (scene.project / "cache").exists()


@pytest.mark.thorough(one_of=8)
async def test_a_live_job_that_wrote_nothing_brings_nothing_back(scene: Scene) -> None:  # W-10
    lay_out(scene.project)
    chat, _ = await scene.play(begin("echo up; read -r line", live=True), Say("It runs."))
    await wait_for_output(chat, "up")
    (scene.project / "node_modules/c").rmdir()
    (scene.project / "node_modules").rmdir()
    _, events = await scene.again(chat, Call("stop_command", handle="1.0"), Say("Stopped."))
    assert list_changed_paths(events) == []
    assert not (scene.project / "node_modules").exists()


@pytest.mark.thorough(one_of=8)
async def test_a_live_job_says_that_it_cannot_write_to_every_ignored_folder(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:  # W-10
    monkeypatch.setattr(project, "_MOST_LAYERS", 2)
    (scene.project / ".gitignore").write_text("cache/\n__pycache__/\n")
    for name in ("a", "b", "c", "d"):
        for folder in ("cache", "__pycache__"):
            (scene.project / name / folder).mkdir(parents=True)
    command = "for f in */cache; do echo 1 > $f/x && echo wrote $f; done; read -r line"
    chat, events = await scene.play(begin(command, live=True, writes=["d/cache"]), Say("It runs."))
    assert "cannot write to 1 of them" in results(events)[0].result
    text = await wait_for_output(chat, "wrote d/cache")
    assert [name for name in "abcd" if f"wrote {name}/cache" in text] == ["a", "b", "d"]


@pytest.mark.thorough(one_of=8)
@pytest.mark.parametrize("folder", ["src", "../elsewhere", "/tmp", ".git", "src/app.py/x"])
async def test_a_live_job_declares_only_folders_that_are_new_or_ignored(scene: Scene, folder: str) -> None:
    lay_out(scene.project)
    chat, events = await scene.play(begin("true", live=True, writes=[folder]), Say("Well."))
    assert folder in results(events)[0].error
    assert await chat.jobs() == []


@pytest.mark.thorough(one_of=8)
@pytest.mark.parametrize("folder", ["x/.git", ".GIT", "x/.git/hooks", ".treadle/x"])
async def test_a_live_job_makes_no_folder_that_no_view_brings_in(scene: Scene, folder: str) -> None:  # S-16, W-10
    lay_out(scene.project)
    old_entries = sorted(scene.project.iterdir())
    _, events = await scene.play(begin("true", live=True, writes=[folder]), Say("Well."), mode="autopilot")
    assert folder in results(events)[0].error
    assert sorted(scene.project.iterdir()) == old_entries


@pytest.mark.thorough(one_of=8)
async def test_a_live_job_writes_into_a_new_folder_of_an_ignored_one_but_through_no_link(scene: Scene) -> None:
    lay_out(scene.project)
    (scene.project / ".gitignore").write_text("__pycache__/\n")
    (scene.project / "__pycache__").mkdir()
    (scene.project / "__pycache__/link").symlink_to("../src")
    linked, fresh = (
        begin(f"echo 1 > __pycache__/{name}/f && echo wrote", live=True, writes=[f"__pycache__/{name}"])
        for name in ("link", "new")
    )
    _, events = await scene.play(linked, fresh, Say("Well."))
    assert "leads through something that is no folder" in results(events)[0].error
    assert "wrote" in results(events)[1].result
    assert not (scene.project / "src/f").exists()


@pytest.mark.thorough(one_of=8)
async def test_a_folder_for_a_live_job_is_judged_like_any_change(scene: Scene) -> None:
    lay_out(scene.project)
    chat, events = await scene.play(begin("true", live=True, writes=["out/cache"]), Say("Well."), mode="review")
    assert "A out/cache/" in of(events, e.PermissionRequested)[0].shown
    assert not (scene.project / "out").exists()
    events = await play(chat.approve(*await chat.actions()))
    assert list_changed_paths(events) == [["out", "out/cache"]]
    await chat.files.undo()
    assert not (scene.project / "out").exists()


# -- without a view ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("flags", [{"background": True}, {"pty": True}])
@pytest.mark.parametrize("mode", ["ask", "auto-edit", "review", "confirm"])
async def test_without_a_view_it_asks_in_every_mode_but_autopilot(
    scene: Scene, mode: str, flags: dict[str, bool]
) -> None:
    call = Call("run_command", command="ls", **flags)
    options = {"command_view": False, "auto_approve_commands": True}
    _, events = await scene.play(call, Say("Well."), mode=mode, **options)
    [request] = of(events, e.PermissionRequested)
    assert "no copy-on-write view works here" in request.reason


@pytest.mark.thorough(one_of=8)
async def test_without_a_view_the_tree_is_compared_recorded_and_can_be_undone(scene: Scene) -> None:
    (scene.project / "old").write_text("old\n")
    chat, events = await scene.play(
        begin("rm old; echo made > made"), check(wait_s=20), Say("Done."), mode="autopilot", command_view=False
    )
    assert of(events, e.PermissionRequested) == []
    assert list_changed_paths(events) == [["made", "old"]]
    await chat.files.undo(paths=["made", "old"])
    assert (scene.project / "old").read_text() == "old\n"
    assert not (scene.project / "made").exists()
