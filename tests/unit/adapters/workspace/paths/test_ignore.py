"""Rules of a directory as they read further down: the same verdicts as from above."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.adapters.workspace.paths.ignore import Rules, decode_rule_lines, rebase_patterns


@pytest.mark.parametrize(
    ("line", "below", "expected"),
    [
        ("*.o", ["src"], ["*.o"]),
        ("build/", ["src"], ["build/"]),
        ("!keep", ["src"], ["!keep"]),
        ("/src/*.log", ["src"], ["/*.log"]),
        ("src/*.log", ["src"], ["/*.log"]),
        ("/lib/*.log", ["src"], []),
        ("/src", ["src"], []),
        ("/src/", ["src", "a"], []),
        ("src/**", ["src"], []),
        ("src/**/x", ["src", "a"], ["/**/x", "/x"]),
        ("**/a/b", ["src", "a"], ["/**/a/b", "/a/b", "/b"]),
        ("!/s*/x/", ["src"], ["!/x/"]),
        (r"/\#src/y", ["#src"], ["/y"]),
        ("# /src/x", ["src"], []),
        ("", ["src"], []),
        ("/src/x  ", ["src"], ["/x"]),
    ],
)
def test_rules_seen_from_below(line: str, below: list[str], expected: list[str]) -> None:
    assert rebase_patterns([line], below) == expected


NAMES = st.sampled_from(["a", "b", "ab", "c.o"])
SEGMENTS = st.sampled_from(["a", "b", "*", "a*", "**", "*.o", "?"])
PATTERNS = st.builds(
    lambda mark, lead, segments, tail: mark + lead + "/".join(segments) + tail,
    st.sampled_from(["", "!"]),
    st.sampled_from(["", "/"]),
    st.lists(SEGMENTS, min_size=1, max_size=3),
    st.sampled_from(["", "/"]),
)


@given(st.lists(PATTERNS, max_size=4), st.lists(NAMES, min_size=1, max_size=2), NAMES, st.booleans())
def test_the_same_verdict_from_above_and_from_below(
    lines: list[str], below: list[str], name: str, directory: bool
) -> None:
    """For what lies right in a searched directory: rules that speak of the way there aside, nothing changes."""
    rules = [line for line in lines if not line.strip("!/").endswith("**") and not _speaks_of(line, below)]
    above = Rules(rules).find_verdict("/".join([*below, name]), directory=directory)
    assert Rules(rebase_patterns(rules, below)).find_verdict(name, directory=directory) == above


def _speaks_of(line: str, below: list[str]) -> bool:
    ways = ["/".join(below[:depth]) for depth in range(1, len(below) + 1)]
    bare = Rules([line.removeprefix("!")])
    return any(bare.find_verdict(way, directory=True) for way in ways)


def test_lists_are_read_whatever_is_in_them() -> None:
    rules = Rules(decode_rule_lines(b"\xef\xbb\xbf*.o\r\n\xff\n[\n/\n!\n\\\n  \nx y\n"))
    assert rules.find_verdict("a.o", directory=False) is True
    assert rules.find_verdict("x y", directory=False) is True
    assert rules.find_verdict("z", directory=False) is None
