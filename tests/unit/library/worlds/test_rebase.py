"""Random work in a world and in the project, then a rebase (W-13), in worlds of layers and in copies: a change of only
one of them is taken, changes of both are merged line by line, or it is refused and nothing is changed. Afterwards a
commit gives the project what the world shows."""

import tempfile
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.faults.chance import SOAK
from tests.faults.world_driver import Case, contents
from tests.trees import tree
from tests.unit.adapters.sandbox.grounds import missing
from tests.writing import write
from treadle.errors import Conflict

Text = tuple[int, int]
"""The first line of a file and its last line; far enough from each other to be merged."""
NAMES = ("a", "b", "d/x", "d/e/y", "new", "d/new")
TEXTS = st.none() | st.tuples(st.integers(0, 2), st.integers(0, 2))
WORK = st.lists(st.tuples(st.booleans(), st.sampled_from(NAMES), TEXTS), min_size=1, max_size=8)
BASE: dict[str, Text] = {"a": (0, 0), "b": (0, 0), "d/x": (0, 0), "d/e/y": (0, 0)}


def text(lines: Text) -> bytes:
    return f"{lines[0]}\n-\n-\n-\n{lines[1]}\n".encode()


def merge_versions(base: Text | None, ours: Text | None, theirs: Text | None) -> Text | None:
    """Merge the versions of a file. Raises Conflict if both changed the same line."""
    if theirs in (base, ours):
        return ours
    if ours == base:
        return theirs
    if base is None or ours is None or theirs is None:
        raise Conflict("one made or removed it")
    (one, two) = (_line(each) for each in zip(base, ours, theirs, strict=True))
    return one, two


def _line(each: tuple[int, int, int]) -> int:
    base, ours, theirs = each
    if base not in (ours, theirs) and ours != theirs:
        raise Conflict("the same line")
    return theirs if ours == base else ours


@pytest.mark.thorough(one_of=8)
@pytest.mark.parametrize("method", ["overlay", "copy"])
@settings(
    max_examples=1_000 if SOAK else 12, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow]
)
@given(work=WORK)
@example(work=[(True, "a", (1, 0)), (False, "a", (0, 2)), (False, "d/e/y", None), (True, "d/new", (1, 1))])
@example(work=[(True, "a", None), (True, "a", (0, 0)), (False, "a", None)])
@example(work=[(False, name, None) for name in BASE])
@example(work=[(True, "d/x", None), (True, "d/e/y", None), (False, "d/new", (1, 1)), (False, "b", (2, 2))])
def test_a_rebase_is_the_merge_of_both_or_changes_nothing(
    method: str, work: list[tuple[bool, str, Text | None]]
) -> None:
    if method == "overlay" and (reason := missing("view")):
        pytest.skip(reason)
    with tempfile.TemporaryDirectory() as folder:
        case = Case(Path(folder), method, has_world=False)
        try:
            _play(case, work)
        finally:
            case.end()
            case.let_go()


def _play(case: Case, work: list[tuple[bool, str, Text | None]]) -> None:
    (case.project / "gone").unlink()
    for name, lines in BASE.items():
        (case.project / name).parent.mkdir(parents=True, exist_ok=True)
        (case.project / name).write_bytes(text(lines))
    case.world = case.worlds.open(str(case.project), "", "", "").id
    ours, theirs = dict[str, Text | None](BASE), dict[str, Text | None](BASE)
    inside_names = {name for inside, name, _ in work if inside}
    history = case.history(str(case.project), "", case.world)
    for inside, name, lines in sorted(work, key=lambda step: not step[0]):  # through layers one sees what came first
        (ours if inside else theirs)[name] = lines
        if inside:
            write(history.root, name, None if lines is None else text(lines), into=history)
        else:
            _write(case.project, name, lines)
    case.end()  # mounted anew: what a mount once did not find it may not find later
    old_contents, project = case.inside(), tree(case.project)
    try:
        case.worlds.rebase(case.world)
    except Conflict:
        assert case.inside() == old_contents, "refused, and nothing changed"
        assert tree(case.project) == project
        assert any(_clash(BASE.get(name), ours.get(name), theirs.get(name)) for name in NAMES)
        return
    assert tree(case.project) == project
    new_contents = case.inside()
    for name in NAMES:
        was, mine, yours = BASE.get(name), ours.get(name), theirs.get(name)
        content = new_contents.get(name)
        if None in (mine, yours) and mine != yours and was not in (mine, yours):
            assert content == text(mine or yours or (0, 0)), "what was changed is not lost because another removed it"
        elif was is not None and mine == was and yours is None and name in inside_names:
            assert content in (None, text(was)), "made anew as it was, and removed elsewhere: nothing is lost"
        else:
            expected = merge_versions(was, mine, yours)
            assert content == (None if expected is None else text(expected)), name
    result = case.worlds.bring_in("chat/1", case.world)
    assert not result.conflicts
    assert contents(tree(case.project)) == new_contents
    assert not case.worlds.compute_effect(case.world).files


def _clash(*states: Text | None) -> bool:
    with suppress(Conflict):
        merge_versions(*states)
        return False
    return True


def _write(project: Path, name: str, lines: Text | None) -> None:
    """As a person does it: an empty folder goes with its last file."""
    path = project / name
    if lines is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text(lines))
        return
    path.unlink(missing_ok=True)
    for folder in path.relative_to(project).parents[:-1]:
        with suppress(OSError):
            (project / folder).rmdir()


Version = tuple[bytes, int]
"""The content of a file, and its mode."""
PLAIN = text((0, 0))


@pytest.mark.parametrize("how", ["overlay", "copy"])
@pytest.mark.parametrize(
    ("base", "ours", "theirs"),
    [
        pytest.param(*((text(lines) + b"\0", 0o644) for lines in ((0, 0), (1, 0), (0, 2))), id="binary"),
        pytest.param((PLAIN, 0o644), (PLAIN, 0o755), (PLAIN, 0o600), id="mode"),
    ],
)
def test_a_rebase_refuses_binary_files_and_modes_that_both_changed(  # W-13
    tmp_path: Path, how: str, base: Version, ours: Version, theirs: Version
) -> None:
    if how == "overlay" and (reason := missing("view")):
        pytest.skip(reason)
    case = Case(tmp_path, how, has_world=False)
    file = case.project / "a"
    _save(file, base)
    case.world = case.worlds.open(str(case.project), "", "", "").id
    try:
        history = case.history(str(case.project), "", case.world)
        write(history.root, "a", *ours, into=history)
        _save(file, theirs)
        with pytest.raises(Conflict, match="cannot be merged: a"):
            case.worlds.rebase(case.world)
        state = history.read_state("a")
        assert state is not None
        assert (history.root.read_bytes("a"), state.mode) == ours, "refused, and nothing changed"
        assert (file.read_bytes(), file.stat().st_mode & 0o777) == theirs
    finally:
        case.end()
        case.let_go()


def _save(file: Path, version: Version) -> None:
    file.write_bytes(version[0])
    file.chmod(version[1])
