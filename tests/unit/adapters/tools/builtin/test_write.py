"""write_file and edit_file: their effect on real files, and how a crash is settled (T-02, T-03, D-02)."""

import asyncio
import hashlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.unit.adapters.tools.contexts import context_with, summarize_changes
from treadle.adapters.stores.memory import MemoryStore
from treadle.adapters.tools.builtin.edit import EditFile, WriteFile
from treadle.base import file_system
from treadle.errors import Conflict, EditError, OutsideRoot, ToolError
from treadle.ports.toolset import Invocation, Outcome
from treadle.protocol.events import DiffStat

CONTEXT = context_with(MemoryStore())
WRITE, EDIT = WriteFile(CONTEXT), EditFile(CONTEXT)


def hash_files(project: Path, *paths: str) -> dict[str, str]:
    """As if the model had read these files."""
    return {path: hashlib.sha256((project / path).read_bytes()).hexdigest() for path in paths}


async def prepare_call(tool: Any, invocation: Invocation) -> Invocation:
    """As the loop does it: prepare, and record the plan (through JSON) with the intent."""
    plan = msgspec.json.decode(msgspec.json.encode(await tool.prepare(invocation)))
    return msgspec.structs.replace(invocation, plan=plan)


def names(directory: Path) -> list[str]:
    return [path.name for path in directory.iterdir()]


async def test_creating_a_file(call, project: Path) -> None:
    invocation = await prepare_call(WRITE, call(path="new/dir/a.txt", content="x\ny\n"))
    assert not (project / "new").exists()  # looking changes nothing
    outcome = await WRITE.run(invocation)
    assert (project / "new/dir/a.txt").read_bytes() == b"x\ny\n"
    assert outcome.diff_stat == DiffStat(2, 0)
    assert summarize_changes(outcome.files) == [("new/dir/a.txt", "created", 2, 0)]
    assert outcome.text.startswith("Created new/dir/a.txt (+2 -0).\n--- /dev/null\n+++ new/dir/a.txt\n@@ -0,0 +1,2 @@")
    assert outcome.summary == "+2 -0"


async def test_a_diff_of_a_file_is_not_written_as_the_file(call, project: Path) -> None:
    (project / "a.md").write_bytes(b"1\n2\n")
    diff = "--- a.md\n+++ a.md\n@@ -1,2 +1,2 @@\n-1\n+one\n 2\n"
    with pytest.raises(ToolError, match="content is a diff of this file, not the file"):
        await WRITE.prepare(call(path="a.md", content=diff, _known_files=hash_files(project, "a.md")))
    await WRITE.run(await prepare_call(WRITE, call(path="a.patch", content=diff)))
    assert (project / "a.patch").read_text() == diff


async def test_replacing_a_file(call, project: Path) -> None:
    (project / "a").write_bytes(b"1\n2\n3\n")
    (project / "a").chmod(0o755)
    outcome = await WRITE.run(
        await prepare_call(WRITE, call(path="./a", content="1\nzwei\n3\n4", _known_files=hash_files(project, "a")))
    )
    assert (project / "a").read_bytes() == b"1\nzwei\n3\n4"
    assert (project / "a").stat().st_mode & 0o777 == 0o755
    assert summarize_changes(outcome.files) == [("a", "modified", 2, 1)]
    assert "ended with a newline before; it ends without one now" in outcome.text
    assert "-2\n+zwei\n 3\n+4\n\\ No newline at end of file" in outcome.text


async def test_writing_what_is_there_changes_nothing(call, project: Path) -> None:
    (project / "a").write_bytes(b"same")
    old_stat = (project / "a").stat()
    outcome = await WRITE.run(await prepare_call(WRITE, call(path="a", content="same")))
    assert "already has exactly this content" in outcome.text
    assert outcome.files == ()
    assert (project / "a").stat().st_ino == old_stat.st_ino


async def test_binary_and_large_files_are_replaced_without_a_diff(call, project: Path) -> None:
    (project / "a").write_bytes(b"\0\xff")
    (project / "b").write_bytes(b"x\n" * 17_000_000)
    digests = hash_files(project, "a", "b")
    assert (
        "no text before"
        in (await WRITE.run(await prepare_call(WRITE, call(path="a", content="x\n", _known_files=digests)))).text
    )
    outcome = await WRITE.run(await prepare_call(WRITE, call(path="b", content="x\n", _known_files=digests)))
    assert "too large for a diff" in outcome.text
    assert (project / "b").read_bytes() == b"x\n"


async def test_a_diff_is_bounded(call, project: Path) -> None:
    (project / "a").write_text("".join(f"{i}\n" for i in range(20_000)))
    outcome = await WRITE.run(
        call(path="a", content="".join(f"n{i}\n" for i in range(20_000)), _known_files=hash_files(project, "a"))
    )
    assert outcome.diff_stat == DiffStat(20_000, 20_000)
    assert len(outcome.text) < 15_000
    assert "more lines of the diff" in outcome.text


@pytest.mark.parametrize("path", [".", "dir", "new/", "../x", "/etc/x"])
async def test_paths_that_cannot_be_written_are_refused_before_the_intent(call, project: Path, path: str) -> None:
    (project / "dir").mkdir()
    with pytest.raises(OutsideRoot if "x" in path else ToolError):
        await WRITE.prepare(call(path=path, content="x"))


OLD = {"a": hashlib.sha256(b"old\n").hexdigest()}


def make_write(call: Any, **more: Any) -> Invocation:
    """As if the model had read the file, if there is one."""
    invocation: Invocation = call(path="a", content="new\n", _known_files=OLD, **more)
    if not Path(invocation.root, "a").exists():
        invocation = msgspec.structs.replace(invocation, known_files={})
    return invocation


def make_edit(call: Any, **more: Any) -> Invocation:
    invocation: Invocation = call(path="a", old_str="old", new_str="new", **more)
    return invocation


both = pytest.mark.parametrize(("tool", "make"), [(WRITE, make_write), (EDIT, make_edit)])


@both
async def test_settle_when_it_happened(call, project: Path, tool: Any, make: Any) -> None:
    (project / "a").write_bytes(b"old\n")
    invocation = await prepare_call(tool, make(call))
    ran = await tool.run(invocation)
    settlement = await tool.settle(invocation)
    assert isinstance(settlement, Outcome)
    assert (settlement.success, settlement.diff_stat, settlement.files) == (True, ran.diff_stat, ran.files)
    assert "Changed a (+1 -1)" in settlement.text


@both
async def test_settle_when_it_did_not_happen(call, project: Path, tool: Any, make: Any) -> None:
    (project / "a").write_bytes(b"old\n")
    invocation = await prepare_call(tool, make(call))
    assert await tool.settle(invocation) == "run_again"
    assert (await tool.run(invocation)).success
    assert (project / "a").read_bytes() == b"new\n"


@both
@pytest.mark.parametrize("meanwhile", [b"other\n", None, "directory"])
async def test_settle_when_someone_else_came_between(call, project: Path, tool: Any, make: Any, meanwhile: Any) -> None:
    (project / "a").write_bytes(b"old\n")
    invocation = await prepare_call(tool, make(call))
    (project / "a").unlink()
    if meanwhile == "directory":
        (project / "a").mkdir()
    elif meanwhile is not None:
        (project / "a").write_bytes(meanwhile)
    assert await tool.settle(invocation) == "unknown"


async def test_settle_of_a_new_file(call, project: Path) -> None:
    invocation = await prepare_call(WRITE, make_write(call))
    assert invocation.plan is not None
    assert "before" not in invocation.plan["files"][0]["file"]
    assert await WRITE.settle(invocation) == "run_again"
    await WRITE.run(invocation)
    settlement = await WRITE.settle(invocation)
    assert isinstance(settlement, Outcome)
    assert summarize_changes(settlement.files) == [("a", "created", 1, 0)]


async def test_settle_of_a_write_that_changes_nothing(call, project: Path) -> None:
    (project / "a").write_bytes(b"new\n")
    assert await WRITE.settle(await prepare_call(WRITE, make_write(call))) == "run_again"


async def test_settle_without_a_plan_knows_nothing(call) -> None:
    assert await WRITE.settle(make_write(call)) == "unknown"


@both
async def test_a_file_changed_since_the_intent_is_a_conflict(call, project: Path, tool: Any, make: Any) -> None:
    (project / "a").write_bytes(b"old\n")
    invocation = await prepare_call(tool, make(call))
    (project / "a").write_bytes(b"the user's\n")
    with pytest.raises(Conflict, match="changed on disk"):
        await tool.run(invocation)
    assert (project / "a").read_bytes() == b"the user's\n"  # fault 21


_DEATH = """
import asyncio, os, sys
import msgspec
from treadle.base import file_system
from treadle.ports.toolset import Invocation
from treadle.protocol.options import ChatOptions
from treadle.adapters.stores.memory import MemoryStore
from treadle.adapters.tools.builtin.edit import WriteFile
from tests.unit.adapters.tools.contexts import context_with
file_system.install_fault_hook(lambda name: os._exit(9) if name == sys.argv[2] else None)
arguments, plan = msgspec.json.decode(sys.argv[3])
tool = WriteFile(context_with(MemoryStore()))
seen = {"a": plan["files"][0]["file"]["before"]["digest"]}
call = Invocation("c_1", "1.0", "tool", arguments, plan, ChatOptions(root=sys.argv[1]), known_files=seen)
asyncio.run(tool.run(call))
"""


@pytest.mark.parametrize(
    ("point", "happened"),
    [
        ("tool.write_before", False),
        ("transaction.ready", False),
        ("transaction.put", True),
        ("transaction.withdrawn", True),
        ("tool.write_after", True),
    ],
)
async def test_death_at_each_point_is_settled_right(call, project: Path, point: str, happened: bool) -> None:  # fault 2
    (project / "a").write_bytes(b"old\n")
    invocation = await prepare_call(WRITE, make_write(call))
    payload = msgspec.json.encode([invocation.arguments, invocation.plan]).decode()
    died = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", _DEATH, str(project), point, payload], check=False
    )
    assert died.returncode == 9
    settlement = await WRITE.settle(invocation)
    assert isinstance(settlement, Outcome) if happened else settlement == "run_again"
    assert names(project) == ["a"]  # nothing half-done is left beside it
    if not happened:
        await WRITE.run(invocation)
    assert (project / "a").read_bytes() == b"new\n"


async def test_cancelling_waits_for_the_write_to_end(call, project: Path) -> None:
    loop = asyncio.get_running_loop()
    reached = asyncio.Event()

    def hook(name: str) -> None:
        if name == "tool.write_before":
            loop.call_soon_threadsafe(reached.set)

    file_system.install_fault_hook(hook)
    try:
        task = asyncio.create_task(WRITE.run(make_write(call)))
        await reached.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    finally:
        file_system.install_fault_hook(None)
    assert (project / "a").read_bytes() == b"new\n"
    assert names(project) == ["a"]


async def test_editing(call, project: Path) -> None:
    (project / "a").write_bytes(b"one\r\ntwo\r\nthree")
    outcome = await EDIT.run(await prepare_call(EDIT, call(path="a", old_str="one\ntwo", new_str="1\n2\n2b")))
    assert (project / "a").read_bytes() == b"1\r\n2\r\n2b\r\nthree"
    assert "line endings" in outcome.text
    assert summarize_changes(outcome.files) == [("a", "modified", 3, 2)]
    outcome = await EDIT.run(call(path="a", old_str="2", new_str="x", replace_all=True))
    assert "2 occurrences" in outcome.text
    assert (project / "a").read_bytes() == b"1\r\nx\r\nxb\r\nthree"


async def test_edits_that_cannot_be_made_are_refused_before_the_intent(call, project: Path) -> None:
    (project / "a").write_bytes(b"x\nx\n")
    (project / "b").write_bytes(b"\xff\0\1")
    with pytest.raises(EditError, match="a was not changed: old_str occurs 2 times, beginning in lines 1, 2"):
        await EDIT.prepare(call(path="a", old_str="x", new_str="y"))
    with pytest.raises(ToolError, match="use write_file"):
        await EDIT.prepare(call(path="none", old_str="x", new_str="y"))
    with pytest.raises(ToolError, match="binary"):
        await EDIT.prepare(call(path="b", old_str="x", new_str="y"))
