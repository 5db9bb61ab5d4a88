"""What globs mean, and that none of them takes for ever (T-04)."""

import pytest

from treadle.adapters.workspace.paths.ignore import expand, make_matcher
from treadle.errors import ToolError


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("*.py", ["a.py", "src/deep/a.py", ".py", ".a.py"], ["a.pyc", "a.PY", "py"]),
        ("a.py", ["a.py", "src/a.py"], ["ba.py", "a.py/x"]),
        ("./*.py", ["a.py", "src/a.py"], ["a.txt"]),
        ("/*.py", ["a.py"], ["src/a.py"]),
        ("src/*.py", ["src/a.py"], ["a.py", "src/deep/a.py", "lib/src/a.py"]),
        ("src/**/*.py", ["src/a.py", "src/x/y/a.py"], ["a.py", "lib/src/a.py"]),
        ("**/test_*.py", ["test_a.py", "tests/unit/test_b.py"], ["a_test.py"]),
        ("**", ["a", "b/c/d"], []),
        ("src/**", ["src/a", "src/b/c"], ["srcs/a"]),
        ("src/", ["src/a", "src/b/c"], ["lib/a"]),
        ("**/src/**/x", ["src/x", "a/src/b/c/x"], ["x", "a/x"]),
        ("*.{ts,tsx}", ["a.ts", "b/c.tsx"], ["a.t", "a.js"]),
        ("{src,lib}/**/*.{c,h}", ["src/a.c", "lib/x/b.h"], ["doc/a.c", "src/a.o"]),
        ("{a,b{c,d}}.x", ["a.x", "bc.x", "bd.x"], ["b.x", "c.x"]),
        ("{a}.x", ["{a}.x"], ["a.x"]),
        ("a?c", ["abc", "x/a-c"], ["ac", "abbc"]),
        ("[a-c]x", ["ax", "cx"], ["dx"]),
        ("[!a]x", ["bx"], ["ax"]),
        ("[^a]x", ["bx"], ["ax"]),
        ("a[", ["a["], ["a"]),
        ("foo..bar", ["foo..bar"], ["foo.bar"]),
    ],
)
def test_what_a_glob_matches(pattern: str, yes: list[str], no: list[str]) -> None:
    matches = make_matcher(pattern)
    assert [path for path in yes if not matches(path)] == []
    assert [path for path in no if matches(path)] == []


def test_case_can_be_ignored() -> None:
    assert make_matcher("SRC/*.Py", ignore_case=True)("src/A.pY")
    assert not make_matcher("SRC/*.Py")("src/A.pY")


def test_braces_are_bounded() -> None:
    assert len(expand("{a,b}{c,d}")) == 4
    with pytest.raises(ToolError, match="more than 200"):
        make_matcher("{a,b,c,d}" * 20)


@pytest.mark.timeout(120)
def test_no_pattern_takes_for_ever() -> None:  # P-07, for globs
    assert not make_matcher("*a" * 60 + "b")("a" * 255)
    assert not make_matcher("**/a/" * 40 + "b")("a/" * 200 + "c")
    assert not make_matcher("**/*a*" * 30)("x/" * 200 + "c")
