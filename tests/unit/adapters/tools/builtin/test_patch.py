"""apply_patch on real files: all of them or none, also after a crash in between (T-08, D-02)."""

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.unit.adapters.tools.contexts import context_with, summarize_changes
from treadle.adapters.stores.sqlite import SqliteStore
from treadle.adapters.tools.builtin.base import ToolContext
from treadle.adapters.tools.builtin.edit import ApplyPatch
from treadle.base import file_system
from treadle.errors import Conflict, EditError, OutsideRoot, ToolError
from treadle.ports.toolset import Invocation, Outcome
from treadle.protocol.content import KnownFile
from treadle.protocol.events import DiffStat

PATCH = """*** Begin Patch
*** Add File: new/n.txt
+hello
*** Update File: a.py
@@
-a = 1
+a = 2
*** Update File: old.sh
*** Move to: bin/new.sh
@@
 #!/bin/sh
-echo old
+echo new
*** Delete File: gone.txt
*** End Patch"""
BEFORE = {"a.py": b"a = 1\r\nb = 1\r\n", "old.sh": b"#!/bin/sh\necho old\n", "gone.txt": b"bye\n"}
AFTER = {"a.py": b"a = 2\r\nb = 1\r\n", "bin/new.sh": b"#!/bin/sh\necho new\n", "new/n.txt": b"hello\n"}


@pytest.fixture
async def context(tmp_path: Path) -> Any:
    store = SqliteStore(tmp_path / "treadle.db")
    yield context_with(store)
    await store.close()


@pytest.fixture
def files(project: Path) -> Path:
    for name, data in BEFORE.items():
        (project / name).write_bytes(data)
    (project / "old.sh").chmod(0o750)
    return project


def contents(project: Path) -> dict[str, bytes]:
    return {str(path.relative_to(project)): path.read_bytes() for path in project.rglob("*") if path.is_file()}


async def prepare_call(tool: ApplyPatch, invocation: Invocation) -> Invocation:
    plan = msgspec.json.decode(msgspec.json.encode(await tool.prepare(invocation)))
    return msgspec.structs.replace(invocation, plan=plan)


async def test_all_kinds_of_changes(call: Any, files: Path, context: ToolContext) -> None:
    tool = ApplyPatch(context)
    invocation = await prepare_call(tool, call(patch=PATCH))
    assert contents(files) == BEFORE  # looking changes nothing
    outcome = await tool.run(invocation)
    assert contents(files) == AFTER
    assert (files / "bin/new.sh").stat().st_mode & 0o777 == 0o750  # a moved file keeps its mode
    assert summarize_changes(outcome.files) == [
        ("new/n.txt", "created", 1, 0),
        ("a.py", "modified", 1, 1),
        ("old.sh", "deleted", 0, 2),
        ("bin/new.sh", "created", 2, 0),
        ("gone.txt", "deleted", 0, 1),
    ]
    assert outcome.diff_stat == DiffStat(4, 4)
    assert outcome.text.startswith("Changed 5 files (+4 -4).\n--- /dev/null\n+++ new/n.txt")
    assert "+a = 2" in outcome.text
    assert KnownFile("gone.txt", "") in outcome.known_files
    assert {known_file.path for known_file in outcome.known_files} == {
        path for path, *_ in summarize_changes(outcome.files)
    }
    settlement = await tool.settle(invocation)
    assert isinstance(settlement, Outcome)
    assert (settlement.files, settlement.diff_stat, settlement.known_files) == (
        outcome.files,
        outcome.diff_stat,
        outcome.known_files,
    )


async def test_a_git_diff_of_modes_and_empty_files_is_made_whole(call: Any, files: Path, context: ToolContext) -> None:
    (files / "empty").touch()
    text = (
        "diff --git a/run b/run\nnew file mode 100755\n"
        "diff --git a/empty b/empty\ndeleted file mode 100644\n"
        "diff --git a/a.py b/a.py\nold mode 100644\nnew mode 100755\n"
        "diff --git a/old.sh b/old.sh\nold mode 100755\nnew mode 100644\n--- a/old.sh\n+++ b/old.sh\n"
        "@@ -1,2 +1,2 @@\n #!/bin/sh\n-echo old\n+echo new\n"
    )
    tool = ApplyPatch(context)
    assert "a.py: mode 755" in await tool.preview(call(patch=text))
    invocation = await prepare_call(tool, call(patch=text))
    outcome = await tool.run(invocation)
    modes = {name: (files / name).stat().st_mode & 0o777 for name in ("run", "a.py", "old.sh")}
    assert modes == {"run": 0o755, "a.py": 0o755, "old.sh": 0o640}
    assert contents(files) == BEFORE | {"run": b"", "old.sh": b"#!/bin/sh\necho new\n"}
    assert len(outcome.files) == 4
    assert isinstance(await tool.settle(invocation), Outcome)
    mode_patch = "diff --git a/a.py b/a.py\nold mode 100644\nnew mode 100755\n"
    again = await tool.run(await prepare_call(tool, call(patch=mode_patch)))
    assert "nothing was changed" in again.text


async def test_the_preview_is_the_diff_and_inert(call: Any, files: Path, context: ToolContext) -> None:
    (files / "a.py").write_bytes(b"a = 1\nx = '\x1b]0;title\x07\xe2\x80\xae'\n")
    text = await ApplyPatch(context).preview(call(patch=PATCH))
    assert "+a = 2" in text
    assert "+++ /dev/null" in text
    assert "\\x1b]0;title\\x07\\u202e" in text
    assert all(c.isprintable() or c in "\n\t" for c in text)
    assert contents(files)["gone.txt"] == b"bye\n"


async def test_one_hunk_that_does_not_fit_leaves_all_files_alone(call: Any, files: Path, context: ToolContext) -> None:
    text = PATCH.replace("-echo old", "-echo other")
    with pytest.raises(EditError, match=r"Nothing was changed\. old\.sh, hunk 1 of 1: its lines were not found"):
        await ApplyPatch(context).prepare(call(patch=text))
    assert contents(files) == BEFORE


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("*** Add File: ../x\n+a", OutsideRoot),
        ("*** Update File: a.py\n*** Move to: /etc/x\n@@\n-a = 1", OutsideRoot),
        ("*** Delete File: /etc/passwd", OutsideRoot),
        ("*** Update File: link\n@@\n-a", OutsideRoot),
        ("*** Delete File: directory", ToolError),
        ("*** Delete File: inside", ToolError),
        ("*** Update File: inside\n*** Move to: b.py", ToolError),
        ("*** Add File: a.py\n+x\n*** Add File: x/../a.py\n+x", ToolError),
    ],
)
async def test_paths_are_guarded(
    call: Any, files: Path, context: ToolContext, text: str, error: type[ToolError]
) -> None:
    (files / "link").symlink_to("/etc/passwd")
    (files / "inside").symlink_to("a.py")
    (files / "directory").mkdir()
    with pytest.raises(error):
        await ApplyPatch(context).prepare(call(patch=text))


_DEATH = """
import asyncio, os, sys
from pathlib import Path
import msgspec
from treadle.base import file_system
from treadle.ports.toolset import Invocation
from treadle.protocol.options import ChatOptions
from treadle.adapters.stores.sqlite import SqliteStore
from treadle.adapters.tools.builtin.edit import ApplyPatch
from tests.unit.adapters.tools.contexts import context_with
left = int(sys.argv[4])
def strike(name):
    global left
    if name == sys.argv[3]:
        left -= 1
        if not left:
            os._exit(9)
async def main():
    tool = ApplyPatch(context_with(SqliteStore(Path(sys.argv[2]))))
    file_system.install_fault_hook(strike)
    arguments, plan = msgspec.json.decode(sys.argv[5])
    await tool.run(Invocation("c_1", "1.0", "tool", arguments, plan, ChatOptions(root=sys.argv[1])))
asyncio.run(main())
"""
POINTS = [
    ("tool.patch_before", 1),
    ("snapshot.kept", 1),
    ("transaction.ready", 1),
    ("transaction.decided", 1),
    *(("transaction.removed", time) for time in (1, 2)),
    *(("transaction.put", time) for time in (1, 2, 3)),
    ("transaction.synced", 1),
    ("transaction.withdrawn", 1),
    ("tool.patch_after", 1),
]


@pytest.mark.thorough(one_of=8)
@pytest.mark.parametrize(("point", "time"), POINTS)
async def test_death_between_any_two_files_is_finished(
    call: Any, files: Path, context: ToolContext, tmp_path: Path, point: str, time: int
) -> None:  # faults 1 and 2
    tool = ApplyPatch(context)
    invocation = await prepare_call(tool, call(patch=PATCH))
    payload = msgspec.json.encode([invocation.arguments, invocation.plan]).decode()
    argv = [sys.executable, "-c", _DEATH, str(files), str(tmp_path / "treadle.db"), point, str(time), payload]
    died = await asyncio.to_thread(subprocess.run, argv, check=False)
    assert died.returncode == 9
    settlement = await tool.settle(invocation)
    if settlement == "run_again":
        settlement = await tool.run(invocation)
    assert isinstance(settlement, Outcome)
    assert settlement.success
    assert settlement.diff_stat == DiffStat(4, 4)
    assert len(summarize_changes(settlement.files)) == 5
    assert contents(files) == AFTER  # nothing half-done is left beside them, either
    assert (files / "bin/new.sh").stat().st_mode & 0o777 == 0o750


async def test_a_part_done_and_a_part_changed_by_others_is_told(call: Any, files: Path, context: ToolContext) -> None:
    tool = ApplyPatch(context)
    invocation = await prepare_call(tool, call(patch=PATCH))
    (files / "a.py").write_bytes(AFTER["a.py"])
    (files / "gone.txt").write_bytes(b"the user's\n")
    settlement = await tool.settle(invocation)
    assert isinstance(settlement, Outcome)
    assert not settlement.success
    for line in ("a.py: changed as asked", "gone.txt: changed by someone else", "old.sh: not changed"):
        assert line in settlement.text
    assert summarize_changes(settlement.files) == [("a.py", "modified", 1, 1)]
    with pytest.raises(Conflict, match=r"gone\.txt was changed on disk"):
        await tool.run(invocation)
    assert contents(files)["gone.txt"] == b"the user's\n"


async def test_a_file_swapped_in_the_last_moment_is_not_overwritten(
    call: Any, files: Path, context: ToolContext
) -> None:
    tool = ApplyPatch(context)
    invocation = await prepare_call(tool, call(patch=PATCH))

    def strike(name: str) -> None:
        if name == "tool.patch_before":
            (files / "old.sh").write_bytes(b"the user's\n")

    file_system.install_fault_hook(strike)
    try:
        with pytest.raises(Conflict, match=r"old\.sh was changed on disk"):
            await tool.run(invocation)
    finally:
        file_system.install_fault_hook(None)
    assert contents(files) == BEFORE | {"old.sh": b"the user's\n"}  # W-07, fault 21
