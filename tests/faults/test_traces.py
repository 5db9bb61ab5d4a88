"""A run that was killed and resumed by other processes is one tree in a collector: nothing is missing, nothing came
twice, nothing has lost its parent (E-04)."""

import signal
from collections import Counter
from pathlib import Path

import pytest

from tests.collector import Collector
from tests.faults.chance import some
from tests.faults.driver import IDLE, WAITING
from tests.faults.harness import Case
from tests.faults.scenarios import SCENARIOS
from tests.faults.test_every_point import Point, list_passings
from treadle.protocol import events as e
from treadle.testing.fake_openai import FakeOpenAI

pytestmark = pytest.mark.thorough(one_of=8)

ONE_OF = 20
_ENDS = e.RunEnd | e.PermissionRequested | e.ExternalToolRequested | e.UserInputRequested


def names(collector: Collector) -> Counter[str]:
    """Without attempts that were lost with their worker."""
    lost_spans = [span for span in collector.spans if span.attributes.get("error.type") == "worker_lost"]
    return Counter(span.name for span in collector.spans if span not in lost_spans)


@pytest.mark.thorough(one_of=8)
@pytest.mark.parametrize("scenario", ["work", "approval"])
def test_a_run_that_is_killed_anywhere_is_one_tree(scenario: str, tmp_path: Path) -> None:
    with FakeOpenAI(SCENARIOS[scenario]) as fake, Collector() as collector:
        (tmp_path / "whole").mkdir()
        points = list_passings(Case(tmp_path / "whole", fake, collector=collector.url))
        span_counts = names(collector)
        assert collector.problems() == []
        assert len({span.trace for span in collector.spans}) == 1
    start_index = points.index((0, "append.after:user.message", 1))
    for point in some([point for point in points[start_index:] if point[2] == 1], ONE_OF, scenario):
        (tmp_path / str(points.index(point))).mkdir()
        strike(point, Counter(span_counts), tmp_path / str(points.index(point)), scenario)


def strike(point: Point, span_counts: Counter[str], folder: Path, scenario: str) -> None:
    visit, name, passing = point
    with FakeOpenAI(SCENARIOS[scenario]) as fake, Collector() as collector:
        case = Case(folder, fake, collector=collector.url)
        for _ in range(visit):
            assert case.go() == WAITING
        start_seq = case.log()[-1].seq if visit else 0
        if case.go(faults=f"kill@{name}#{passing}") != -signal.SIGKILL:
            return  # the points that it passes differ a little from time to time
        if any(isinstance(one.data, _ENDS) for one in case.log()[start_seq:]):
            return  # a portion had ended and may not have been sent: as far as a kill allows
        while (code := case.go()) == WAITING:
            pass
        assert code == IDLE, case.errors()
        report = f"killed at {point}\n" + "\n".join(collector.tree()) + "\n" + case.story()
        assert collector.problems() == [], report
        assert names(collector) == span_counts, report
        assert len({span.trace for span in collector.spans}) == 1, report
        tenures = {one.epoch for one in case.log() if one.epoch}
        assert collector.one("invoke_agent treadle").moments.count("treadle.worker") == len(tenures), report
