"""The loop guard (L-10, fault 25): repetition without progress, and nothing else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.chat.guard import LONGEST_CYCLE, WINDOW, Repetition, compute_signature, describe, find


@pytest.mark.parametrize(
    ("signatures", "finding"),
    [
        ("", None),
        ("aa", None),
        ("aaa", Repetition(1, 3)),
        ("baaaaa", Repetition(1, 5)),
        ("aaab", None),
        ("ababab", Repetition(2, 3)),
        ("xabcdeabcdeabcde", Repetition(5, 3)),
        ("abcdefabcdefabcdef", None),  # a cycle of six is no cycle
        ("aaaaaaaaaa", Repetition(1, 10)),
        ("aabaabaab", Repetition(3, 3)),
    ],
)
def test_cycles(signatures: str, finding: Repetition | None) -> None:
    assert find(tuple(signatures)) == finding


@given(st.lists(st.integers(0, 10**9), unique=True, max_size=50))
def test_different_calls_never_fire(numbers: list[int]) -> None:
    """Fifty edits in a row are legitimate work."""
    assert find([compute_signature("edit_file", f'{{"n":{number}}}', "done") for number in numbers]) is None


@given(
    st.lists(st.sampled_from("abc"), min_size=1, max_size=LONGEST_CYCLE), st.integers(3, 5), st.text("xyz", max_size=9)
)
def test_every_short_cycle_is_found(cycle: list[str], repeats: int, prefix: str) -> None:
    repetition = find((*prefix, *cycle * repeats))
    assert repetition is not None
    assert repetition.repeats >= repeats
    assert repetition.length * repetition.repeats <= max(WINDOW, len(prefix) + len(cycle) * repeats)


def test_a_signature_is_call_arguments_and_result() -> None:
    base = compute_signature("a", "{}", "ok")
    assert base == compute_signature("a", "{}", "ok")
    assert (
        len(
            {
                base,
                compute_signature("b", "{}", "ok"),
                compute_signature("a", "{ }", "ok"),
                compute_signature("a", "{}", "no"),
            }
        )
        == 4
    )
    assert compute_signature("ab", "c", "") != compute_signature("a", "bc", "")
    assert compute_signature("a", "{}", "\ud800")  # broken text is no reason to fall over


def test_the_model_is_told_what_it_does() -> None:
    assert "the same call 3 times" in describe(Repetition(1, 3))
    assert "the same 2 calls 4 times" in describe(Repetition(2, 4))
