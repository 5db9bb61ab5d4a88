"""Lines that two texts share under every shortest edit script (W-02)."""

from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.diff.merge import find_certain_stretches

lines = st.lists(st.sampled_from("abc"), max_size=7)


def _pairs(old: list[str], new: list[str]) -> set[tuple[int, int]]:
    return {(i + n, j + n) for i, j, size in find_certain_stretches(old, new) for n in range(size)}


@given(lines, lines)
def test_a_pair_is_certain_if_all_longest_common_subsequences_have_it(old: list[str], new: list[str]) -> None:
    @cache
    def longest(i: int, j: int) -> frozenset[frozenset[tuple[int, int]]]:
        """All longest sets of pairs from there on."""
        if i == len(old) or j == len(new):
            return frozenset({frozenset()})
        sets = {*longest(i + 1, j), *longest(i, j + 1)}
        if old[i] == new[j]:
            sets |= {common_pairs | {(i, j)} for common_pairs in longest(i + 1, j + 1)}
        most = max(map(len, sets))
        return frozenset(each for each in sets if len(each) == most)

    assert _pairs(old, new) == frozenset.intersection(*longest(0, 0))


def test_a_line_beside_its_twin_is_not_certain() -> None:
    assert find_certain_stretches(["b", "}"], ["b", "}", "}"]) == [(0, 0, 1), (2, 3, 0)]


@pytest.mark.thorough(one_of=8)
def test_long_texts_are_compared_between_lines_that_are_there_once() -> None:
    old = [f"line {n}" if n % 10 == 0 else f"{n * n % 7}" for n in range(20_000)]
    new = [line for n, line in enumerate(old) if n % 9]
    pairs = _pairs(old, new)
    assert all(old[i] == new[j] for i, j in pairs)
    assert len(pairs) > 10_000
    assert {i for i, _ in pairs} >= {n for n in range(0, 20_000, 10) if n % 9}
