"""Random work in two worlds and in the project at once, committed in either order (W-11 to W-13): a commit does exactly
what its world's effect says, or is refused and changes nothing; the undo of each is exact."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.faults.chance import SOAK
from tests.faults.world_driver import Case
from tests.trees import tree
from tests.unit.adapters.sandbox.grounds import missing
from treadle.ports.snapshots import UndoRequest
from treadle.protocol.files import Link, Trail

NAMES = ("a", "gone", "new", "d/x", "d/y")
WORK = st.lists(
    st.tuples(st.sampled_from(("one", "two", "project")), st.sampled_from(NAMES), st.sampled_from((b"1", b"2", None))),
    min_size=1,
    max_size=8,
)


@contextmanager
def open_top(case: Case, world: str) -> Iterator[int]:
    """Anew each time, as `Root` does: a folder that stays open shows what it showed before."""
    top = case.ground(world).open(os.O_RDONLY) if world else os.open(case.project, os.O_RDONLY)
    try:
        yield top
    finally:
        os.close(top)


def change(top: int, name: str, data: bytes | None) -> None:
    """Write a file, or remove it if it is there."""
    if data is None:
        if name in _names(top):
            os.unlink(name, dir_fd=top)
        return
    if "/" in name and "d" not in os.listdir(top):
        os.mkdir("d", dir_fd=top)
    with open(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644, dir_fd=top), "wb") as file:
        file.write(data)


def _names(top: int) -> list[str]:
    names = os.listdir(top)
    if "d" in names:
        fd = os.open("d", os.O_RDONLY, dir_fd=top)
        names += [f"d/{name}" for name in os.listdir(fd)]
        os.close(fd)
    return names


def apply_paths(old_tree: dict[str, object], new_tree: dict[str, object], paths: set[str]) -> dict[str, object]:
    """The tree with these paths as they are in the other one."""
    kept_nodes = {path: node for path, node in old_tree.items() if path not in paths}
    return {**kept_nodes, **{path: node for path, node in new_tree.items() if path in paths}}


@pytest.mark.thorough(one_of=8)
@settings(
    max_examples=1_000 if SOAK else 12,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(work=WORK, turned=st.booleans())
def test_commits_in_any_order_are_their_effects_in_that_order(
    work: list[tuple[str, str, bytes | None]], turned: bool
) -> None:
    if reason := missing("view"):
        pytest.skip(reason)
    with tempfile.TemporaryDirectory() as folder:
        case = Case(Path(folder), has_world=False)
        try:
            _play(case, work, turned)
        finally:
            case.end()
            case.let_go()


def _play(case: Case, work: list[tuple[str, str, bytes | None]], turned: bool) -> None:
    (case.project / "large").write_bytes(bytes(2_000_000))
    worlds = {name: case.worlds.open(str(case.project), "", "", "").id for name in ("one", "two")}
    for id in worlds.values():
        entries = Path(case.worlds.folders.locate_world(id)).rglob("*")
        assert sum(each.lstat().st_size for each in entries) < 1_000_000, "nothing is copied until it is written"
    for place, name, data in work:
        with open_top(case, worlds.get(place, "")) as top:
            change(top, name, data)
    entries = []
    for name in ("two", "one") if turned else ("one", "two"):
        old_tree = tree(case.project)
        expected_effect = case.worlds.compute_effect(worlds[name])
        with open_top(case, worlds[name]) as top:
            inside = tree(Path(f"/proc/self/fd/{top}"))
        result = case.worlds.bring_in(f"chat/{name}", worlds[name])
        if expected_effect.conflicts:
            assert result.conflicts
            assert tree(case.project) == old_tree, "refused, and nothing changed"
            continue
        assert result.files == expected_effect.files
        assert tree(case.project) == apply_paths(old_tree, inside, {file.path for file in expected_effect.files})
        entries.append((old_tree, result))
    history = case.history(str(case.project), "", "")
    for number, (old_tree, result) in enumerate(reversed(entries)):
        trails = tuple(Trail(file.path, (Link(file.before, file.after),)) for file in result.files)
        assert not history.apply(f"undo/{number}", UndoRequest(trails)).conflicts
        assert tree(case.project) == old_tree, "the undo is exact"
