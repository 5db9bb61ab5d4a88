"""Two workers and one chat: one writes, the zombie is refused, and what it started is taken over (fault 4; D-03)."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.faults.driver import IDLE, MARK, WAITING
from tests.faults.harness import Case, eventually
from tests.faults.scenarios import SCENARIOS, SLOW
from treadle.protocol.events import AssistantMessage, ExecutionComplete, RunEnd
from treadle.testing.checker import check_processes
from treadle.testing.fake_openai import FakeOpenAI

pytestmark = pytest.mark.thorough(one_of=8)

SHORT_LEASE = {"lease_s": 0.3, "renew_s": 0.1}


@pytest.fixture
def slow(tmp_path: Path) -> Iterator[Case]:
    with FakeOpenAI(SLOW) as fake:
        case = Case(tmp_path, fake, direct=True, **SHORT_LEASE)
        yield case
        (tmp_path / "root" / "go").touch()


@pytest.mark.thorough(one_of=8)
def test_a_worker_stopped_past_its_lease_is_refused_and_its_command_is_taken_over(slow: Case) -> None:
    zombie = slow.start_until("tool.command_started", seen="zombie.jsonl")
    slow.until(slow.counter.exists)
    os.kill(zombie, signal.SIGSTOP)
    assert check_processes(f"{MARK}={slow.mark}"), "the command should still run"

    successor = slow.start_until("recovery.settled", action="resume")
    (slow.root / "go").touch()
    assert slow.end(successor) == IDLE
    taken_over = slow.log()
    (result,) = [event.data for event in taken_over if isinstance(event.data, ExecutionComplete)]
    assert result.synthetic == ""
    assert result.result.startswith("(no output)\n[changed in the project]\nA counter +1\n")
    assert not check_processes(f"{MARK}={slow.mark}", allowed=[zombie])
    assert {event.epoch for event in taken_over} == {0, 1, 2}

    os.kill(zombie, signal.SIGCONT)
    assert slow.end(zombie) == IDLE  # as a client it has seen the end that its successor brought about
    assert slow.log() == taken_over, "the zombie wrote something"
    slow.check(also=["zombie.jsonl"])


def test_a_worker_that_lives_keeps_its_lease_for_as_long_as_it_takes(slow: Case) -> None:
    """Renewal: two lease times go by, another process asks for the chat all the time, and does not get it."""
    slow.visit = replace(slow.visit, lease_s=3.0)
    first = slow.start_until("tool.command_started")
    second = slow.start(action="resume", seen="other.jsonl")
    time.sleep(6)  # the fact to be shown is that nothing happens meanwhile
    (slow.root / "go").touch()
    assert (slow.end(first), slow.end(second)) == (IDLE, IDLE)
    slow.check(also=["other.jsonl"])
    log = slow.log()
    assert [event.data.success for event in log if isinstance(event.data, ExecutionComplete)] == [True]
    assert {event.epoch for event in log} == {0, 1}


@pytest.mark.thorough(one_of=8)
@pytest.mark.parametrize("round_", range(4))
def test_of_many_who_take_a_chat_at_once_one_drives_it_and_all_see_it(round_: int, tmp_path: Path) -> None:
    with FakeOpenAI(SCENARIOS["work"]) as fake:
        case = Case(tmp_path, fake)
        killed = case.go(faults=f"kill@append.after:user.message#{1}")
        assert killed == -signal.SIGKILL
        names = [f"client{number}.jsonl" for number in range(4)]
        pids = [case.start(action="resume", seen=name) for name in names]
        assert [case.end(pid) for pid in pids] == [WAITING] * 4, case.errors()
        case.finish()
        case.check(also=names)
        assert case.counter.read_text() == "ran\n"


@pytest.mark.thorough(one_of=8)
def test_a_cancelled_run_is_not_continued_after_a_crash_and_a_crashed_one_is(slow: Case) -> None:
    """Fault 22. The worker dies in mid-command; then a client asks for a stop and dies at the moment it is recorded."""
    worker = slow.start_until("tool.command_started")
    slow.until(slow.counter.exists)
    os.kill(worker, signal.SIGKILL)
    slow.end(worker)
    stopped = slow.go(action="interrupt", faults="kill@append.after:session.interrupted")
    assert stopped == -signal.SIGKILL
    assert slow.log()[-1].type == "session.interrupted"
    (slow.root / "go").touch()

    slow.finish()
    slow.check()
    log = slow.log()
    assert [event.data.reason for event in log if isinstance(event.data, RunEnd)] == ["interrupted"]
    assert len([event for event in log if isinstance(event.data, AssistantMessage)]) == 1
    assert len(slow.fake.requests) == 1, "a stopped run asked the model again"

    assert slow.go() == IDLE  # and however often it is looked at, it stays so
    assert slow.log() == log
    assert slow.go(action="again") == IDLE  # but it is usable
    slow.check()


def test_a_crashed_run_is_continued(slow: Case) -> None:
    """Fault 22, the other half."""
    worker = slow.start_until("tool.command_started")
    slow.until(slow.counter.exists)
    os.kill(worker, signal.SIGKILL)
    slow.end(worker)
    (slow.root / "go").touch()
    slow.finish()
    slow.check()
    log = slow.log()
    assert [event.data.reason for event in log if isinstance(event.data, RunEnd)] == ["done"]
    assert [event.data.content for event in log if isinstance(event.data, AssistantMessage)][-1] == "That was it."


@pytest.mark.parametrize("point", ["append.before:session.interrupted", "store.before_commit"])
def test_a_stop_that_was_not_recorded_did_not_happen(point: str, slow: Case) -> None:
    """Fault 22: killed a moment before, the run is a crashed one and goes on."""
    worker = slow.start_until("tool.command_started")
    os.kill(worker, signal.SIGKILL)
    slow.end(worker)
    assert slow.go(action="interrupt", faults=f"kill@{point}") == -signal.SIGKILL
    (slow.root / "go").touch()
    slow.finish()
    slow.check()
    assert [event.data.reason for event in slow.log() if isinstance(event.data, RunEnd)] == ["done"]


def test_an_interrupt_from_another_process_stops_the_command_and_all_of_it(slow: Case) -> None:
    """L-07: recorded first, then torn down; the worker that runs it sees it in the log."""
    worker = slow.start_until("tool.command_started", seen="worker.jsonl")
    slow.until(slow.counter.exists)
    assert slow.go(action="interrupt") == IDLE
    assert slow.end(worker) == IDLE
    assert not eventually(lambda: check_processes(f"{MARK}={slow.mark}"))
    slow.check(also=["worker.jsonl"])
    types = [event.type for event in slow.log()]
    assert types.index("session.interrupted") < types.index("tool.execution_complete")


@pytest.mark.parametrize("point", ["model.before_call", "model.first_delta"])
def test_a_run_that_is_stopped_after_its_worker_died_in_a_model_call_ends_that_turn(point: str, tmp_path: Path) -> None:
    """Every turn that starts ends (L-02), and what the lost call may have cost is counted (fault 30)."""
    with FakeOpenAI(SLOW) as fake:
        case = Case(tmp_path, fake)
        assert case.go(faults=f"kill@{point}") == -signal.SIGKILL
        assert case.go(action="interrupt") == IDLE
        case.check()
        log = case.log()
        types = [event.type for event in log]
        assert types[-3:] == ["assistant.turn_retry", "assistant.turn_end", "session.run_end"]
        assert log[-3].data.error_class == "worker_lost"
        assert log[-3].data.usage.tokens > 0
