"""A chat works in a world of its project: files, searches, commands and undo see it, and the project changes when the
world is committed, as one call that can be undone (W-11, W-12)."""

import os
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.scenario.kit import Stage, of, play, until
from tests.trees import tree
from tests.writing import write
from treadle import Chat
from treadle.adapters.models.scripted import Call, Hang, Say
from treadle.adapters.stores.sqlite import SqliteStore
from treadle.errors import Conflict, NotFound, ToolError, WorldBusy
from treadle.library.command_stream import CommandStream
from treadle.library.worlds.home import WorldHome
from treadle.library.worlds.record import WorldFolders
from treadle.protocol import events as e

pytestmark = pytest.mark.thorough(one_of=8)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    project = tmp_path / "project"
    (project / "src").mkdir(parents=True)
    (project / "notes.txt").write_text("one\ntwo\n")
    (project / "src/a.py").write_text("a = 1\n")
    return project


@pytest.fixture
async def solo(tmp_path: Path) -> AsyncIterator[Stage]:
    """On one store: worlds know nothing of stores."""
    new_stage = Stage(SqliteStore(tmp_path / "home" / "chats.db"))
    yield new_stage
    await new_stage.close()


def ran(command: str, **more: object) -> Call:
    return Call("run_command", command=command, **more)


@pytest.mark.thorough(one_of=8)
async def test_nothing_of_the_project_changes_until_the_world_is_committed(stage: Stage, root: Path) -> None:
    steps = [
        Call("write_file", path="new/b.py", content="b = 2\n"),
        ran("cat new/b.py && sed -i s/two/2/ notes.txt && rm src/a.py && pwd"),
        Call("read_file", path="notes.txt"),
        Call("grep_search", pattern="b = 2"),
        Call("find_files", pattern="*.py"),
        Say("Done."),
    ]
    agent = stage.agent(steps, builtin=True)
    old_tree = tree(root)
    world = await agent.worlds.open(root, label="a try")
    chat = agent.chat(root=root, world=world.id)
    events = await play(chat.send("Go."))
    results = [completion.result for completion in of(events, e.ExecutionComplete)]
    assert all(completion.success for completion in of(events, e.ExecutionComplete)), results
    assert "b = 2" in results[1]
    assert str(root) in results[1], "the path that a command sees is the project's own"
    assert "2" in results[2]
    assert "new/b.py" in results[3]
    assert "src/a.py" not in results[4]
    assert tree(root) == old_tree, "the project is as it was"
    assert [each.id for each in await agent.worlds.list()] == [world.id]
    diff = await agent.worlds.diff(world.id)
    assert "-two" in diff
    assert "D src/a.py" in diff
    committed = await agent.worlds.commit(world.id)
    assert {file.path for file in committed.files} == {"new", "new/b.py", "notes.txt", "src/a.py"}
    assert (root / "notes.txt").read_text() == "one\n2\n"
    assert not (await agent.worlds.effect(world.id)).files
    await agent.chat(committed.chat).files.undo()
    assert tree(root) == old_tree, "the undo of a commit is exact"
    assert agent.workspace_of(world.project).read_bytes("notes.txt") == b"one\n2\n", "and leaves the world alone"
    await agent.worlds.drop(world.id)
    assert not await agent.worlds.list()


async def test_undo_inside_a_world_leaves_the_project_alone(solo: Stage, root: Path) -> None:
    agent = solo.agent([Call("write_file", path="notes.txt", content="mine\n"), Say("Done.")], builtin=True)
    world = await agent.worlds.open(root)
    chat = agent.chat(root=root, world=world.id)
    old_tree = tree(root)
    await play(chat.send("Read notes.txt, then change it."))
    (root / "later.txt").write_text("the user's\n")
    await chat.files.undo()
    assert not (await agent.worlds.effect(world.id)).files
    assert tree(root) == {**old_tree, **tree(root)}


async def test_a_background_command_writes_to_the_world(solo: Stage, root: Path) -> None:
    steps = [
        ran("sleep 0.5; echo late > late.txt", background=True),
        Call("check_command", handle="1.0", wait_s=60),
        Say("Ok."),
    ]
    agent = solo.agent(steps, builtin=True)
    world = await agent.worlds.open(root)
    events = await play(agent.chat(root=root, world=world.id).send("Go."))
    assert all(completion.success for completion in of(events, e.ExecutionComplete)), of(events, e.ExecutionComplete)
    assert not (root / "late.txt").exists()
    assert agent.workspace_of(world.project).read_bytes("late.txt") == b"late\n"


async def test_diagnostics_are_those_of_the_world(solo: Stage, root: Path) -> None:
    steps = [
        Call("write_file", path="bad.py", content="def f(:\n"),
        Call("get_diagnostics", path="bad.py"),
        Say("Ok."),
    ]
    agent = solo.agent(steps, builtin=True)
    world = await agent.worlds.open(root)
    events = await play(agent.chat(root=root, world=world.id, diagnose=False).send("Go."))
    assert "bad.py:1:" in of(events, e.ExecutionComplete)[1].result


async def test_what_somebody_changed_meanwhile_is_a_conflict(solo: Stage, root: Path) -> None:
    agent = solo.agent([], builtin=True)
    world = await agent.worlds.open(root)
    write(agent.workspace_of(world.project), "notes.txt", b"the world's\n")
    (root / "notes.txt").write_text("the user's\n")
    with pytest.raises(Conflict, match="others changed"):
        await agent.worlds.commit(world.id)
    assert (root / "notes.txt").read_text() == "the user's\n"


async def test_what_was_changed_and_put_back_is_no_conflict(solo: Stage, root: Path) -> None:  # W-12
    agent = solo.agent([ran("echo more >> notes.txt; rm src/a.py"), Say("Done.")], builtin=True)
    world = await agent.worlds.open(root)
    await play(agent.chat(root=root, world=world.id, auto_approve_commands=True).send("Go."))
    for path in (root / "notes.txt", root / "src/a.py"):
        was = path.read_bytes()
        path.write_text("the user's\n")
        path.write_bytes(was)
    committed = await agent.worlds.commit(world.id)
    assert {file.path for file in committed.files} == {"notes.txt", "src/a.py"}
    assert (root / "notes.txt").read_text() == "one\ntwo\nmore\n"


async def test_a_commit_asks_what_a_direct_change_asks(solo: Stage, root: Path) -> None:  # W-12, S-16
    agent = solo.agent([], builtin=True)
    world = await agent.worlds.open(root)
    write(agent.workspace_of(world.project), ".env", b"A=1\n")
    with pytest.raises(ToolError, match="waits for an approval") as waits:
        await agent.worlds.commit(world.id)
    assert not (root / ".env").exists()
    (chat,) = [each for each in await agent.chats() if each.summary.chat in str(waits.value)]
    (action,) = await agent.chat(chat.summary.chat).actions()
    assert ".env" in action.reason

    async def answer(target_chat: Chat) -> CommandStream | None:
        actions = await target_chat.actions()
        return target_chat.approve(actions[0]) if actions else None

    committed = await agent.worlds.commit(world.id, answer=answer)
    assert [file.path for file in committed.files] == [".env"]


async def test_a_world_of_a_world_is_committed_into_it(solo: Stage, root: Path) -> None:
    agent = solo.agent([], builtin=True)
    old_tree = tree(root)
    outer = await agent.worlds.open(root)
    write(agent.workspace_of(outer.project), "notes.txt", b"outer\n")
    inner = await agent.worlds.open(root, outer.id)
    files = agent.workspace_of(inner.project)
    assert files.read_bytes("notes.txt") == b"outer\n"
    write(files, "src/a.py", b"a = 2\n")
    await agent.worlds.commit(inner.id)
    assert agent.workspace_of(outer.project).read_bytes("src/a.py") == b"a = 2\n"
    assert tree(root) == old_tree
    await agent.worlds.drop(inner.id)
    await agent.worlds.commit(outer.id)
    assert (root / "src/a.py").read_text() == "a = 2\n"


@pytest.mark.parametrize("method", ["overlay", "copy"])
async def test_a_rebase_merges_what_both_changed_and_refuses_what_it_cannot(  # W-13
    solo: Stage, root: Path, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if method == "copy":
        monkeypatch.setattr(WorldHome, "_explain_no_layers", lambda *_: "for a test")
    (root / "notes.txt").write_text("one\ntwo\nthree\nfour\nfive\n")
    steps = [
        Call("read_file", path="notes.txt"),
        Call("edit_file", path="notes.txt", old_text="five", new_text="5"),
        ran("sed -i s/1/2/ src/a.py"),
        Say("Done."),
    ]
    agent = solo.agent(steps, builtin=True)
    world = await agent.worlds.open(root)
    await play(agent.chat(root=root, world=world.id).send("Go."))
    (root / "notes.txt").write_text("ONE\ntwo\nthree\nfour\nfive\n")
    (root / "other.txt").write_text("new\n")
    assert await agent.worlds.rebase(world.id) == ("notes.txt",)
    files = agent.workspace_of(world.project)
    assert files.read_bytes("notes.txt") == b"ONE\ntwo\nthree\nfour\n5\n"
    assert files.read_bytes("other.txt") == b"new\n"
    (root / "src/a.py").write_text("a = 3\n")
    (root / "other.txt").unlink()
    with pytest.raises(Conflict, match=r"src/a\.py"):
        await agent.worlds.rebase(world.id)
    assert files.read_bytes("src/a.py") == b"a = 2\n", "nothing was changed"
    (root / "src/a.py").write_text("a = 1\n")
    assert await agent.worlds.rebase(world.id) == ()
    assert files.inspect("other.txt") is None
    await agent.worlds.commit(world.id)
    assert (root / "notes.txt").read_text() == "ONE\ntwo\nthree\nfour\n5\n"
    assert (root / "src/a.py").read_text() == "a = 2\n"


async def test_a_chat_can_have_a_world_of_its_own(solo: Stage, root: Path) -> None:
    agent = solo.agent(
        [ran("git init -q . && git add -A && git stash list && git status --short"), Say("Done.")], builtin=True
    )
    old_tree = tree(root)
    chat = agent.chat(root=root, world="chat")
    events = await play(chat.send("Go."))
    assert "A  notes.txt" in of(events, e.ExecutionComplete)[0].result
    assert (await chat.state()).options.world in [each.id for each in await agent.worlds.list()]
    assert tree(root) == old_tree


@pytest.mark.parametrize("method", ["overlay", "copy"])
async def test_a_world_in_which_a_command_runs_is_not_dropped(
    solo: Stage, root: Path, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if method == "copy":
        monkeypatch.setattr(WorldHome, "_explain_no_layers", lambda *_: "for a test")
    steps = [
        ran("echo here > mark; echo up; sleep 600", background=True),
        Say("Ok."),
    ]
    agent = solo.agent(steps, builtin=True)
    world = await agent.worlds.open(root)
    chat = agent.chat(root=root, world=world.id)
    await play(chat.send("Go."))
    with pytest.raises(WorldBusy, match="stop them first"):
        await agent.worlds.drop(world.id)
    [job] = await chat.jobs()
    await job.stop()
    await agent.worlds.drop(world.id)
    assert not await agent.worlds.list()


async def test_a_world_in_which_a_chat_works_or_of_which_there_are_worlds_is_not_dropped(
    solo: Stage, root: Path
) -> None:
    agent = solo.agent([(Say("I"), Hang())], builtin=True)
    world = await agent.worlds.open(root)
    chat = agent.chat(root=root, world=world.id)
    await until(chat.send("Go."), lambda event: isinstance(event, e.MessageDelta))
    with pytest.raises(WorldBusy, match=chat.id):
        await agent.worlds.drop(world.id)
    await chat.interrupt()
    await play(chat.resume())
    inner = await agent.worlds.open(root, world.id)
    with pytest.raises(WorldBusy, match=inner.id):
        await agent.worlds.drop(world.id)
    for each in (inner, world):
        await agent.worlds.drop(each.id)


@pytest.mark.thorough(one_of=8)
@pytest.mark.parametrize("method", ["overlay", "copy"])
async def test_git_in_a_world_stashes_branches_and_commits_and_the_project_gets_all_of_it(
    solo: Stage, root: Path, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if method == "copy":
        monkeypatch.setattr(WorldHome, "_explain_no_layers", lambda *_: "for a test")
    git(root, "init", "-q", "-b", "main")
    git(root, "add", "-A")
    git(root, "commit", "-qm", "first")
    old_tree, name = tree(root), "git -c user.name=x -c user.email=x@y"
    steps = [
        ran(f"echo stashed >> notes.txt && {name} stash && git status --short && git stash pop && git diff --stat"),
        ran("git checkout -q -b other && git rm -q src/a.py && echo b > b.txt && git add -A"),
        ran(f"{name} commit -qm second && git checkout -q main && test -f src/a.py && git checkout -q other"),
        ran("echo more > more.txt"),
        Say("Done."),
    ]
    agent = solo.agent(steps, builtin=True)
    world = await agent.worlds.open(root)
    events = await play(agent.chat(root=root, world=world.id, mode="autopilot", max_continuations=0).send("Go."))
    assert [completion.success for completion in of(events, e.ExecutionComplete)] == [True] * 4, of(
        events, e.ExecutionComplete
    )
    assert tree(root) == old_tree
    committed = await agent.worlds.commit(world.id)
    assert git(root, "log", "--topo-order", "--format=%s", "--all").split() == ["second", "first"]
    assert git(root, "rev-parse", "--abbrev-ref", "HEAD").strip() == "other"
    assert git(root, "status", "--short").split() == ["??", "more.txt"]
    git(root, "fsck", "--strict")
    await agent.chat(committed.chat).files.undo()
    assert git(root, "log", "--format=%s").split() == ["first"]
    assert git(root, "status", "--short") == ""


async def test_without_overlays_a_copy_does_the_same_and_says_so(
    solo: Stage, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(WorldHome, "_explain_no_layers", lambda *_: "for a test")
    steps = [
        Call("write_file", path="new/b.py", content="b = 2\n"),
        ran("cat new/b.py && sed -i s/two/2/ notes.txt && rm src/a.py && pwd"),
        ran("sleep 0.5; echo late > late.txt", background=True),
        Call("check_command", handle="3.0", wait_s=60),
        Say("Done."),
    ]
    agent = solo.agent(steps, builtin=True)
    old_tree = tree(root)
    world = await agent.worlds.open(root)
    assert (world.how, world.why) == ("copy", "for a test")
    events = await play(agent.chat(root=root, world=world.id).send("Go."))
    assert all(completion.success for completion in of(events, e.ExecutionComplete)), of(events, e.ExecutionComplete)
    assert str(root) in of(events, e.ExecutionComplete)[1].result
    assert tree(root) == old_tree
    inner = await agent.worlds.open(root, world.id)
    write(agent.workspace_of(inner.project), "inner.txt", b"inner\n")
    await agent.worlds.commit(inner.id)
    assert "+late" in await agent.worlds.diff(world.id)
    committed = await agent.worlds.commit(world.id)
    assert (root / "inner.txt").read_text() == "inner\n"
    assert not (await agent.worlds.effect(world.id)).files
    await agent.chat(committed.chat).files.undo()
    assert tree(root) == old_tree
    (root / "notes.txt").write_text("the user's\n")
    write(agent.workspace_of(world.project), "notes.txt", b"the world's\n")
    with pytest.raises(Conflict, match="others changed"):
        await agent.worlds.commit(world.id)
    assert (root / "notes.txt").read_text() == "the user's\n"


async def test_a_copy_leaves_what_is_no_file_and_what_is_treadles_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(WorldHome, "_explain_no_layers", lambda *_: "for a test")
    root = tmp_path / "project"
    (root / "src").mkdir(parents=True)
    (root / "a.txt").write_text("a\n")
    os.mkfifo(root / "src/fifo")
    stage = Stage(SqliteStore(root / "home" / "chats.db"))  # Treadle's home lies in the project
    agent = stage.agent([], builtin=True)
    world = await agent.worlds.open(root)
    files = agent.workspace_of(world.project)
    assert {child.name for child in files.listdir(".")} == {"a.txt", "src"}
    assert files.listdir("src") == []
    (root / "b.txt").write_text("b\n")
    assert await agent.worlds.rebase(world.id) == ()
    assert files.read_bytes("b.txt") == b"b\n"
    assert not (await agent.worlds.effect(world.id)).files
    await stage.close()


@pytest.mark.parametrize("sandbox", ["landlock", "none"])
@pytest.mark.parametrize("method", ["overlay", "copy"])
async def test_commands_stay_in_the_world_in_every_sandbox(
    solo: Stage, root: Path, method: str, sandbox: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if method == "copy":
        monkeypatch.setattr(WorldHome, "_explain_no_layers", lambda *_: "for a test")
    agent = solo.agent([ran("mkdir sub && echo x > sub/f && cd sub"), ran("tee g < f"), Say("Done.")], builtin=True)
    old_tree = tree(root)
    world = await agent.worlds.open(root)
    events = await play(agent.chat(root=root, world=world.id, sandbox=sandbox).send("Go."))
    first, second = of(events, e.ExecutionComplete)
    if sandbox == "landlock" and "andlock" in first.error:
        pytest.skip(first.error)
    assert (first.success, second.success) == (True, True), (first, second)
    assert "x" in second.result, "the shell goes on where it was"
    assert tree(root) == old_tree
    assert [file.path for file in (await agent.worlds.effect(world.id)).files] == ["sub", "sub/f", "sub/g"]


async def test_a_holder_that_is_killed_loses_nothing(solo: Stage, root: Path) -> None:
    agent = solo.agent([], builtin=True)
    world = await agent.worlds.open(root)
    files = agent.workspace_of(world.project)
    write(files, "notes.txt", b"the world's\n")
    os.kill(_holder(world.id), signal.SIGKILL)
    assert files.read_bytes("notes.txt") == b"the world's\n"


async def test_a_holder_whose_starter_is_gone_says_nothing_on_the_terminal(solo: Stage, root: Path) -> None:
    """Its reader was killed before it could say that it is ready; the world can be reached all the same."""
    agent = solo.agent([], builtin=True)
    world = await agent.worlds.open(root)
    files = agent.workspace_of(world.project)
    write(files, "notes.txt", b"the world's\n")
    pid = _holder(world.id)
    line = _command_line(pid)
    os.kill(pid, signal.SIGKILL)
    assert _errors_without_reader(line) == ""
    assert _errors_without_reader(line) == ""  # this one is told that there is a holder
    assert files.read_bytes("notes.txt") == b"the world's\n"


def _command_line(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")[:-1]


def _errors_without_reader(line: list[str]) -> str:
    """The errors of a holder whose standard output has no reader, until it has let go of both."""
    reader, writer = os.pipe()
    os.close(reader)
    error_reader, tells = os.pipe()
    process = subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=writer, stderr=tells)
    assert process.wait(60) == 0
    for end in (writer, tells):
        os.close(end)
    with os.fdopen(error_reader) as errors:
        return errors.read()


async def test_worlds_of_killed_trials_are_hidden_and_swept(solo: Stage, root: Path, tmp_path: Path) -> None:
    agent = solo.agent([], builtin=True)
    world = await agent.worlds.open(root)
    folders = WorldFolders(str(tmp_path / "home"))
    trial = folders.make_trial(str(root), world.root_id)  # and its process is killed here
    assert [each.id for each in folders.iterate_worlds()] == [world.id]
    assert [*folders.find_problems()] == []
    assert folders.sweep() == 0  # it may belong to a process that lives
    with freeze_clock(time.time() + 7200):
        assert folders.sweep() == 1
    with pytest.raises(NotFound):
        folders.get(trial.id)
    assert folders.get(world.id) == world


@contextmanager
def freeze_clock(now: float) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("treadle.library.worlds.record.time.time", lambda: now)
        yield


async def test_that_no_layers_work_is_tried_again(
    solo: Stage, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fault 40: one failed trial makes no world a copy; a failure is not remembered until the machine starts anew."""
    agent = solo.agent([], builtin=True)
    (tmp_path / "home/worlds").mkdir(parents=True, exist_ok=True)
    failures = iter(["a holder died", "", "a holder died", "a holder died"])
    monkeypatch.setattr(WorldHome, "_try_layers", lambda *_: next(failures))
    assert (await agent.worlds.open(root)).how == "overlay"
    (tmp_path / "home/worlds/trials.json").unlink()
    assert (await agent.worlds.open(root)).how == "copy"
    monkeypatch.undo()
    assert (await agent.worlds.open(root)).how == "overlay"


def git(root: Path, *words: str) -> str:
    name = ["-c", "user.name=x", "-c", "user.email=x@y"]
    return subprocess.run(["git", *name, *words], cwd=root, check=True, capture_output=True, text=True).stdout


def _holder(world: str) -> int:
    """The process that holds this world, by its command line."""
    for process in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):
            if world.encode().hex().encode() in Path("/proc", process, "cmdline").read_bytes():
                return int(process)
    raise AssertionError("there is no holder")
