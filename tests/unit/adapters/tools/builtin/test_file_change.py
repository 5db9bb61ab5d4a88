"""The records of the file tools in the history of the project (W-01): the old content is kept before a change, and the
change is recorded so exactly that it can be undone, also when a call is settled or stopped (D-02, fault 2)."""

import asyncio
import hashlib
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.unit.adapters.tools.contexts import context_with
from treadle.adapters.stores.memory import MemoryStore
from treadle.adapters.tools.builtin.base import ToolContext
from treadle.adapters.tools.builtin.edit import ApplyPatch, EditFile, WriteFile
from treadle.adapters.workspace.history.snapshots import ProjectSnapshots
from treadle.adapters.workspace.root import Root
from treadle.base import file_system
from treadle.errors import ToolError
from treadle.ports.toolset import Invocation, Outcome
from treadle.protocol.files import FileChange, FileState
from treadle.testing.checker import read_files
from treadle.testing.faults import InjectedFault, faults


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def file(data: bytes, mode: int = 0o644) -> FileState:
    return FileState("file", mode, sha256(data), len(data))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def context() -> ToolContext:
    return context_with(MemoryStore())


@pytest.fixture(autouse=True)
def _umask() -> Any:
    old_umask = os.umask(0o022)
    yield
    os.umask(old_umask)


async def prepare_call(tool: Any, invocation: Invocation) -> Invocation:
    plan = msgspec.json.decode(msgspec.json.encode(await tool.prepare(invocation)))
    return msgspec.structs.replace(invocation, plan=plan)


async def test_a_new_file_in_new_folders(call, project: Path, context: ToolContext) -> None:
    outcome = await WriteFile(context).run(
        await prepare_call(WriteFile(context), call(path="new/dir/a.txt", content="x\ny\n"))
    )
    assert outcome.files == (
        FileChange("new", "created", after=FileState("directory", 0o755)),
        FileChange("new/dir", "created", after=FileState("directory", 0o755)),
        FileChange("new/dir/a.txt", "created", 2, 0, None, file(b"x\ny\n")),
    )
    assert outcome.text.startswith("Created new/dir/a.txt (+2 -0).")


async def test_what_is_overwritten_is_kept_before(call, project: Path, context: ToolContext, home: Path) -> None:
    (project / "a").write_bytes(b"old\n")
    (project / "a").chmod(0o755)
    tool = EditFile(context)
    invocation = await prepare_call(tool, call(path="a", old_str="old", new_str="new"))
    snapshots = ProjectSnapshots(Root(str(project)), home)
    with faults("raise@snapshot.kept"), pytest.raises(InjectedFault):
        await tool.run(invocation)
    assert (project / "a").read_bytes() == b"old\n"
    assert snapshots.read_content(sha256(b"old\n")) == b"old\n"  # before one byte is written
    outcome = await tool.run(invocation)
    assert outcome.files == (FileChange("a", "modified", 1, 1, file(b"old\n", 0o755), file(b"new\n", 0o755)),)


async def test_what_cannot_be_kept_is_not_changed(call, project: Path, context: ToolContext, home: Path) -> None:
    (project / "a").write_bytes(b"old\n")
    (home.parent / "home").write_bytes(b"no folder")
    tool = EditFile(context)
    with pytest.raises(ToolError, match="are not made"):
        await tool.run(await prepare_call(tool, call(path="a", old_str="old", new_str="new")))
    assert (project / "a").read_bytes() == b"old\n"
    os.unlink(home)  # fault 13: it works again when that is mended
    await tool.run(await prepare_call(tool, call(path="a", old_str="old", new_str="new")))
    assert (project / "a").read_bytes() == b"new\n"


async def test_through_a_link_it_is_the_file_itself(call, project: Path, context: ToolContext) -> None:
    (project / "real").mkdir()
    (project / "real" / "a").write_bytes(b"old\n")
    (project / "linked").symlink_to("real")
    (project / "alias").symlink_to("linked/a")
    tool = EditFile(context)
    outcome = await tool.run(await prepare_call(tool, call(path="alias", old_str="old", new_str="new")))
    assert outcome.files == (FileChange("real/a", "modified", 1, 1, file(b"old\n"), file(b"new\n")),)
    assert "Changed alias" in outcome.text
    write_outcome = await WriteFile(context).run(
        await prepare_call(WriteFile(context), call(path="linked/sub/b", content="b"))
    )
    assert [each.path for each in write_outcome.files] == ["real/sub", "real/sub/b"]


PATCH = """*** Begin Patch
*** Update File: a
@@
-one
+two
*** Add File: deep/er/b
+b
*** Delete File: c
*** Update File: d
*** Move to: deep/d
@@
-d
+D
*** End Patch
"""


def prepare_patch(project: Path) -> None:
    (project / "a").write_bytes(b"one\n")
    (project / "c").write_bytes(b"c\n")
    (project / "d").write_bytes(b"d\n")
    (project / "d").chmod(0o700)


ALL = {
    "deep": (None, FileState("directory", 0o755)),
    "deep/er": (None, FileState("directory", 0o755)),
    "a": (file(b"one\n"), file(b"two\n")),
    "deep/er/b": (None, file(b"b\n")),
    "c": (file(b"c\n"), None),
    "d": (file(b"d\n", 0o700), None),
    "deep/d": (None, file(b"D\n", 0o700)),
}


def states(outcome: Outcome) -> dict[str, tuple[FileState | None, FileState | None]]:
    return {each.path: (each.before, each.after) for each in outcome.files}


async def test_a_patch_of_several_files(call, project: Path, context: ToolContext) -> None:
    prepare_patch(project)
    tool = ApplyPatch(context)
    outcome = await tool.run(await prepare_call(tool, call(patch=PATCH)))
    assert states(outcome) == ALL
    assert outcome.text.startswith("Changed 5 files (+3 -3).")


STEPS = ["transaction.removed", "transaction.folder_made", "transaction.put", "transaction.put#3", "transaction.synced"]


@pytest.mark.parametrize("point", STEPS)
async def test_what_strikes_once_does_not_cost_the_change(
    call, project: Path, context: ToolContext, point: str
) -> None:
    prepare_patch(project)
    tool = ApplyPatch(context)
    with faults(f"full@{point}") as hook:
        assert states(await tool.run(await prepare_call(tool, call(patch=PATCH)))) == ALL
    assert len(hook.struck) == 1


TWICE = [
    "full@transaction.removed;full@transaction.put",
    "full@transaction.folder_made;full@transaction.put",
    "full@transaction.put;full@transaction.put#2",
    "full@transaction.put#2;full@transaction.put#3",
    "full@transaction.synced;full@transaction.synced#2",
]


@pytest.mark.parametrize("strikes", TWICE)
async def test_what_fails_twice_half_way_is_taken_back(call, project: Path, context: ToolContext, strikes: str) -> None:
    prepare_patch(project)
    old_files = read_files(project)
    tool = ApplyPatch(context)
    invocation = await prepare_call(tool, call(patch=PATCH))
    with faults(strikes), pytest.raises(ToolError, match="so none of them was"):
        await tool.run(invocation)
    assert read_files(project) == old_files
    assert await tool.settle(invocation) == "run_again"
    assert states(await tool.run(invocation)) == ALL


class Death(BaseException):
    """As if the process had gone: nothing is taken back."""


def die_at(point: str, passing: int) -> None:
    pass_count = 0

    def hook(name: str) -> None:
        nonlocal pass_count
        pass_count += name == point
        if name == point and pass_count == passing:
            raise Death

    file_system.install_fault_hook(hook)


@pytest.mark.parametrize("stopped", [False, True])
@pytest.mark.parametrize("point", [*STEPS, "transaction.decided", "transaction.withdrawn"])
async def test_found_half_done_it_is_finished_and_told_in_full(
    call, project: Path, context: ToolContext, point: str, stopped: bool
) -> None:
    prepare_patch(project)
    tool = ApplyPatch(context)
    invocation = await prepare_call(tool, call(patch=PATCH))
    name, _, passing = point.partition("#")
    die_at(name, int(passing or 1))
    try:
        with pytest.raises(Death):
            await tool.run(invocation)
    finally:
        file_system.install_fault_hook(None)
    if stopped:
        outcome = await tool.stop(invocation)
    elif (outcome := await tool.settle(invocation)) == "run_again":
        assert states(await tool.run(invocation)) == ALL
        outcome = await tool.settle(invocation)
    assert isinstance(outcome, Outcome)
    assert states(outcome) == ALL
    assert [name for name in os.listdir(project) if name.startswith(".")] == []


async def test_a_stop_before_anything_was_done_knows_of_nothing(call, project: Path, context: ToolContext) -> None:
    prepare_patch(project)
    tool = ApplyPatch(context)
    assert await tool.stop(await prepare_call(tool, call(patch=PATCH))) is None
    assert await tool.stop(call(patch=PATCH)) is None


async def test_a_stop_in_the_midst_of_a_write_tells_of_it(call, project: Path, context: ToolContext) -> None:
    tool = WriteFile(context)
    invocation = await prepare_call(tool, call(path="new/a", content="a"))
    loop, reached = asyncio.get_running_loop(), asyncio.Event()
    file_system.install_fault_hook(
        lambda name: loop.call_soon_threadsafe(reached.set) if name == "tool.write_before" else None
    )
    try:
        task = asyncio.create_task(tool.run(invocation))
        await reached.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    finally:
        file_system.install_fault_hook(None)
    stopped = await tool.stop(invocation)
    assert stopped is not None
    assert states(stopped) == {"new": (None, FileState("directory", 0o755)), "new/a": (None, file(b"a"))}
