"""Operations on one world come one after the other, and a world that lost the stamp of its base is mended (W-12, W-13,
fault 39)."""

import asyncio
import os
import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.faults.world_driver import Case
from tests.unit.adapters.sandbox.grounds import missing
from tests.writing import write
from treadle.adapters.stores.memory import MemoryStore
from treadle.adapters.stores.packing import Problem
from treadle.adapters.workspace.history.overlay_upper import Beginnings
from treadle.base import file_system
from treadle.errors import Conflict, InvalidInput, NotFound, ToolError, WorldBusy
from treadle.library.housekeeping.damage import inspect
from treadle.library.housekeeping.retention import Retention
from treadle.library.worlds.home import WorldGround

ROUNDS = 6


@pytest.fixture
def case(tmp_path: Path) -> Iterator[Case]:
    if reason := missing("view"):
        pytest.skip(reason)
    new_case = Case(tmp_path, has_world=False)
    (new_case.project / "text").write_text("1\n2\n3\n4\n5\n6\n")
    new_case.world = new_case.worlds.open(str(new_case.project), "", "", "").id
    yield new_case
    new_case.end()
    new_case.let_go()


def view(case: Case) -> Path:
    return Path(case.worlds.folders.locate_world(case.world), "view")


def stamps(case: Case) -> list[str]:
    return [name for name in os.listdir(view(case)) if name.startswith(("began", ".began"))]


def find(case: Case, *, repair: bool) -> list[Problem]:
    return asyncio.run(inspect(MemoryStore(), case.home, Retention(), repair=repair))


def edit(case: Case, name: str, data: bytes) -> None:
    inside = case.history(str(case.project), "", case.world)
    write(inside.root, name, data, into=inside)


def at_once(*acts: Callable[[], object]) -> list[BaseException]:
    """Run them in threads that begin together; return the errors that they raised."""
    barrier = threading.Barrier(len(acts))
    raised: list[BaseException] = []

    def run(act: Callable[[], object]) -> None:
        barrier.wait()
        try:
            act()
        except Exception as error:
            raised.append(error)

    threads = [threading.Thread(target=run, args=(act,)) for act in acts]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    return raised


# W-13, fault 39
def test_rebases_and_commits_at_once_leave_a_whole_world(case: Case) -> None:
    edit(case, "text", b"1\n2\n3\n4\n5\nworld\n")
    for number in range(ROUNDS):
        (case.project / "text").write_text(f"person {number}\n2\n3\n4\n5\n6\n")
        raised = at_once(*[lambda: case.worlds.rebase(case.world)] * 3)
        assert not raised
        assert len(stamps(case)) == 2, "the link and what it leads to"
        assert [file.path for file in case.worlds.compute_effect(case.world).files] == ["text"]
    raised = at_once(
        lambda: case.worlds.rebase(case.world),
        lambda: case.worlds.bring_in("c/1", case.world),
        lambda: case.worlds.bring_in("c/2", case.world),
    )
    assert not raised
    assert (case.project / "text").read_text() == f"person {ROUNDS - 1}\n2\n3\n4\n5\nworld\n"
    assert not case.worlds.compute_effect(case.world).files


# W-12, fault 39
def test_a_drop_waits_for_a_rebase(case: Case) -> None:
    edit(case, "text", b"1\n2\n3\n4\n5\nworld\n")
    raised = at_once(lambda: case.worlds.rebase(case.world), lambda: case.worlds.drop(case.world))
    assert all(isinstance(error, (NotFound, ToolError)) and "world_" in str(error) for error in raised), raised
    assert not [*case.worlds.folders.iterate_worlds()]
    assert not Path(case.worlds.folders.locate_world(case.world)).exists(), "nothing is made anew where it was"


# W-13
def test_a_refused_rebase_leaves_nothing_behind(case: Case) -> None:
    edit(case, "text", b"world\n")
    (case.project / "text").write_text("person\n")
    old_names = sorted(os.listdir(view(case)))
    with pytest.raises(Conflict):
        case.worlds.rebase(case.world)
    assert sorted(os.listdir(view(case))) == old_names


# W-12: a person's later change counts as theirs, and is merged
@pytest.mark.parametrize("loss", [Path.unlink, lambda stamp: stamp.write_bytes(b"")], ids=["absent", "empty"])
def test_a_world_that_lost_its_stamp_is_named_by_fsck_and_mended(case: Case, loss: Callable[[Path], object]) -> None:
    edit(case, "text", b"1\n2\n3\n4\n5\nworld\n")
    (case.project / "text").write_text("person\n2\n3\n4\n5\n6\n")
    case.worlds.rebase(case.world)
    (case.project / "text").write_text("person again\n2\n3\n4\n5\n6\n")
    loss(view(case) / os.readlink(view(case) / "began"))
    (problem,) = find(case, repair=False)
    assert case.world in problem.text
    (mended,) = find(case, repair=True)
    assert mended.repaired
    assert not find(case, repair=False)
    assert [each.path for each in case.worlds.compute_effect(case.world).conflicts] == ["text"], "as old as the world"
    case.worlds.rebase(case.world)
    assert not case.worlds.bring_in("c/1", case.world).conflicts
    assert (case.project / "text").read_text() == "person again\n2\n3\n4\n5\nworld\n"


@pytest.mark.parametrize("act", ["compute_effect", "rebase", "render_diff"])
def test_whoever_looks_at_a_world_mends_its_stamp(case: Case, act: str) -> None:
    (view(case) / "began").unlink()
    getattr(case.worlds, act)(case.world)
    assert not case.worlds.folders.has_lost_stamp(case.worlds.folders.get(case.world))


# W-13: a line that a chat adds while others rebase is kept
def test_beginnings_of_a_chat_are_kept_while_others_rebase(case: Case) -> None:
    one, two = Beginnings(str(view(case))), Beginnings(str(view(case)))
    states = [f"path {number}" for number in range(200)]

    def add() -> None:
        for path in states:
            one.add({path: None})

    def update() -> None:
        for number in range(200):
            two.update({f"merged {number % 3}": None})

    assert not at_once(add, update)
    assert set(states) <= set(one.read_all())


# W-13: a file that is saved right after the look is not older than the stamp
def test_what_is_saved_after_the_look_counts_as_changed(case: Case) -> None:
    edit(case, "text", b"1\n2\n3\n4\n5\nworld\n")

    def save(name: str) -> None:
        if name == "world.before_new_beginning":
            (case.project / "text").write_text("person\n2\n3\n4\n5\n6\n")

    file_system.install_fault_hook(save)
    with suppress(Conflict):
        case.worlds.rebase(case.world)
    file_system.install_fault_hook(None)
    assert case.worlds.compute_effect(case.world).conflicts
    case.worlds.rebase(case.world)
    assert case.inside()["text"] == b"person\n2\n3\n4\n5\nworld\n"


# W-13: a change that was prepared and not made leaves no wrong base
def test_a_file_is_merged_with_what_the_world_changed_it_from(case: Case) -> None:
    inside = case.history(str(case.project), "", case.world)
    case.ground(case.world).record_old_states({"text": inside.read_state("text")})
    (case.project / "text").write_text("person\n1\n2\n3\n4\n5\n6\n")
    edit(case, "text", b"person\n1\n2\n3\n4\n5\n6\nworld\n")
    (case.project / "text").write_text("person again\nperson\n1\n2\n3\n4\n5\n6\n")
    case.worlds.rebase(case.world)
    assert case.inside()["text"] == b"person again\nperson\n1\n2\n3\n4\n5\n6\nworld\n"


# W-11: the layers of a world fit its own project alone
def test_a_parent_world_of_another_project_is_refused(case: Case, tmp_path: Path) -> None:
    other_project = tmp_path / "other"
    other_project.mkdir()
    words = f"The world {case.world} is one of {case.project}, not of {other_project}."
    with pytest.raises(InvalidInput, match=re.escape(words)):
        case.worlds.open(str(other_project), case.world, "", "")
    assert [world.id for world in case.worlds.folders.iterate_worlds()] == [case.world]


# W-11: two mounts of one upper layer do not see each other's changes
def test_a_holder_stays_while_a_command_enters_its_namespaces(case: Case) -> None:
    assert case.inside()["text"]  # this process keeps its connection to the holder, which must not count
    other_process = WorldGround(case.worlds.folders, case.world)
    command = other_process._call_holder()
    assert command is not None
    with command:
        command.send(b"spaces")
        _, descriptors, _, _ = socket.recv_fds(command, 16, 2)
        assert descriptors
        for descriptor in descriptors:
            os.close(descriptor)
        with pytest.raises(WorldBusy):
            other_process.end()
    other_process.end()


def test_a_ground_that_is_never_closed_closes_its_connection(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if the garbage collector comes to the socket first, which it does if the socket is the older object: its
    warning would fail this test."""
    assert case.inside()["text"]
    line = WorldGround(case.worlds.folders, case.world)._call_holder()
    ground = WorldGround(case.worlds.folders, case.world)
    monkeypatch.setattr(ground, "_call_holder", lambda: line)
    os.close(ground.open(os.O_RDONLY))
    ground.__dict__["cycle"] = ground
