"""From logs to spans: the spans of every chat are whole trees, and every reader makes the same ones."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.scenario.scenes import SCENES, World
from treadle.adapters.stores.memory import MemoryStore
from treadle.adapters.telemetry.projection import EVERY_MS, ROOT, RUN, Portion, Projection, Span
from treadle.base.types import CallKey, ChatId
from treadle.library.transfer import read_chat
from treadle.protocol import events as e
from treadle.protocol.content import Usage
from treadle.protocol.events import Envelope, Event

CHAT = ChatId("c_0123456789abcdef")


def portions(log: Sequence[Envelope], *, include_content: bool = False) -> list[Portion]:
    projection = Projection(log[0].chat, include_content=include_content)
    return [portion for one in log if (portion := projection.take(one)) is not None]


def by_trace(portion_list: Sequence[Portion]) -> dict[int, list[Span]]:
    traces: dict[int, list[Span]] = {}
    for portion in portion_list:
        traces.setdefault(portion.trace.first, []).extend(portion.spans)
    return traces


@pytest.mark.thorough(one_of=8)
@pytest.mark.parametrize("name", SCENES)
async def test_every_run_that_ended_is_one_whole_tree(name: str, tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    world = World(MemoryStore(), tmp_path / "project")
    log = await read_chat(world.store, await SCENES[name](world))
    portion_list = portions(log, include_content=True)
    for spans in by_trace(portion_list).values():
        keys = Counter(span.key for span in spans)
        assert [key for key, times in keys.items() if times > 1] == []
        if RUN in keys:
            assert [span.name for span in spans if span.parent not in keys and span.parent != ROOT] == []
            assert [span.key for span in spans if span.parent == ROOT] == [RUN]
        assert [span.name for span in spans if not 0 < span.start_ms <= span.end_ms] == []
    trace_starts = {portion.trace.first for portion in portion_list if isinstance(log[portion.seq - 1].data, e.RunEnd)}
    runs = sum(isinstance(one.data, e.RunEnd) for one in log)
    assert len(trace_starts) == runs
    assert _again(log, portion_list) == portion_list


def _again(log: Sequence[Envelope], portion_list: Sequence[Portion]) -> list[Portion]:
    """As they are made by workers that each begin to read at the run in which a portion ends."""
    rebuilt_portions = []
    for portion in portion_list:
        projection = Projection(log[0].chat, include_content=True)
        rebuilt_portions += [
            again
            for one in log[portion.trace.first - 1 : portion.seq]
            if (again := projection.take(one)) is not None and again.seq == portion.seq
        ]
    return rebuilt_portions


def test_a_long_run_is_shown_in_portions_of_whole_turns() -> None:
    log = make_log(
        (0, e.UserMessage("go")),
        (0, e.TurnStart(1, "acme:one")),
        (4_000, e.AssistantMessage(1, usage=Usage(1, 1))),
        (4_000, e.TurnEnd(1)),
        (4_000, e.TurnStart(2, "acme:one")),
        (EVERY_MS, e.AssistantMessage(2)),
        (EVERY_MS, e.TurnEnd(2)),
        (EVERY_MS, e.TurnStart(3, "acme:one")),
        (EVERY_MS + 5, e.AssistantMessage(3)),
        (EVERY_MS + 5, e.TurnEnd(3)),
        (EVERY_MS + 5, e.RunEnd("done")),
    )
    assert [[span.key for span in portion.spans] for portion in portions(log)] == [
        ["chat turn 1 1", "turn 1", "chat turn 2 1", "turn 2"],
        ["chat turn 3 1", "turn 3", "run"],
    ]


def test_a_call_that_was_lost_with_its_worker_is_an_attempt_of_its_own() -> None:
    log = make_log(
        (0, e.UserMessage("go")),
        (0, e.TurnStart(1, "acme:one", Usage(500, 500))),
        (60_000, e.TurnRetry(1, 1, "worker_lost", usage=Usage(500, 500))),
        (61_000, e.AssistantMessage(1, "Hi.", usage=Usage(10, 2))),
        (61_000, e.TurnEnd(1)),
        (61_000, e.RunEnd("done")),
    )
    lost_span, retry_span, *_ = (span for portion in portions(log) for span in portion.spans)
    assert (lost_span.error, lost_span.start_ms, lost_span.end_ms) == ("worker_lost", 1_000, 61_000)
    assert "gen_ai.usage.input_tokens" not in lost_span.attributes  # reserved, not used
    assert (retry_span.error, retry_span.start_ms, retry_span.end_ms) == ("", 61_000, 62_000)


def test_an_attempt_that_was_never_made_is_no_span() -> None:
    log = make_log(
        (0, e.UserMessage("go")),
        (0, e.TurnStart(1, "acme:one")),
        (5, e.TurnRetry(1, 1, "quota", usage=Usage(5, 5))),
        (5, e.SessionError("quota", "no more")),
        (5, e.TurnEnd(1)),
        (5, e.RunEnd("error")),
    )
    (portion,) = portions(log)
    assert [(span.name, span.error) for span in portion.spans] == [
        ("chat one", "quota"),
        ("turn 1", ""),
        ("invoke_agent treadle", "quota"),
    ]


def test_the_time_in_the_queue_is_until_a_worker_writes() -> None:
    log = make_log(
        (0, e.UserMessage("go")),
        (700, e.TurnStart(1, "acme:one")),
        (900, e.AssistantMessage(1)),
        (900, e.UserInputRequested("a", "Which?")),
        (5_000, e.UserInputCompleted("a", "this")),
        (5_250, e.TurnEnd(1)),
        (5_250, e.RunEnd("done")),
    )
    assert [portion.queued for portion in portions(log)] == [(0.7,), (0.25,)]


def test_names_that_a_model_made_up_cannot_harm_who_looks() -> None:  # S-12
    log = make_log(
        (0, e.UserMessage("go")),
        (0, e.ExecutionStart(CallKey("1.0"), "evil\x1b[2J\n" + "x" * 500)),
        (0, e.RunEnd("done")),
    )
    name = portions(log)[0].spans[0].name
    assert "\x1b" not in name
    assert "\n" not in name
    assert len(name) <= 80


def make_log(*events: tuple[int, Event]) -> list[Envelope]:
    of_people = (e.UserMessage, e.UserInputCompleted)
    return [
        Envelope(seq, CHAT, 1_000 + at, event, 0 if isinstance(event, of_people) else 1)
        for seq, (at, event) in enumerate(events, 1)
    ]
