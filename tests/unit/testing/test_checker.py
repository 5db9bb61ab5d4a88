"""A checker that cannot fail is worthless: a sound chat passes, and each way of breaking it is told apart."""

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from treadle import Agent, ScriptedModel
from treadle.adapters.models.scripted import Call
from treadle.adapters.stores.memory import MemoryStore
from treadle.base.types import ChatId
from treadle.chat import snapshot
from treadle.chat.fold import fold_all
from treadle.chat.state import ChatState, build_summary
from treadle.ports.store import Commit, Snapshot
from treadle.protocol import events as e
from treadle.protocol import wire
from treadle.protocol.commands import Rename
from treadle.protocol.events import Envelope
from treadle.testing import checker

Log = list[Envelope]


@pytest.fixture
async def sound(tmp_path: Path) -> tuple[MemoryStore, ChatId, Log]:
    """A real chat of two turns with two calls, driven by the real loop."""
    (tmp_path / "a.txt").write_text("a")
    store = MemoryStore()
    model = ScriptedModel([[Call("read_file", path="a.txt"), Call("list_directory", path=".")], "Done."])
    agent = Agent(store, model=model)
    chat = agent.chat(root=str(tmp_path))
    await chat.ask("Look.")
    return store, chat.id, await chat.events()


async def test_a_sound_chat_has_no_problems(sound: tuple[MemoryStore, ChatId, Log]) -> None:
    store, chat, log = sound
    assert await checker.check(store, chat) == []
    assert checker.check_seen(log, log) == []
    assert checker.check_seen([wire.to_json(envelope) for envelope in log], log) == []


@pytest.mark.parametrize("method", ["read", "get", "load_snapshot"])
async def test_an_event_that_is_added_while_it_reads_is_no_problem(
    sound: tuple[MemoryStore, ChatId, Log], monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    store, chat, log = sound
    read = getattr(store, method)
    titles = iter(["First", "Second"])

    async def add_title_and_read(*args: Any, **options: Any) -> Any:
        found = await read(*args, **options)
        for title in titles:
            await Agent(store, model=ScriptedModel([])).chat(chat).command(Rename(title))
            break
        return found

    monkeypatch.setattr(store, method, add_title_and_read)
    assert await checker.check(store, chat) == []
    assert len(await store.read(chat)) == len(log) + 2


def _index(log: Log, kind: type[e.Event]) -> int:
    return next(place for place, envelope in enumerate(log) if isinstance(envelope.data, kind))


def _renumber_log(envelopes: Sequence[Envelope]) -> Log:
    return [replace(envelope, seq=seq) for seq, envelope in enumerate(envelopes, 1)]


def _without(kind: type[e.Event]) -> Callable[[Log], Log]:
    def change(log: Log) -> Log:
        place = _index(log, kind)
        return _renumber_log([*log[:place], *log[place + 1 :]])

    return change


def _repeat_event(kind: type[e.Event]) -> Callable[[Log], Log]:
    def change(log: Log) -> Log:
        place = _index(log, kind)
        return _renumber_log([*log[: place + 1], *log[place:]])

    return change


def _late_result(log: Log) -> Log:
    place = _index(log, e.ExecutionComplete)
    return _renumber_log([*log[:place], *log[place + 1 :], log[place]])


def _swapped_intents(log: Log) -> Log:
    place = _index(log, e.ExecutionStart)
    return _renumber_log([*log[:place], log[place + 1], log[place], *log[place + 2 :]])


def _early_end(log: Log) -> Log:
    """The end of the first turn stands right behind its message."""
    end = next(envelope for envelope in log if isinstance(envelope.data, e.TurnEnd))
    other_events = [envelope for envelope in log if envelope is not end]
    place = next(i for i, envelope in enumerate(other_events) if isinstance(envelope.data, e.AssistantMessage))
    return [*other_events[: place + 1], end, *other_events[place + 1 :]]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (_without(e.ExecutionComplete), "has no result before"),
        (_repeat_event(e.ExecutionComplete), "has 2 results"),
        (_without(e.ExecutionStart), "a result without an intent"),
        (_repeat_event(e.ExecutionStart), "was not to be started"),
        (_without(e.AssistantMessage), "which nobody requested"),
        (_late_result, "has no result before"),
        (_swapped_intents, "was started after a later one"),
    ],
)
async def test_results_that_are_wrong(
    change: Callable[[Log], Log], expected: str, sound: tuple[MemoryStore, ChatId, Log]
) -> None:
    assert any(expected in problem for problem in checker.check_results(change(sound[2])))


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (_repeat_event(e.TurnStart), "a second assistant.turn_start"),
        (_repeat_event(e.AssistantMessage), "a second assistant.message"),
        (_without(e.TurnStart), "which did not start"),
        (_without(e.TurnEnd), "ended before its turn 1 did"),
        (_early_end, "turn 1 ended before its call 1.0"),
        (_without(e.RunEnd), "the last run did not end"),
        (_repeat_event(e.RunEnd), "had ended before"),
        (_without(e.UserMessage), "outside of a run"),
    ],
)
async def test_turns_that_are_wrong(
    change: Callable[[Log], Log], expected: str, sound: tuple[MemoryStore, ChatId, Log]
) -> None:
    assert any(expected in problem for problem in checker.check_turns(change(sound[2])))


async def test_a_chat_in_the_middle_is_sound_but_not_settled(sound: tuple[MemoryStore, ChatId, Log]) -> None:
    log = sound[2]
    half = log[: _index(log, e.ExecutionComplete)]
    assert checker.check_results(half, is_idle=False) == []
    assert checker.check_turns(half, is_idle=False) == []
    assert checker.check_results(half) != []
    assert checker.check_turns(half) != []


async def test_a_gap_a_repetition_and_an_old_epoch(sound: tuple[MemoryStore, ChatId, Log]) -> None:
    records = [wire.encode(envelope) for envelope in sound[2]]
    assert checker.check_sequence(records) == []
    assert checker.check_sequence([*records[:3], *records[4:]])
    assert checker.check_sequence([*records[:3], records[2], *records[3:]])
    zombie = [*records[:4], replace(records[4], epoch=7), *records[5:]]
    assert any("after epoch 7 had written" in problem for problem in checker.check_sequence(zombie))


async def test_a_summary_that_does_not_fit_the_log(sound: tuple[MemoryStore, ChatId, Log]) -> None:
    store, chat, log = sound
    state = fold_all(ChatState(chat=chat), log)
    assert checker.check_summary(state, build_summary(state)) == []
    assert checker.check_summary(state, replace(build_summary(state), turns=9)) == [
        "the stored summary says turns = 9, the log says 2"
    ]
    await store.append(Commit(chat, [], replace(build_summary(state), runnable=True), durable=True))
    assert any("runnable" in problem for problem in await checker.check(store, chat))


async def test_a_snapshot_that_does_not_fit_the_log(sound: tuple[MemoryStore, ChatId, Log]) -> None:
    store, chat, log = sound
    wrong = fold_all(ChatState(chat=chat), log[:-2])
    body = snapshot.encode(replace(wrong, title="another"))
    assert checker.check_folds(chat, log) == []
    assert checker.check_folds(chat, log, body) != []
    assert checker.check_folds(chat, log, b"no snapshot") != []
    await store.save_snapshot(chat, Snapshot(wrong.head, body))
    assert any("snapshot" in problem for problem in await checker.check(store, chat))


async def test_a_client_that_saw_something_else(sound: tuple[MemoryStore, ChatId, Log]) -> None:
    log = sound[2]
    assert checker.check_seen(log[:-1], log) == [f"the client never saw [{len(log)}]"]
    assert checker.check_seen([*log, log[-1]], log)
    assert checker.check_seen([log[1], log[0], *log[2:]], log)
    assert any("not in the log" in problem for problem in checker.check_seen(log, log[:-1]))
    changed_log = [*log[:1], replace(log[1], data=e.UserMessage("something else")), *log[2:]]
    assert any("another event" in problem for problem in checker.check_seen(changed_log, log))
    live = Envelope(0, log[0].chat, 0, e.MessageDelta(1, "Do"))
    assert checker.check_seen([live, *log, live], log) == []


def test_an_effect_that_happened_twice(tmp_path: Path) -> None:
    counter = tmp_path / "counter"
    assert checker.check_effects(counter) == []
    counter.write_text("a\nb\n")
    assert checker.check_effects(counter) == []
    counter.write_text("a\nb\na\n")
    assert checker.check_effects(counter) == ["counter: 'a' happened 2 times"]


@pytest.mark.parametrize("deed", ["change", "add", "remove", "mode", "link"])
def test_a_canary_tells_what_was_touched(deed: str, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text(name)
    (tmp_path / "link").symlink_to("a")
    canary = checker.Canary(tmp_path)
    assert canary.find_problems() == []
    match deed:
        case "change":
            (tmp_path / "a").write_text("x")
        case "add":
            (tmp_path / "c").mkdir()
        case "remove":
            (tmp_path / "a").unlink()
        case "mode":
            (tmp_path / "a").chmod(0o600)
        case "link":
            (tmp_path / "link").unlink()
            (tmp_path / "link").symlink_to("b")
    assert len(canary.find_problems()) == 1


def test_a_process_that_was_left_behind(tmp_path: Path) -> None:
    mark = f"TREADLE_TEST_MARK={tmp_path}"
    assert checker.check_processes(mark) == []
    environment = {**os.environ, "TREADLE_TEST_MARK": str(tmp_path)}
    process = subprocess.Popen(
        [sys.executable, "-c", "print('up', flush=True); input()"],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with process:
        assert process.stdout is not None
        process.stdout.readline()
        assert len(checker.check_processes(mark)) == 1
        assert checker.check_processes(mark, allowed=[process.pid]) == []
        assert process.stdin is not None
        process.stdin.close()
    assert checker.check_processes(mark) == []
