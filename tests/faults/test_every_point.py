"""The promise itself: strike at every point that a scenario passes, resume, and nothing was lost or done twice
(fault 1; D-01, D-03, D-04). A first run lists the points; then each passing of each point has a case of its own: some
of them by chance in `make test`, all of them in `make soak`."""

import signal
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.faults.chance import SOAK, some
from tests.faults.driver import FAILED, IDLE, WAITING
from tests.faults.harness import Case
from tests.faults.scenarios import COMMAND_OUTCOMES, LAST_WORDS, SCENARIOS
from tests.trees import tree
from treadle.protocol.events import AssistantMessage, ExecutionComplete, RunEnd
from treadle.testing.fake_openai import FakeOpenAI

pytestmark = pytest.mark.thorough(one_of=12)

SHARDS = 6 if SOAK else 1
ONE_OF = 6
"""Of the points that a scenario passes, one of so many is struck in `make test`."""
SHORT_LEASE = {"lease_s": 0.25, "renew_s": 0.08}
DELAY_S = 0.4
ONCE_A_MACHINE = ("sandbox.probed", "sandbox.file_written")
"""Points that only the first of all runs passes: a later strike would wait for them in vain."""
EXPECTED = {
    "append.after:assistant.message",
    "append.before:user.message",
    "lease.claimed",
    "model.first_delta",
    "store.before_commit",
}

Point = tuple[int, str, int]
"""The visit in which it is passed, its name, and which passing of it."""

Wanted = Callable[[Point, list[Point]], bool]
Passed = Callable[[str], list[Point]]

each = pytest.mark.parametrize(
    ("scenario", "shard"),
    [(name, shard) for name in SCENARIOS for shard in range(SHARDS)],
    ids=lambda value: str(value),
)


def list_passings(case: Case, first_visit: int = 0) -> list[Point]:
    """Every passing of every point in an undisturbed run, visit by visit, from visit `first_visit` on."""
    points: list[Point] = []
    code = WAITING
    number = first_visit
    while code == WAITING:
        file = case.folder / f"points.{number}"
        code = case.go(faults=f"list={file}")
        passings: Counter[str] = Counter()
        for name in file.read_text().split():
            if name in ONCE_A_MACHINE:
                continue
            passings[name] += 1
            points.append((number, name, passings[name]))
        number += 1
    assert code == IDLE, case.errors()
    return points


@pytest.fixture(scope="module")
def list_points(tmp_path_factory: pytest.TempPathFactory) -> Passed:
    """The points that a scenario passes, listed once for all tests of a process."""

    @cache
    def points(scenario: str) -> list[Point]:
        with FakeOpenAI(SCENARIOS[scenario]) as fake:
            first = Case(tmp_path_factory.mktemp(scenario), fake, undo=scenario == "undo")
            points = list_passings(first)
            first.check()
        assert {name for _, name, _ in points} >= EXPECTED
        return points

    return points


def cases(
    scenario: str, points: list[Point], shard: int, tmp_path: Path, predicate: Wanted, **settings: float
) -> Iterator[tuple[Case, Point, FakeOpenAI]]:
    """The cases of one shard, each at the visit in which its point is passed."""
    selection = list(enumerate(point for point in points if predicate(point, points)))[shard::SHARDS]
    for index, point in some(selection, ONE_OF, f"{scenario} {shard}"):
        with FakeOpenAI(SCENARIOS[scenario]) as fake:
            case = new_case(tmp_path / str(index), fake, undo=scenario == "undo", **settings)
            for _ in range(point[0]):
                assert case.go() == WAITING, case.errors()
            yield case, point, fake


def new_case(folder: Path, fake: FakeOpenAI, **settings: float) -> Case:
    folder.mkdir()
    return Case(folder, fake, **settings)


def check_outcome(case: Case, scenario: str, point: Point) -> None:
    """Beside the checker: the run came to its end, and what it did is what it says."""
    try:
        case.check()
        log = case.log()
        words = [event.data.content for event in log if isinstance(event.data, AssistantMessage)]
        assert words[-1] == LAST_WORDS[scenario]
        assert [event.data.reason for event in log if isinstance(event.data, RunEnd)] == ["done"]
        completions = {event.data.call: event.data for event in log if isinstance(event.data, ExecutionComplete)}
        if scenario == "work":
            assert (case.root / "made/new.txt").read_text() == "fresh\n"
            assert completions["2.0"].success
        if scenario == "undo":
            assert tree(case.root) == {"notes.txt": ("file", 0o644, b"one\ntwo\n")}
        if call := COMMAND_OUTCOMES.get(scenario):
            is_known = completions[call].success and not completions[call].synthetic
            assert is_known or scenario == "approval", "a command's end is always known (D-02)"
            assert is_known or completions[call].synthetic == "unknown"
            assert scenario == "undo" or case.counter.exists() or not is_known, "it has a result and never ran"
    except AssertionError as error:
        raise AssertionError(f"{scenario}, struck at {point}: {error}\n{case.story()}\n{case.errors()}") from error


def every_passing(point: Point, points: list[Point]) -> bool:
    """Commits lie between the points around an append: of those the first and the last of a visit are enough."""
    visit, name, passing = point
    return not name.startswith("store.") or passing == 1 or (visit, name, passing + 1) not in points


def once_a_visit(point: Point, _points: list[Point]) -> bool:
    return point[2] == 1


def once(point: Point, points: list[Point]) -> bool:
    """Each name once, and none before the chat is there to be taken over."""
    start_index = points.index((0, "append.after:user.message", 1))
    return points.index(point) > start_index and next(p for p in points[start_index:] if p[1] == point[1]) == point


OWN = ("permission", "user_input", "deploy", "transaction", "restore", "snapshot", "workspace.")


def once_and_own(point: Point, points: list[Point]) -> bool:
    """Points that only this scenario passes: the others are struck in "work"."""
    return once(point, points) and is_own_point(point)


def is_own_point(point: Point) -> bool:
    return any(word in point[1] for word in OWN)


@each
def test_killed_at_every_point_it_resumes_and_nothing_happens_twice(
    scenario: str, shard: int, list_points: Passed, tmp_path: Path
) -> None:
    predicate = (
        every_passing
        if scenario == "work"
        else lambda point, points: every_passing(point, points) and is_own_point(point)
    )
    for case, point, _ in cases(scenario, list_points(scenario), shard, tmp_path, predicate):
        _, name, passing = point
        code = case.go(faults=f"kill@{name}#{passing}")
        # How many commits there are is a matter of timing: what waits at the same moment shares one.
        assert code == -signal.SIGKILL or (name.startswith("store.") and passing > 1), (point, code, case.errors())
        case.finish()
        check_outcome(case, scenario, point)


@each
def test_an_exception_at_any_point_leaves_a_usable_chat(
    scenario: str, shard: int, list_points: Passed, tmp_path: Path
) -> None:
    predicate = (
        once_a_visit
        if scenario == "work"
        else lambda point, points: once_a_visit(point, points) and is_own_point(point)
    )
    for case, point, _ in cases(scenario, list_points(scenario), shard, tmp_path, predicate):
        _, name, passing = point
        assert case.go(faults=f"raise@{name}#{passing}") in (IDLE, WAITING, FAILED), point
        case.finish()
        case.check()
        ends = [event.data.reason for event in case.log() if isinstance(event.data, RunEnd)]
        if ends[-1] == "error":  # the fault ended the run, with a word about it; the next one does the rest
            code = case.go(action="again")
            assert code in (IDLE, WAITING), (point, case.errors())
            if code == WAITING:
                case.finish()
            case.check()
        words = [event.data.content for event in case.log() if isinstance(event.data, AssistantMessage)]
        assert words[-1] == LAST_WORDS[scenario], (point, case.story())


@each
def test_a_worker_delayed_past_its_lease_is_refused_and_its_successor_finishes(
    scenario: str, shard: int, list_points: Passed, tmp_path: Path
) -> None:
    """Fault 1c, D-03. Both are clients as well: each must have seen the whole log, also the other's events (D-04)."""
    predicate = once if scenario == "work" else once_and_own
    for case, point, _ in cases(scenario, list_points(scenario), shard, tmp_path, predicate, **SHORT_LEASE):
        _, name, passing = point
        delayed = case.start_until(name, passing, extra_faults=f"delay@{name}#{passing}={DELAY_S}", seen="zombie.jsonl")
        successor = case.start(action="resume", seen="successor.jsonl")
        codes = (case.end(delayed), case.end(successor))
        assert set(codes) <= {IDLE, WAITING}, (point, codes, case.errors(), case.story())
        case.finish()
        if scenario == "undo":
            assert list(tree(case.root)) == ["notes.txt"], (point, case.story())
        case.check(also=("zombie.jsonl", "successor.jsonl"))
