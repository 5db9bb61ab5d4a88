"""Undo on real files: exact, or refused and untouched; a person's edit always survives (W-02, W-03, fault 20)."""

import hashlib
import os
import shutil
import stat
import tempfile
import traceback
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.adapters.workspace.undo_kit import Project
from treadle.adapters.workspace.history.undo_plan import keep_hunks
from treadle.errors import ToolError
from treadle.protocol.events import RestoreRequested
from treadle.protocol.files import FileState

LINES = [f"line {number}\n" for number in range(1, 31)]


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def edit_lines(*edits: tuple[int, str]) -> str:
    lines = list(LINES)
    for number, line in edits:
        lines[number - 1] = line
    return "".join(lines)


# -- any changes ------------------------------------------------------------------------------------------------------

NAMES = ["a", "b", "d", "d/e", "d/f", "d/e/g", os.fsdecode(b"x\xff"), "new\nline"]
acts = st.lists(
    st.tuples(
        st.sampled_from(["write", "remove", "link", "folder", "fifo", "mode", "move", "append"]),
        st.sampled_from(NAMES),
        st.sampled_from(NAMES),
        st.integers(0, 3),
    ),
    max_size=12,
)


def act(project: Project, action: str, name: str, goal_name: str, number: int) -> None:
    """One step, as far as it is possible in the tree as it is."""
    path, goal = project.path / name, project.path / goal_name
    try:
        match action:
            case "write":
                path.parent.mkdir(parents=True, exist_ok=True)
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
                else:
                    path.unlink(missing_ok=True)
                path.write_bytes(b"%d\r\n" % number * number)
            case "append" if path.is_file():
                with path.open("ab") as file:
                    file.write(b"more %d" % number)
            case "remove":
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
            case "link":
                path.symlink_to(f"nowhere{number}")
            case "folder":
                path.mkdir(parents=True)
            case "fifo":
                os.mkfifo(path)
            case "mode":
                path.chmod([0o755, 0o600, 0o640, 0o711][number])
            case "move" if path.exists() and not path.is_fifo():
                shutil.move(path, goal)
    except (OSError, shutil.Error):
        pass


@pytest.mark.thorough(one_of=8)
@given(acts, acts, acts)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_undo_brings_back_exactly_what_was_there_and_redo_what_was_done(
    tmp_path_factory: pytest.TempPathFactory, first: list[tuple], second: list[tuple], third: list[tuple]
) -> None:
    project = Project(tmp_path_factory.mktemp("undo"))
    for step in first:
        act(project, *step)
    old_tree = project.tree()
    for steps in (second, third):
        project.change(lambda steps=steps: [act(project, *step) for step in steps])
    new_tree = project.tree()
    assert not project.undo().conflicts
    assert project.tree() == old_tree
    if project.entries[-1].files:
        assert not project.redo().conflicts
        assert project.tree() == new_tree
        project.undo()
        assert project.tree() == old_tree
    assert not project.plan().files  # nothing is left to undo


@pytest.mark.thorough(one_of=8)
@given(acts, acts, acts)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_what_somebody_did_since_survives(
    tmp_path_factory: pytest.TempPathFactory, first: list[tuple], second: list[tuple], theirs: list[tuple]
) -> None:
    project = Project(tmp_path_factory.mktemp("undo"))
    for step in first:
        act(project, *step)
    old_tree = project.tree()
    project.change(lambda: [act(project, *step) for step in second])
    agent_tree = project.tree()
    for step in theirs:
        act(project, *step)
    mixed = project.tree()
    effect = project.undo()
    now = project.tree()
    touched = {file.path for file in effect.files}
    for path in {*old_tree, *agent_tree, *mixed, *now}:
        if mixed.get(path) != agent_tree.get(path) and mixed.get(path) != old_tree.get(path):
            came_back = mixed.get(path) is None and any(touched_path.startswith(f"{path}/") for touched_path in touched)
            assert now.get(path) == mixed.get(path) or came_back, path  # theirs, untouched but for folders of files
        if now.get(path) != mixed.get(path) and path.isprintable():
            assert path in touched
            # A changed path is as it was; or it is a removed folder that a file came back into.
            assert now.get(path) == old_tree.get(path) or now[path].kind == "directory"


# -- edits by others ----------------------------------------------------------------------------------------------


def test_an_edited_file_is_refused_and_untouched_and_the_edit_is_shown(project: Project) -> None:
    project.write("f", edit_lines())
    project.write("g", "g\n")
    project.change(lambda: (project.write("f", edit_lines((2, "agent\n"))), project.write("g", "agent\n")))
    project.write("f", edit_lines((2, "agent\n"), (20, "person\n")))
    effect = project.undo()
    assert [file.path for file in effect.files] == ["g"]
    assert project.read("f").decode() == edit_lines((2, "agent\n"), (20, "person\n"))
    assert [conflict.path for conflict in effect.conflicts] == ["f"]
    assert effect.conflicts[0].reason == "it has changed since"
    assert "+person" in effect.conflicts[0].diff
    assert "agent" not in effect.conflicts[0].diff  # from what the chat left


def test_an_edited_file_is_merged_on_request_and_the_merge_can_be_redone(project: Project) -> None:
    project.write("f", edit_lines(), 0o644)
    project.change(lambda: project.write("f", edit_lines((2, "agent\n")), 0o755))
    project.write("f", edit_lines((2, "agent\n"), (20, "person\n")), 0o755)
    effect = project.undo(merge=True)
    assert project.read("f").decode() == edit_lines((20, "person\n"))
    assert stat.S_IMODE((project.path / "f").stat().st_mode) == 0o644
    assert not effect.conflicts
    assert not project.plan().files
    project.redo()
    assert project.read("f").decode() == edit_lines((2, "agent\n"), (20, "person\n"))
    assert stat.S_IMODE((project.path / "f").stat().st_mode) == 0o755
    project.undo()
    assert project.read("f").decode() == edit_lines((20, "person\n"))


def test_an_edit_between_two_changes_is_merged_too(project: Project) -> None:
    project.write("f", edit_lines())
    project.change(lambda: project.write("f", edit_lines((2, "agent\n"))))
    project.write("f", edit_lines((2, "agent\n"), (15, "person\n")))
    project.change(lambda: project.write("f", edit_lines((2, "agent\n"), (15, "person\n"), (28, "again\n"))))
    refused = project.undo()
    assert refused.conflicts[0].reason == "it has changed between two changes of this chat"
    assert not refused.files
    assert not project.undo(merge=True).conflicts
    assert project.read("f").decode() == edit_lines((15, "person\n"))


def test_changes_of_the_same_lines_are_not_merged(project: Project) -> None:
    project.write("f", edit_lines())
    project.change(lambda: project.write("f", edit_lines((2, "agent\n"))))
    project.write("f", edit_lines((2, "person\n")))
    effect = project.undo(merge=True)
    assert not effect.files
    assert "both changed the same lines (at 2)" in effect.conflicts[0].reason
    assert project.read("f").decode() == edit_lines((2, "person\n"))


@pytest.mark.parametrize("merge", [False, True])
def test_what_somebody_removed_made_or_retyped_stays_so(project: Project, merge: bool) -> None:
    for name in ("gone", "link", "binary", "deleted"):
        project.write(name, "old\n")

    def agent() -> None:
        for name in ("gone", "link", "binary", "created"):
            project.write(name, "agent\n")
        (project.path / "deleted").unlink()

    project.change(agent)
    (project.path / "gone").unlink()
    (project.path / "link").unlink()
    (project.path / "link").symlink_to("gone")
    project.write("binary", b"\0")
    project.write("created", "agent\nand more\n")
    project.write("deleted", "new\n")
    old_tree = project.tree()
    effect = project.undo(merge=merge)
    assert project.tree() == old_tree
    reasons = {conflict.path: conflict.reason for conflict in effect.conflicts}
    assert reasons.keys() == {"gone", "link", "binary", "created", "deleted"}
    assert reasons["gone"].startswith("it was removed since")
    assert reasons["link"].startswith("it was replaced by a link since")
    assert reasons["deleted"].startswith("it was created again since")


def test_a_mode_that_somebody_changed_is_drift_and_is_merged(project: Project) -> None:
    project.write("f", "old\n", 0o644)
    project.change(lambda: project.write("f", "agent\n", 0o644))
    (project.path / "f").chmod(0o600)
    assert project.undo().conflicts[0].reason == "it has changed: its mode was 644 and is 600 since"
    assert not project.undo(merge=True).conflicts
    assert project.tree()["f"].mode == 0o600
    assert project.read("f") == b"old\n"


def test_what_is_as_it_was_needs_nothing(project: Project) -> None:
    project.write("f", "old\n")
    project.change(lambda: project.write("f", "agent\n"))
    project.write("f", "old\n")
    effect = project.undo()
    assert (effect.files, effect.conflicts) == ((), ())


def test_a_missing_image_is_said(project: Project) -> None:
    project.write("f", "old\n")
    project.change(lambda: project.write("f", "agent\n"))
    shutil.rmtree(project.snapshots.images.folder / "objects")
    plan = project.plan()
    assert not plan.files
    assert plan.conflicts[0].reason == "its earlier content is no longer stored, so it cannot be restored"


def test_without_what_the_chat_left_there_is_no_merging(project: Project) -> None:
    project.write("f", edit_lines())
    project.change(lambda: project.write("f", edit_lines((2, "agent\n"))))
    shutil.rmtree(project.snapshots.images.folder / "left")
    project.write("f", edit_lines((2, "agent\n"), (20, "person\n")))
    effect = project.undo(merge=True)
    assert not effect.files
    assert "no text on all three sides" in effect.conflicts[0].reason


# -- folders ------------------------------------------------------------------------------------------------------


def test_a_folder_stays_if_somebody_put_something_into_it_and_that_is_said_once(project: Project) -> None:
    project.change(lambda: project.write("made/by/agent/f", "agent\n"))
    project.write("made/by/mine", "mine\n")
    effect = project.undo()
    assert {path for path in project.tree()} == {"made", "made/by", "made/by/mine"}
    assert [(each.path, each.reason) for each in effect.conflicts] == [
        ("made/by", "the folder stays, because of what is in it, as made/by/mine")
    ]


def test_a_removed_folder_comes_back_empty_or_with_its_files(project: Project) -> None:
    (project.path / "empty").mkdir(mode=0o700)
    project.write("full/deep/f", "f\n")
    old_tree = project.tree()
    project.change(lambda: (shutil.rmtree(project.path / "full"), (project.path / "empty").rmdir()))
    project.undo(paths=("full/deep/f",))
    assert project.read("full/deep/f") == b"f\n"
    project.undo()
    assert project.tree() == old_tree


def test_a_file_whose_folder_somebody_removed_comes_back_with_one(project: Project) -> None:
    project.write("d/f", "f\n")
    project.change(lambda: (project.path / "d/f").unlink())
    (project.path / "d").rmdir()
    assert {file.path for file in project.undo().files} == {"d", "d/f"}
    assert project.read("d/f") == b"f\n"
    project.redo()
    assert project.tree() == {}


def test_nothing_goes_through_a_link_that_somebody_put_in_the_way(project: Project, tmp_path: Path) -> None:
    """S-01: neither to the outside nor to another folder of the project."""
    outside = tmp_path / "outside"
    outside.mkdir()
    project.write("d/f", "f\n")
    project.write("d/g", "g\n")
    project.change(lambda: ((project.path / "d/f").unlink(), project.write("d/g", "agent\n")))
    shutil.rmtree(project.path / "d")
    (project.path / "d").symlink_to(outside)
    effect = project.undo()
    assert not effect.files
    assert {each.path for each in effect.conflicts} == {"d/f", "d/g"}
    assert not list(outside.iterdir())


def test_kinds_change_back(project: Project) -> None:
    project.write("was_file", "f\n")
    project.write("was_folder/f", "f\n")
    (project.path / "was_link").symlink_to("was_file")
    os.mkfifo(project.path / "was_fifo", 0o600)
    old_tree = project.tree()

    def agent() -> None:
        (project.path / "was_file").unlink()
        (project.path / "was_file").mkdir()
        project.write("was_file/inside", "x")
        shutil.rmtree(project.path / "was_folder")
        (project.path / "was_folder").symlink_to("elsewhere")
        (project.path / "was_link").unlink()
        os.mkfifo(project.path / "was_link")
        (project.path / "was_fifo").unlink()
        project.write("was_fifo", "x")

    project.change(agent)
    assert not project.undo().conflicts
    assert project.tree() == old_tree


def test_a_folder_that_cannot_become_a_file_again_is_said(project: Project) -> None:
    project.write("d", "file\n")

    def agent() -> None:
        (project.path / "d").unlink()
        project.write("d/f", "x")

    project.change(agent)
    project.write("d/mine", "mine\n")
    effect = project.undo()
    assert {each.path for each in effect.conflicts} == {"d"}
    assert set(project.tree()) == {"d", "d/mine"}


# -- hunks --------------------------------------------------------------------------------------------------------

AGENT = edit_lines((2, "one\n"), (15, "two\n"), (28, "three\n"))


def test_single_hunks_are_undone_and_the_rest_stays(project: Project) -> None:
    project.write("f", edit_lines())
    project.write("g", "g\n")
    project.change(lambda: (project.write("f", AGENT), project.write("g", "agent\n")))
    project.undo(hunks={"f": (2,)})
    assert project.read("f").decode() == edit_lines((2, "one\n"), (28, "three\n"))
    assert project.read("g") == b"agent\n"
    project.undo(hunks={"f": (2,)})  # counted anew
    assert project.read("f").decode() == edit_lines((2, "one\n"))
    project.redo()
    project.redo()
    assert project.read("f").decode() == AGENT
    project.undo()
    assert project.read("f").decode() == edit_lines()


def test_hunks_of_an_edited_file_are_refused_or_merged(project: Project) -> None:
    project.write("f", edit_lines())
    project.change(lambda: project.write("f", AGENT))
    project.write("f", AGENT.replace("line 22\n", "person\n"))
    assert project.undo(hunks={"f": (1,)}).conflicts
    assert not project.undo(hunks={"f": (1,)}, merge=True).conflicts
    assert project.read("f").decode() == edit_lines((15, "two\n"), (28, "three\n"), (22, "person\n"))
    assert not project.undo(merge=True).conflicts
    assert project.read("f").decode() == edit_lines((22, "person\n"))


def test_all_hunks_of_a_created_file_remove_it(project: Project) -> None:
    project.change(lambda: project.write("f", "agent\n"))
    project.undo(hunks={"f": (1,)})
    assert project.tree() == {}


def test_hunks_that_do_not_exist_and_files_without_any_are_refused(project: Project) -> None:
    project.write("f", edit_lines())
    project.write("b", b"\0old")
    project.change(lambda: (project.write("f", AGENT), project.write("b", b"\0new")))
    with pytest.raises(ToolError, match="no hunk 4: the difference has 3"):
        project.plan(hunks={"f": (4,)})
    assert "it is no text" in project.plan(hunks={"b": (1,)}).conflicts[0].reason


def test_kept_hunks_are_a_baseline_that_is_kept(project: Project) -> None:
    project.write("f", edit_lines(), 0o600)
    files = project.change(lambda: project.write("f", AGENT, 0o644))
    trail = project.make_request(RestoreRequested("", "keep")).trails[0]
    kept_change = keep_hunks(project.root, project.snapshots.images, trail, [2])
    assert kept_change.before == files[0].before
    assert kept_change.after is not None
    assert project.snapshots.read_content(kept_change.after.digest).decode() == edit_lines((15, "two\n"))
    assert kept_change.after.mode == 0o600
    assert keep_hunks(project.root, project.snapshots.images, trail, [1, 2, 3]).after == files[0].after
    with pytest.raises(ToolError, match="no hunk 9"):
        keep_hunks(project.root, project.snapshots.images, trail, [9])


# -- the rest -----------------------------------------------------------------------------------------------------


def test_a_preview_changes_nothing_and_says_how_many_lines(project: Project) -> None:
    project.write("f", edit_lines())
    project.change(lambda: project.write("f", AGENT + "more\n"))
    old_tree = project.tree()
    planned = project.plan()
    assert [(file.path, file.action, file.added, file.removed) for file in planned.files] == [("f", "modified", 3, 4)]
    assert project.tree() == old_tree


def test_ten_steps_back_are_one(project: Project) -> None:
    project.write("f", "0\n")
    for number in range(1, 10):
        project.change(lambda number=number: project.write("f", f"{number}\n"))
    assert project.undo(since=5).files[0].after == FileState("file", 0o644, *_digest(b"5\n"))
    project.undo()
    assert project.read("f") == b"0\n"


def _digest(data: bytes) -> tuple[str, int]:
    return hashlib.sha256(data).hexdigest(), len(data)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")
def test_an_ordinary_user_undoes_what_is_closed_even_to_him(tmp_path: Path) -> None:
    """Folders without a way in and files without a right to read come back as they were."""
    _closed_things(Project(tmp_path / "root"))  # everything is loaded before it can no longer be
    theirs = Path(tempfile.mkdtemp())  # not below the folder of tests, which is closed to others
    os.chown(theirs, 65534, 65534)
    pid = os.fork()
    if not pid:
        code = 1
        try:
            os.setgid(65534)
            os.setuid(65534)
            _closed_things(Project(theirs))
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    wait_status = os.waitpid(pid, 0)[1]
    shutil.rmtree(theirs)
    assert os.waitstatus_to_exitcode(wait_status) == 0


def _closed_things(project: Project) -> None:
    project.write("secret", "s\n", 0o000)
    project.write("closed/f", "f\n", 0o400)
    (project.path / "closed").chmod(0o500)
    old_modes = {"secret": 0o000, "closed": 0o500}

    def agent() -> None:
        (project.path / "secret").unlink()
        (project.path / "closed").chmod(0o700)
        (project.path / "closed/f").unlink()
        (project.path / "closed").rmdir()

    project.change(agent)
    assert not project.undo().conflicts
    assert {name: stat.S_IMODE((project.path / name).stat().st_mode) for name in old_modes} == old_modes
    assert project.read("closed/f") == b"f\n"
    (project.path / "secret").chmod(0o600)
    assert project.read("secret") == b"s\n"


# -- what is never committed ------------------------------------------------------------------------------------------


def test_a_redo_does_not_make_again_what_is_never_committed(project: Project) -> None:  # S-16
    """The effect of a command that writes through is only known afterwards; an undo removes it, and it stays gone."""
    project.gated = True
    project.write("kept.txt", "kept\n")
    (project.path / ".git" / "hooks").mkdir(parents=True)

    def act() -> None:
        project.write("tool", "#!/bin/sh\n", 0o4755)
        project.write(".git/hooks/post-commit", "#!/bin/sh\n", 0o755)
        project.write("inner/.git/config", "[core]\n")
        project.write("plain.txt", "plain\n")

    project.change(act)
    assert not project.undo().conflicts
    assert {path.name for path in project.path.rglob("*")} == {"kept.txt", ".git", "hooks"}
    again = project.redo()
    assert project.read("plain.txt") == b"plain\n"
    assert {conflict.path for conflict in again.conflicts} >= {"tool", ".git"}
    assert not (project.path / "tool").exists()
    assert not (project.path / ".git/hooks/post-commit").exists()
    assert not (project.path / "inner/.git/config").exists()


def test_an_undo_brings_back_whatever_was_there(project: Project) -> None:  # W-02
    project.write("tool", "#!/bin/sh\n", 0o4755)
    project.write("inner/.git/config", "[core]\n")
    old_tree = project.tree()
    project.change(lambda: [shutil.rmtree(project.path / "inner"), (project.path / "tool").unlink()])
    assert not project.undo().conflicts
    assert project.tree() == old_tree
