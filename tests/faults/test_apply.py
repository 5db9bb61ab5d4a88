"""A worker is killed at every point of applying a block to a file: the next one goes on, the file is written once, and
no model is asked (L-18, D-02)."""

import signal
from pathlib import Path

import pytest

from tests.faults.chance import some
from tests.faults.driver import WAITING
from tests.faults.harness import Case
from tests.faults.test_every_point import every_passing, list_passings, new_case
from treadle.protocol.events import ExecutionComplete, FilesChanged, RunEnd, UserMessage
from treadle.testing.fake_openai import FakeOpenAI, Reply

pytestmark = pytest.mark.thorough(one_of=8)

ANSWER = [Reply(text="Like this:\n```\nfresh\n```\n")]
SHARDS = 2


def make_answered_case(folder: Path, fake: FakeOpenAI) -> Case:
    case = new_case(folder, fake, apply="made/new.txt")
    assert case.go() == WAITING, case.errors()
    return case


def check_applied(case: Case) -> None:
    case.check()
    assert (case.root / "made/new.txt").read_text() == "fresh\n"
    log = [envelope.data for envelope in case.log()]
    assert [each.source for each in log if isinstance(each, UserMessage)] == ["person", "apply"]
    assert [each.success for each in log if isinstance(each, ExecutionComplete)] == [True]
    assert sum(isinstance(each, FilesChanged) for each in log) == 1
    assert [each.reason for each in log if isinstance(each, RunEnd)] == ["done", "done"]
    assert len(case.fake.requests) == 1


@pytest.mark.thorough(one_of=8)
@pytest.mark.parametrize("shard", range(SHARDS))
def test_killed_at_every_point_it_is_applied_once(shard: int, tmp_path: Path) -> None:
    with FakeOpenAI(ANSWER) as fake:
        undisturbed_case = make_answered_case(tmp_path / "listed", fake)
        points = list_passings(undisturbed_case, 1)
        check_applied(undisturbed_case)
    names = {name for _, name, _ in points}
    assert names >= {"append.before:user.message", "tool.before:write_file", "tool.write_after", "lease.claimed"}
    struck = list(enumerate(p for p in points if every_passing(p, points)))[shard::SHARDS]
    for index, point in some(struck, 2, f"apply {shard}"):
        _, name, passing = point
        with FakeOpenAI(ANSWER) as fake:
            case = make_answered_case(tmp_path / str(index), fake)
            code = case.go(faults=f"kill@{name}#{passing}")
            assert code == -signal.SIGKILL or (name.startswith("store.") and passing > 1), (point, case.errors())
            case.finish()
            check_applied(case)
