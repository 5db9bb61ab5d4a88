"""`treadle worker`: real processes that share a database; one takes over the chats of another (A-08, A-10, D-03)."""

import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.scenario.command_line import CommandLine, CommandResult, end
from treadle import DynamicTool
from treadle.base.types import ChatId
from treadle.protocol import events as e
from treadle.protocol.commands import Send
from treadle.protocol.events import Envelope
from treadle.sync import Agent, Chat
from treadle.testing.checker import check

pytestmark = pytest.mark.thorough(one_of=8)

WAIT = (
    '[[turn]]\ncall = [{ name = "run_command", '
    'args = { command = "echo began >> count; while [ ! -e go ]; do sleep 0.02; done" } }]\n'
)
SAY = '[[turn]]\ntext = "All done."\n'
TIMEOUT_S = 90.0


def until(fact: Callable[[], Any], description: str) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not fact():
        assert time.monotonic() < deadline, f"never: {description}"
        time.sleep(0.02)


class Place:
    """The command line, and a look at its database that drives nothing."""

    def __init__(self, cli: CommandLine) -> None:
        self.cli = cli
        self.agent = Agent(cli.home / "treadle.db", home=cli.home)
        self._workers: list[subprocess.Popen[str]] = []

    def write(self, model: str, **options: Any) -> Chat:
        """A chat with a message in it, from a process that does not work on it."""
        # Commands write through, so that the test can see how far they are, and they can see the test.
        options = {"auto_approve_commands": True, "verify": False, "command_view": False} | options
        chat = self.agent.chat(model=model, root=str(self.cli.project), **options)
        chat.open()
        self.run(self.agent._wrapped.deps.log.execute(ChatId(chat.id), Send("Work.")))
        return chat

    def run(self, work: Any) -> Any:
        return self.agent._loop.run(work)

    def worker(self, *arguments: str, **env: str) -> "subprocess.Popen[str]":
        process = self.cli.start("worker", *arguments, env=env)
        self._workers.append(process)
        assert process.stderr is not None
        assert "takes up to" in process.stderr.readline()
        return process

    def stop(self, worker: "subprocess.Popen[str]", times: int = 1) -> CommandResult:
        worker.terminate()
        if times > 1:
            assert worker.stderr is not None
            assert "draining" in worker.stderr.readline()
            worker.terminate()
        return end(worker)

    def is_leased(self, chat: Chat) -> bool:
        return bool(self.run(self.agent._wrapped.deps.store.get(ChatId(chat.id))).leased)

    def of(self, chat: Chat, kind: type[Any]) -> list[Any]:
        return [envelope.data for envelope in chat.events() if isinstance(envelope.data, kind)]

    def read_idle_log(self, chat: Chat) -> list[Envelope]:
        """The log of the chat once it is idle, which holds what must hold of it."""
        until(lambda: self.of(chat, e.RunEnd), "the run ends")
        until(lambda: not self.is_leased(chat), "the lease is given back")
        assert self.run(check(self.agent._wrapped.deps.store, ChatId(chat.id))) == []
        return chat.events()

    def close(self) -> None:
        (self.cli.project / "go").touch()
        for worker in self._workers:
            if worker.poll() is None:
                worker.send_signal(signal.SIGCONT)
                worker.kill()
                worker.communicate()
        self.agent.close()


@pytest.fixture
def place(cli: CommandLine) -> Iterator[Place]:
    new_place = Place(cli)
    yield new_place
    new_place.close()


def count(place: Place) -> Path:
    return place.cli.project / "count"


def test_a_worker_takes_what_others_wrote_and_ends_when_it_is_told_to(place: Place) -> None:
    model = place.cli.script(SAY)
    early_chat = place.write(model)
    assert early_chat.status() == "pending"
    worker = place.worker()
    late_chat = place.write(model)
    for chat in (early_chat, late_chat):
        assert place.read_idle_log(chat)[-1].data == e.RunEnd("done")
    stop_result = place.stop(worker)
    assert (stop_result.code, stop_result.err) == (0, "treadle: draining; a second signal leaves at once\n")


@pytest.mark.thorough(one_of=8)
def test_what_a_worker_has_no_room_for_stays_pending_and_another_takes_it(place: Place) -> None:
    model = place.cli.script(WAIT + SAY)
    chats = [place.write(model) for _ in range(3)]
    place.worker("--concurrency", "1")
    until(lambda: [chat.status() for chat in chats].count("running") == 1, "one is taken")
    until(count(place).exists, "its command runs")
    assert sorted(chat.status() for chat in chats) == ["pending", "pending", "running"]
    place.worker("--concurrency", "1")
    until(lambda: count(place).read_text().count("began") == 2, "the other takes another")
    assert sorted(chat.status() for chat in chats) == ["pending", "running", "running"]
    (place.cli.project / "go").touch()
    for chat in chats:
        place.read_idle_log(chat)
    assert count(place).read_text() == "began\n" * 3


def test_a_signal_lets_the_step_be_recorded_and_begins_no_other(place: Place) -> None:  # fault 17
    chat = place.write(place.cli.script(WAIT + SAY))
    worker = place.worker()
    until(count(place).exists, "the command runs")
    worker.terminate()
    assert worker.stderr is not None
    assert "draining" in worker.stderr.readline()
    (place.cli.project / "go").touch()
    assert end(worker).code == 0
    (result,) = place.of(chat, e.ExecutionComplete)
    assert (result.success, result.synthetic) == (True, "")
    assert len(place.of(chat, e.AssistantMessage)) == 1
    assert not place.is_leased(chat)
    assert chat.status() == "pending"
    place.worker()
    place.read_idle_log(chat)
    assert count(place).read_text() == "began\n"
    assert not place.of(chat, e.TurnRetry)


def test_a_second_signal_leaves_at_once_and_the_command_is_collected(place: Place) -> None:  # fault 17
    chat = place.write(place.cli.script(WAIT + SAY))
    worker = place.worker()
    until(count(place).exists, "the command runs")
    assert place.stop(worker, times=2).code == 0
    assert not place.is_leased(chat)
    assert not place.of(chat, e.ExecutionComplete)
    place.worker()
    (place.cli.project / "go").touch()
    place.read_idle_log(chat)
    (result,) = place.of(chat, e.ExecutionComplete)
    assert (result.success, result.synthetic) == (True, "")
    assert count(place).read_text() == "began\n"


def test_a_model_call_that_takes_too_long_is_left_to_the_next_worker(place: Place) -> None:  # fault 17
    chat = place.write(place.cli.script('[[turn]]\ntext = "A long answer."\nhang = true\n'))
    worker = place.worker("--drain-s", "0")
    until(lambda: chat.status() == "running", "it is taken")
    assert place.stop(worker).code == 0
    assert not place.is_leased(chat)
    place.cli.script(SAY)
    place.worker()
    place.read_idle_log(chat)
    assert [message.content for message in place.of(chat, e.AssistantMessage)] == ["All done."]


def test_what_a_killed_worker_drove_is_taken_over_at_once(place: Place) -> None:  # D-03, fault 4
    chat = place.write(place.cli.script(WAIT + SAY))
    worker = place.worker()
    until(count(place).exists, "the command runs")
    second_worker = place.worker()
    worker.kill()
    end(worker)
    (place.cli.project / "go").touch()
    place.read_idle_log(chat)
    assert count(place).read_text() == "began\n"
    assert {envelope.epoch for envelope in chat.events()} == {0, 1, 2}
    assert place.stop(second_worker).code == 0


def test_a_deadline_fires_although_nobody_comes(place: Place) -> None:
    """The worker that asked is gone; the one that comes later finds the time over."""
    model = place.cli.script('[[turn]]\ncall = [{ name = "lookup", args = {} }]\n' + SAY)
    chat = place.write(model, dynamic_tools=(DynamicTool("lookup"),), action_deadline_s=0.2)
    first = place.worker()
    until(lambda: place.of(chat, e.ExternalToolRequested), "the tool is asked for")
    first.kill()
    end(first)
    place.worker()
    place.read_idle_log(chat)
    (result,) = place.of(chat, e.ExecutionComplete)
    assert result.synthetic == "deadline"
