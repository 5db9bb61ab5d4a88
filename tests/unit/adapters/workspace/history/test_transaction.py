"""Sets of changes, all or none (W-02, W-08; faults 20, 31). Kills are in tests/faults/test_transactions.py."""

import hashlib
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from hypothesis import given, settings

from tests.faults.chance import SOAK, examples
from tests.unit.adapters.workspace.trees import (
    Bench,
    FromFolder,
    Node,
    Picture,
    between,
    build,
    fast_folder,
    nodes,
    picture,
    taken_back,
)
from treadle.adapters.workspace.history import staging
from treadle.adapters.workspace.paths import entries
from treadle.base import file_system
from treadle.errors import ToolError
from treadle.ports.snapshots import Effect
from treadle.protocol.files import FileChange, FileState
from treadle.testing.faults import InjectedFault, faults


@settings(max_examples=examples(100), database=None)
@given(nodes(), nodes())
def test_a_tree_becomes_another_and_back_and_again(old: dict[bytes, Node], new: dict[bytes, Node]) -> None:
    with fast_folder() as folder:
        bench = Bench(folder)
        build(bench.project, old)
        build(bench.goal, new)
        old_picture, new_picture = picture(bench.project), picture(bench.goal)
        effect = bench.commit()
        assert not effect.conflicts
        assert picture(bench.project) == new_picture
        undone = bench.restore("c_1/u_1", taken_back(effect))
        assert not undone.conflicts
        assert picture(bench.project) == old_picture
        redone = bench.restore("c_1/u_2", taken_back(undone))
        assert not redone.conflicts
        assert picture(bench.project) == new_picture
        assert bench.left_over() == []


AS_NOBODY = """
import os
from hypothesis import Phase, given, settings
from tests.unit.adapters.workspace.history import test_transaction as tests
test = tests.test_a_tree_becomes_another_and_back_and_again
test.hypothesis.inner_test({}, {b"a": tests.Node("file")})  # so that all is loaded
os.setgroups([]); os.setgid(65534); os.setuid(65534)
settings(max_examples=tests.examples(100), phases=[Phase.generate], database=None, deadline=None)(
    given(tests.nodes(), tests.nodes())(test.hypothesis.inner_test))()
"""


@pytest.mark.thorough(one_of=8)
@pytest.mark.skipif(os.geteuid() != 0, reason="this is an ordinary user already")
def test_the_same_as_an_ordinary_user() -> None:
    process = subprocess.run([sys.executable, "-c", AS_NOBODY], capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr[-3000:]


@pytest.fixture
def bench() -> Iterator[Bench]:
    with fast_folder() as folder:
        yield Bench(folder)


@contextmanager
def once(point: str, act: Callable[[], None]) -> Iterator[None]:
    """Do something when a point is first passed."""
    pending_acts = [act]
    file_system.install_fault_hook(lambda name: pending_acts.pop()() if name == point and pending_acts else None)
    try:
        yield
    finally:
        file_system.install_fault_hook(None)


# -- edits by others ----------------------------------------------------------------------------------------------


def prepare_changes(bench: Bench) -> tuple[FileChange, ...]:
    """Three changes: a file edited, a folder that goes, a file that comes."""
    build(
        bench.project, {b"a": Node("file", 0o644, b"old"), b"d": Node("directory", 0o755, inside={b"x": Node("file")})}
    )
    build(bench.goal, {b"a": Node("file", 0o644, b"new"), b"n": Node("file", 0o644, b"n")})
    return between(bench.project, bench.goal)


def edit_file(project: Path) -> None:
    (project / "a").write_bytes(b"the user's")


def change_mode(project: Path) -> None:
    (project / "a").chmod(0o600)


def remove_file(project: Path) -> None:
    (project / "a").unlink()


def create_file(project: Path) -> None:
    (project / "n").write_bytes(b"the user's")


def fill_folder(project: Path) -> None:
    (project / "d" / "y").write_bytes(b"the user's")


def replace_by_link(project: Path) -> None:
    (project / "a").unlink()
    (project / "a").symlink_to("/etc/passwd")


EDITS = [
    (edit_file, "a"),
    (change_mode, "a"),
    (remove_file, "a"),
    (create_file, "n"),
    (fill_folder, "d"),
    (replace_by_link, "a"),
]


@pytest.mark.parametrize(("edit", "path"), EDITS, ids=lambda each: getattr(each, "__name__", each))
def test_what_somebody_changed_meanwhile_is_a_conflict_and_nothing_is_committed(
    bench: Bench, edit: Callable[[Path], None], path: str
) -> None:  # W-08, fault 31
    changes = prepare_changes(bench)
    edit(bench.project)
    old_picture = picture(bench.project)
    effect = bench.commit(files=changes)
    assert [conflict.path for conflict in effect.conflicts] == [path]
    assert picture(bench.project) == old_picture
    assert bench.commit(files=()) == effect  # it was decided, and stays so
    assert bench.discard() is None
    assert bench.left_over() == []


@pytest.mark.parametrize(("edit", "path"), EDITS, ids=lambda each: getattr(each, "__name__", each))
@pytest.mark.parametrize("point", ["transaction.ready", "transaction.decided"])
def test_the_same_at_the_last_moment(bench: Bench, edit: Callable[[Path], None], path: str, point: str) -> None:
    changes = prepare_changes(bench)
    expected: Picture = {}

    def act() -> None:
        edit(bench.project)
        expected.update(picture(bench.project))

    with once(point, act):
        effect = bench.commit(files=changes)
    assert [conflict.path for conflict in effect.conflicts] == [path]
    assert picture(bench.project) == expected
    assert bench.left_over() == []


def save_by_renaming(file: Path, text: bytes) -> None:
    fresh = file.with_name("fresh")
    fresh.write_bytes(text)
    fresh.rename(file)


def prepare_change(bench: Bench, kind: str) -> None:
    """A file is edited or removed, and another one is edited after it."""
    build(bench.project, {b"a": Node("file", 0o644, b"old"), b"b": Node("file", 0o644, b"old")})
    build(bench.goal, {b"b": Node("file", 0o644, b"new")})
    if kind == "edited":
        build(bench.goal, {b"a": Node("file", 0o644, b"new")})


KINDS = [("edited", "transaction.exchanged"), ("removed", "transaction.taken")]


@pytest.mark.parametrize(("kind", "point"), KINDS)
@pytest.mark.parametrize("save", [save_by_renaming, Path.write_bytes], ids=["renamed", "in place"])
@pytest.mark.parametrize("times", [1, 2])
def test_a_save_between_the_last_look_and_the_rename_stays(
    bench: Bench, kind: str, point: str, save: Callable[[Path, bytes], object], times: int
) -> None:  # W-08, fault 31; the second save comes while the first one is out of the project
    prepare_change(bench, kind)
    texts = [b"the user's", b"the user's second"][:times]
    saves = dict(zip(("transaction.checked", point), texts, strict=False))

    def act(name: str) -> None:
        if name in saves:
            save(bench.project / "a", saves.pop(name))

    file_system.install_fault_hook(act)
    try:
        effect = bench.commit()
    finally:
        file_system.install_fault_hook(None)
    assert [conflict.path for conflict in effect.conflicts] == ["a"]
    assert (bench.project / "a").read_bytes() == texts[-1]
    assert (bench.project / "b").read_bytes() == b"old"
    assert bench.left_over() == []


class Killed(BaseException):
    pass


@pytest.mark.parametrize(("kind", "point"), KINDS)
@pytest.mark.parametrize("error", [Killed, OSError])
@pytest.mark.parametrize("next_step", ["commit", "discard"])
def test_such_a_save_stays_also_after_a_crash_or_an_error_at_that_moment(
    bench: Bench, kind: str, point: str, error: type[BaseException], next_step: str
) -> None:
    prepare_change(bench, kind)
    pending_points = ["transaction.checked", point]

    def act(name: str) -> None:
        if name not in pending_points:
            return
        pending_points.remove(name)
        if pending_points:
            save_by_renaming(bench.project / "a", b"the user's")
        else:
            raise error

    changes = between(bench.project, bench.goal)
    file_system.install_fault_hook(act)
    try:
        with suppress(Killed):
            assert bench.commit(files=changes).conflicts, "the second try sees it"
    finally:
        file_system.install_fault_hook(None)
    if next_step == "commit":
        assert [conflict.path for conflict in bench.commit(files=changes).conflicts] == ["a"]
    elif error is Killed:
        with suppress(ToolError):
            bench.discard()
    assert (bench.project / "a").read_bytes() == b"the user's"
    assert (bench.project / "b").read_bytes() == b"old"
    assert bench.left_over() == []


def kill_beside_a_save(bench: Bench, point: str, commit: Callable[[], Effect], save: Callable[[Path], object]) -> None:
    pending_points = ["transaction.checked", point]

    def act(name: str) -> None:
        if name in pending_points[:1]:
            pending_points.remove(name)
            if not pending_points:
                raise Killed
            save(bench.project / "a")

    file_system.install_fault_hook(act)
    try:
        with pytest.raises(Killed):
            commit()
    finally:
        file_system.install_fault_hook(None)


def save_text(file: Path) -> None:
    save_by_renaming(file, b"the user's")


def replace_by_folder(file: Path) -> None:
    file.unlink()
    file.mkdir()
    (file / "x").write_bytes(b"the user's")


@pytest.mark.parametrize(("kind", "point"), KINDS)
def test_such_a_save_stays_also_beside_the_single_change_of_a_file_tool(bench: Bench, kind: str, point: str) -> None:
    prepare_change(bench, kind)
    (change,) = [each for each in between(bench.project, bench.goal) if each.path == "a"]
    source = FromFolder(str(bench.goal))
    kill_beside_a_save(bench, point, lambda: bench.transactions.change("c_1/1.0", [change], source), save_text)
    assert not bench.transactions.is_unfinished("c_1/1.0", [change])
    assert (bench.project / "a").read_bytes() == b"the user's"
    assert [conflict.path for conflict in bench.transactions.change("c_1/1.0", [change], source).conflicts] == ["a"]
    assert bench.left_over() == []


def restore_old_text(file: Path) -> None:
    file.write_bytes(b"old")


@pytest.mark.parametrize(
    ("act", "is_committed", "text"),
    [(restore_old_text, True, b"new"), (lambda file: file.chmod(0o600), False, b"the user's")],
    ids=["old text", "mode"],
)
def test_a_person_who_goes_on_after_such_a_crash(
    bench: Bench, act: Callable[[Path], object], is_committed: bool, text: bytes
) -> None:
    prepare_change(bench, "edited")
    changes = between(bench.project, bench.goal)
    kill_beside_a_save(bench, "transaction.exchanged", lambda: bench.commit(files=changes), save_text)
    act(bench.project / "a")
    assert (not bench.commit(files=changes).conflicts) is is_committed
    assert (bench.project / "a").read_bytes() == text
    assert bench.left_over() == []


@pytest.mark.parametrize(("kind", "point"), KINDS)
def test_a_folder_that_came_in_the_place_of_a_file_stays(bench: Bench, kind: str, point: str) -> None:
    prepare_change(bench, kind)
    changes = between(bench.project, bench.goal)
    kill_beside_a_save(bench, point, lambda: bench.commit(files=changes), replace_by_folder)
    if kind == "edited":
        (bench.project / "a").unlink()
    (bench.project / "a").write_bytes(b"the user's second")
    assert [conflict.path for conflict in bench.commit(files=changes).conflicts] == ["a"]
    assert (bench.project / "a").read_bytes() == b"the user's second"
    assert [file.read_bytes() for file in bench.project.glob("a.saved-*/x")] == [b"the user's"]
    assert bench.left_over() == []


def test_a_save_comes_back_also_if_the_new_file_is_renamed_meanwhile(bench: Bench) -> None:
    prepare_change(bench, "edited")
    effect = bench.commit()
    acts = {
        "transaction.checked": lambda: save_text(bench.project / "a"),
        "transaction.exchanged": lambda: (bench.project / "a").rename(bench.project / "moved"),
    }
    file_system.install_fault_hook(lambda name: acts.pop(name)() if name in acts else None)
    try:
        restored = bench.restore("c_1/u_1", taken_back(effect))
    finally:
        file_system.install_fault_hook(None)
    assert [conflict.path for conflict in restored.conflicts] == ["a"]
    assert (bench.project / "a").read_bytes() == b"the user's"
    assert bench.left_over() == []


def test_a_python_without_ctypes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ctypes", None)
    assert entries._find_exchange_call.__wrapped__() is None


def test_a_file_system_without_exchange(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "exchange_entries", lambda *_: False)
    effect = bench.commit(files=prepare_changes(bench))
    assert not effect.conflicts
    assert picture(bench.project) == picture(bench.goal)


def test_an_undo_leaves_what_was_changed_and_does_the_rest(bench: Bench) -> None:  # W-02
    effect = bench.commit(files=prepare_changes(bench))
    (bench.project / "a").write_bytes(b"the user's")
    undone = bench.restore("c_1/u_1", taken_back(effect))
    assert [conflict.path for conflict in undone.conflicts] == ["a"]
    assert sorted(each.path for each in undone.files) == ["d", "d/x", "n"]
    assert (bench.project / "a").read_bytes() == b"the user's"
    assert (bench.project / "d" / "x").read_bytes() == b""
    assert not (bench.project / "n").exists()
    assert bench.restore("c_1/u_1", ()) == undone


def test_what_is_there_already_is_no_conflict(bench: Bench) -> None:
    changes = prepare_changes(bench)
    (bench.project / "a").write_bytes(b"new")
    assert not bench.commit(files=changes).conflicts
    assert picture(bench.project) == picture(bench.goal)


def test_two_chats_on_one_root(bench: Bench) -> None:  # W-07, fault 21
    changes = prepare_changes(bench)
    effects = {}

    def commit(name: str) -> None:
        goal = bench.folder / name
        shutil.copytree(bench.goal, goal)
        (goal / "a").write_bytes(name.encode())
        files = tuple(each for each in between(bench.project, goal) if each.path == "a")
        ready.wait()
        transactions = bench.transactions
        effects[name] = transactions.commit(f"c_{name}/1.0", str(goal), lambda: Effect(files), FromFolder)

    ready = threading.Barrier(2)
    threads = [threading.Thread(target=commit, args=(name,)) for name in ("one", "two")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    won = [name for name, effect in effects.items() if not effect.conflicts]
    assert len(won) == 1
    assert (bench.project / "a").read_bytes() == won[0].encode()
    assert changes


# -- deciding -----------------------------------------------------------------------------------------------------


def test_what_was_discarded_is_never_committed(bench: Bench) -> None:
    changes = prepare_changes(bench)
    old_picture = picture(bench.project)
    assert bench.discard() is None
    with pytest.raises(ToolError, match="was discarded"):
        bench.commit(files=changes)
    assert picture(bench.project) == old_picture


def test_what_was_committed_is_given_back_by_a_discard(bench: Bench) -> None:
    effect = bench.commit(files=prepare_changes(bench))
    assert bench.discard() == effect
    assert picture(bench.project) == picture(bench.goal)


def test_a_zombie_that_comes_after_the_release_does_nothing(bench: Bench) -> None:
    effect = bench.commit(files=prepare_changes(bench))
    bench.journals.release("c_1/1.0")
    new_picture = picture(bench.project)
    with pytest.raises(ToolError, match="settled before"):
        bench.commit(files=tuple(taken_back(effect)))
    assert picture(bench.project) == new_picture
    assert list(bench.journals.list_unfinished()) == []
    assert bench.journals.sweep(3600) == 0
    assert bench.journals.sweep(0) == 1


def test_a_decision_that_is_not_carried_out_is_not_released(bench: Bench) -> None:
    changes = prepare_changes(bench)
    with faults("raise@transaction.decided"), pytest.raises(InjectedFault):
        bench.commit(files=changes)
    bench.journals.release("c_1/1.0")
    assert [journal.name for journal in bench.journals.list_unfinished()] == ["c_1/1.0"]
    assert bench.journals.sweep(0) == 0
    bench.commit(files=())
    assert picture(bench.project) == picture(bench.goal)


def test_the_fingerprint_of_git_comes_with_changes_in_it(bench: Bench) -> None:
    assert bench.commit(files=prepare_changes(bench)).git == ""
    build(bench.goal, {b".git": Node("directory", 0o755, inside={b"HEAD": Node("file")})})
    assert bench.commit("c_1/1.1").git == "fingerprint"


# -- files --------------------------------------------------------------------------------------------------------


def test_a_commit_keeps_the_times_of_the_view(bench: Bench) -> None:
    bench.commit(files=prepare_changes(bench))
    assert {(bench.project / name).stat().st_mtime_ns for name in ("a", "n")} == {FromFolder.TIME}


def test_touched_files_get_their_time_and_nothing_else(bench: Bench) -> None:
    class Touching(FromFolder):
        def list_touched_files(self) -> Iterable[tuple[str, int]]:
            return [("d/x", 5_000_000_000), ("gone", 1), ("../outside", 1)]

    changes = tuple(each for each in prepare_changes(bench) if each.path == "a")
    (bench.folder / "outside").write_bytes(b"")
    bench.transactions.commit("c_1/1.0", str(bench.goal), lambda: Effect(changes), Touching)
    assert (bench.project / "d" / "x").stat().st_mtime_ns == 5_000_000_000
    assert (bench.folder / "outside").stat().st_mtime_ns > 1
    assert (bench.project / "a").read_bytes() == b"new"


def test_no_file_with_several_names_is_written_in_place(bench: Bench) -> None:  # W-08, fault 31
    (bench.project / "a").write_bytes(b"old")
    os.link(bench.project / "a", bench.project / "b")
    os.link(bench.project / "a", bench.folder / "outside")
    for name in ("a", "b"):
        (bench.goal / name).write_bytes(b"new")
        (bench.goal / name).chmod(0o444)
    effect = bench.commit()
    assert [(bench.project / name).stat().st_nlink for name in ("a", "b")] == [1, 1]
    assert (bench.folder / "outside").read_bytes() == b"old"
    assert picture(bench.project) == picture(bench.goal)
    bench.restore("c_1/u_1", taken_back(effect))
    assert (bench.project / "b").read_bytes() == b"old"
    assert (bench.folder / "outside").stat().st_nlink == 1


def test_two_names_of_one_file_inside_become_files_of_their_own(bench: Bench) -> None:  # W-08
    (bench.project / "a").write_bytes(b"old")
    os.link(bench.project / "a", bench.project / "b")
    with open(bench.project / "a", "rb") as reader:
        for name in ("a", "b"):
            (bench.goal / name).write_bytes(b"new")
        bench.commit()
        assert reader.read() == b"old", "the file itself is never written to"
    assert picture(bench.project) == picture(bench.goal)


@pytest.mark.parametrize("change", ["bytes", "mode"])
def test_a_name_elsewhere_keeps_what_it_has(bench: Bench, change: str) -> None:  # S-01
    (bench.project / "a").write_bytes(b"old")
    (bench.project / "a").chmod(0o644)
    os.link(bench.project / "a", bench.folder / "outside")
    (bench.goal / "a").write_bytes(b"new" if change == "bytes" else b"old")
    (bench.goal / "a").chmod(0o755)
    effect = bench.commit()
    assert picture(bench.project) == picture(bench.goal)
    outside = bench.folder / "outside"
    assert (outside.read_bytes(), outside.stat().st_mode & 0o777) == (b"old", 0o644)
    bench.restore("c_1/u_1", taken_back(effect))
    assert (bench.project / "a").read_bytes() == b"old"


@pytest.mark.parametrize("point", ["transaction.ready", "transaction.decided"])
def test_a_folder_swapped_for_a_link_leads_nowhere(bench: Bench, point: str) -> None:  # S-01, fault 19
    outside = bench.folder / "outside"
    outside.mkdir()
    (outside / "x").write_bytes(b"outside")
    inside = {b"x": Node("file", 0o644, b"old"), b"gone": Node("file")}
    build(bench.project, {b"d": Node("directory", 0o755, inside=inside)})
    build(bench.goal, {b"d": Node("directory", 0o700, inside={b"x": Node("file"), b"new": Node("file")})})

    def swap() -> None:
        (bench.project / "d").rename(bench.project / "moved")
        (bench.project / "d").symlink_to(outside)

    with once(point, swap):
        effect = bench.commit()
    assert effect.conflicts
    assert picture(outside) == {"x": ("file", 0o644, hashlib.sha256(b"outside").hexdigest())}
    assert outside.stat().st_mode & 0o777 == 0o755
    assert (bench.project / "moved" / "x").read_bytes() == b"old"


@pytest.mark.parametrize("path", ["../outside", "/etc/x", "a/../../outside", "", ".", "a//b"])
def test_paths_that_nobody_would_record_are_refused(bench: Bench, path: str) -> None:
    change = FileChange(path, "created", after=FileState("file", 0o644, "0" * 64, 1))
    with pytest.raises(ToolError):
        bench.commit(files=(change,))
    assert sorted(each.name for each in bench.folder.iterdir() if each.name != "home") == ["goal", "project"]


@pytest.mark.thorough(one_of=8)
def test_very_many_changes(bench: Bench) -> None:
    many = 10_000 if SOAK else 1_500
    for folder, data in ((bench.project, b"old"), (bench.goal, b"new")):
        for number in range(many):
            path = folder / str(number // 100) / str(number)
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(data + b"%d" % number)
    old_picture, new_picture = picture(bench.project), picture(bench.goal)
    effect = bench.commit()
    assert len(effect.files) == many
    assert picture(bench.project) == new_picture
    bench.restore("c_1/u_1", taken_back(effect))
    assert picture(bench.project) == old_picture


# -- disks --------------------------------------------------------------------------------------------------------

DISKS = """
import os, subprocess, sys
from pathlib import Path
from tests.unit.adapters.workspace.trees import Bench, between, picture, taken_back
from treadle.errors import ToolError
case, place = sys.argv[1], Path(sys.argv[2])
bench = Bench(place)
full = {"project": bench.project, "home": bench.home.parent}.get(case)

def mount(path, size="1m"):
    path.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", path], check=True)

if full is not None:
    mount(full)
(bench.project / "a").write_bytes(b"old" * 100_000)
(bench.project / "gone").write_bytes(b"gone")
(bench.project / "sub").mkdir()
if case == "nested":
    mount(bench.project / "sub")
    (bench.project / "sub" / "there").write_bytes(b"there")
(bench.goal / "a").write_bytes(b"new" * 100_000)
(bench.goal / "sub").mkdir()
(bench.goal / "sub" / "b").write_bytes(b"b" * 300_000)
(bench.goal / "sub" / "l").symlink_to("b")
os.mkfifo(bench.goal / "sub" / "f")
before, after = picture(bench.project), picture(bench.goal)
if full is not None:
    (full / "filler").write_bytes(b"f" * (500_000 if case == "project" else 900_000))
    before = picture(bench.project)
    try:
        bench.commit(files=tuple(each for each in between(bench.project, bench.goal) if each.path != "filler"))
        print("committed")
    except ToolError as error:
        print(error)
    print(picture(bench.project) == before, bench.left_over())
    (full / "filler").unlink()
    before = picture(bench.project)
if case == "read-only":
    subprocess.run(["mount", "--bind", bench.project, bench.project], check=True)
    subprocess.run(["mount", "-o", "remount,bind,ro", bench.project], check=True)
    try:
        bench.commit()
        print("committed")
    except ToolError as error:
        print(error)
    subprocess.run(["mount", "-o", "remount,bind,rw", bench.project], check=True)
effect = bench.commit()
print(picture(bench.project) == after, bench.left_over())
bench.restore("c_1/u_1", taken_back(effect))
print(picture(bench.project) == before, bench.left_over())
"""


@pytest.mark.thorough(one_of=8)
@pytest.mark.parametrize(
    ("case", "message"), [("project", "No space"), ("home", "No space"), ("read-only", "Read-only"), ("nested", "")]
)
def test_disks(case: str, message: str) -> None:
    """Full, read-only, and several of them (faults 13 and 31): nothing is half-done, and it works again later."""
    with fast_folder() as folder:
        command = ["unshare", "-m", sys.executable, "-c", DISKS, case, str(folder)]
        process = subprocess.run(command, capture_output=True, text=True, check=False)
    if "unshare:" in process.stderr or "permission denied" in process.stderr.lower():
        pytest.skip("no file system can be mounted here")
    output_lines = process.stdout.splitlines()
    assert output_lines[-2:] == ["True []", "True []"], process.stdout + process.stderr
    if message:
        assert message in output_lines[0]
        assert len(output_lines) == 3 or output_lines[1] == "True []"


def test_what_a_power_cut_emptied_is_told_from_a_decision(bench: Bench) -> None:
    """Only files that no recovery needs are written without a sync: an ending, and the stub of a released journal."""
    bench.commit(files=prepare_changes(bench))
    for file in (bench.home / "journals").glob("*.end"):
        file.write_bytes(b"")
    assert bench.commit(files=()).files  # looked at again, and found made
    bench.journals.release("c_1/1.0")
    for file in (bench.home / "journals").glob("*.json"):
        file.write_bytes(b"\0" * 40)
    with pytest.raises(ToolError, match="settled before"):
        bench.commit(files=())
    assert picture(bench.project) == picture(bench.goal)
