"""A shared, append-only sequence: every version sees exactly what it saw."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.chat.history import History

MOVES = st.lists(st.tuples(st.sampled_from(["append", "cut"]), st.integers(0, 9), st.integers(0, 9)), max_size=40)


@given(MOVES)
def test_versions_are_independent_lists(moves: list[tuple[str, int, int]]) -> None:
    versions: list[tuple[History[int], list[int]]] = [(History(), [])]
    for op, pick, value in moves:
        shared, plain = versions[pick % len(versions)]
        version = (
            (shared.append(value), [*plain, value]) if op == "append" else (shared.take_first(value), plain[:value])
        )
        versions.append(version)
    for shared, plain in versions:
        assert list(shared) == plain == shared.slice(0)
        assert len(shared) == len(plain)
        assert shared == History(plain)
        assert [shared[index] for index in range(-len(plain), 0)] == plain


def test_an_index_outside_is_an_error_although_the_list_behind_is_longer() -> None:
    short = History([1, 2, 3]).take_first(1)
    with pytest.raises(IndexError):
        short[1]
    with pytest.raises(IndexError):
        short[-2]


def test_equality_and_repr_are_those_of_the_items() -> None:
    assert History([1]) != History([2])
    assert History([1]) != [1]
    assert hash(History([1])) == hash(History([1]))
    assert repr(History([1, 2])) == "History([1, 2])"
