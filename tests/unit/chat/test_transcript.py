"""The history that the model sees: repaired, masked, compacted, and always the same beginning (L-19 to L-21)."""

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.chat.logs import answer, chat, make_message, ran
from tests.unit.chat.player import valid_history
from treadle.base.types import make_call_key
from treadle.chat.history import IMAGE_CHARS, History, estimate_tokens, weigh
from treadle.chat.state import ChatState, Compaction
from treadle.chat.transcript import (
    LOST,
    SUMMARY_INTRO,
    build_entries,
    compute_threshold,
    estimate,
    find_recent_start,
    mask,
    rebuild,
    repair,
    select_kept_messages,
)
from treadle.protocol import events as e
from treadle.protocol.content import (
    AssistantEntry,
    Entry,
    Image,
    ResultsEntry,
    Thinking,
    ToolRequest,
    ToolResult,
    Usage,
    UserEntry,
)

A, B = make_call_key(1, 0), make_call_key(1, 1)
CALLS = AssistantEntry(1, "", (), (ToolRequest(A, "a"), ToolRequest(B, "b")))
BIG = ResultsEntry(1, (ToolResult(A, "x" * 5_000), ToolResult(B, "small")))

KEYS = st.sampled_from([A, B, make_call_key(2, 0)])
ANY_ENTRY = st.one_of(
    st.builds(UserEntry, st.sampled_from(["", "hello"])),
    st.builds(
        AssistantEntry,
        st.integers(1, 2),
        st.sampled_from(["", "text"]),
        calls=st.lists(st.builds(ToolRequest, KEYS, st.just("a")), max_size=2, unique_by=lambda c: c.call).map(tuple),
    ),
    st.builds(
        ResultsEntry, st.integers(1, 2), st.lists(st.builds(ToolResult, KEYS, st.just("ok")), max_size=3).map(tuple)
    ),
)


def repair_history(history: list[Entry]) -> list[Entry]:
    """The entries that a request would carry of this history."""
    return build_entries(ChatState(transcript=repair(history)))


@given(st.lists(ANY_ENTRY, max_size=12))
def test_any_history_is_repaired(history: list[Entry]) -> None:  # L-20
    repaired_history = repair_history(history)
    valid_history(repaired_history)
    assert repair_history(repaired_history) == repaired_history
    assert [x for x in repaired_history if isinstance(x, UserEntry)] == [x for x in history if isinstance(x, UserEntry)]


def test_a_valid_history_is_left_as_it_is() -> None:  # L-21: the same objects, so the same bytes
    history: list[Entry] = [UserEntry("go"), CALLS, BIG, AssistantEntry(2, "done")]
    assert all(a is b for a, b in zip(repair_history(history), history, strict=True))


def test_lost_results_are_said_to_be_lost_and_order_is_mended() -> None:
    swapped = ResultsEntry(1, (ToolResult(B, "b"), ToolResult(A, "a")))
    assert repair_history([CALLS, swapped])[1] == ResultsEntry(1, (ToolResult(A, "a"), ToolResult(B, "b")))
    assert repair_history([CALLS])[1] == ResultsEntry(1, (ToolResult(A, LOST, False), ToolResult(B, LOST, False)))
    half = ResultsEntry(1, (ToolResult(B, "b"),))
    assert repair_history([CALLS, half])[1] == ResultsEntry(1, (ToolResult(A, LOST, False), ToolResult(B, "b")))


def test_empty_answers_and_stray_results_are_left_out() -> None:
    assert repair_history([UserEntry("go"), AssistantEntry(1), ResultsEntry(1, (ToolResult(A, "?"),))]) == [
        UserEntry("go")
    ]


def test_masking_cuts_large_results_only() -> None:  # L-19
    masked = mask(BIG)
    assert isinstance(masked, ResultsEntry)
    assert masked.results[0].text.startswith("x" * 400 + "\n[4600 characters")
    assert masked.results[1].text == "small"
    assert mask(CALLS) is CALLS
    small = ResultsEntry(1, (ToolResult(A, "s"),))
    assert mask(small) is small


def test_a_compaction_keeps_what_people_said_and_the_newest_as_it_is() -> None:  # L-19
    history: History[Entry] = History([UserEntry("one", 2), CALLS, BIG, UserEntry("two", 9), AssistantEntry(2, "now")])
    rebuilt_history = list(rebuild(history, Compaction(3, "did things", (2,))))
    assert rebuilt_history == [
        UserEntry("one", 2),
        UserEntry(SUMMARY_INTRO + "did things", source="summary"),
        *history.slice(3),
    ]


def test_masked_without_a_summary() -> None:
    history: History[Entry] = History([UserEntry("one"), CALLS, BIG, CALLS, BIG])
    assert list(rebuild(history, Compaction(masked=3))) == [UserEntry("one"), CALLS, mask(BIG), CALLS, BIG]


def test_the_log_is_not_changed_by_a_compaction() -> None:
    completion = e.CompactionComplete("manual", summary="s", upto=2, masked=2)
    state = chat(make_message("one"), *answer(1, "a"), *ran(1), e.CompactionStart("manual"), completion)
    assert len(state.history) == 3
    assert [type(x).__name__ for x in build_entries(state)] == ["UserEntry"]


def test_the_newest_entries_that_fit_and_no_result_without_its_call() -> None:
    history: list[Entry] = [UserEntry("x" * 3_600), CALLS, BIG, AssistantEntry(2, "y" * 360)]
    assert find_recent_start(history, 10) == 4
    assert find_recent_start(history, 120) == 3
    assert find_recent_start(history, 1_600) == 1
    assert find_recent_start(history, 10**6) == 0
    assert find_recent_start([CALLS, BIG], estimate_tokens(weigh(BIG))) == 2


def test_peoples_newest_messages_stay_up_to_the_budget() -> None:
    history: list[Entry] = [UserEntry("a" * 3_600, 1), UserEntry("b", 2, "guard"), UserEntry("c", 3), UserEntry("d", 4)]
    assert select_kept_messages(history, 100) == (3, 4)
    assert select_kept_messages(history) == (1, 3, 4)


def test_where_compaction_begins() -> None:
    assert compute_threshold(200_000, 4_096) == 170_000  # 85 %
    assert compute_threshold(128_000, 16_000) == 92_000  # window - output - 20k
    assert compute_threshold(32_768, 4_096) == 16_384  # never below half


def test_the_providers_count_beats_the_estimate() -> None:
    state = chat(make_message("x" * 360))
    assert estimate(state, 3_600) == estimate_tokens(360 + 16 + 3_600)
    counted = chat(*answer(1, text="hi", usage=Usage(500, 20, reasoning=5)), state=state)
    assert estimate(counted, 3_600) == 515
    assert estimate(chat(make_message("y" * 344), state=counted), 0) == 515 + estimate_tokens(360)


def test_weights() -> None:
    assert weigh(UserEntry("abc", images=(Image("image/png", "h"),))) == 3 + 16 + IMAGE_CHARS
    assert weigh(AssistantEntry(1, "ab", (Thinking("t", "opaque"),))) == 2 + 6 + 16
    assert weigh(CALLS) == 16 + 2 * (1 + 2 + 16)
    assert weigh(ResultsEntry(1, (ToolResult(A, "abc"),))) == 19
    assert (estimate_tokens(0), estimate_tokens(1), estimate_tokens(36)) == (0, 1, 11)
