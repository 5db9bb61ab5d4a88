"""Globs: `*`, `?`, `[a-z]`, `{a,b}` and `**` for any number of directories. Linear in the path for any pattern, because
models write the patterns. Knows no files."""

import fnmatch
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import islice, pairwise

from treadle.errors import ToolError
from treadle.ports.workspace import inert

Matcher = Callable[[str], bool]
NameMatcher = Callable[[str], re.Match[str] | None]
Steps = Sequence[NameMatcher | None]
"""The names of a path, one by one; None stands for `**`."""

_ANY = "**"
_MOST = 200
"""Patterns that braces may stand for."""


def matcher(pattern: str, *, ignore_case: bool = False) -> Matcher:
    """Return a predicate that is True if a relative path matches. A pattern without a slash is matched against the last
    name alone; one that ends with a slash stands for everything below that directory."""
    alternatives = [_compile(each, ignore_case) for each in expand(pattern)]
    return alternatives[0] if len(alternatives) == 1 else lambda path: any(matches(path) for matches in alternatives)


def expand(pattern: str) -> list[str]:
    """The patterns that the braces of one stand for; `{` without an end or a comma is an ordinary character."""
    patterns = list(islice(_expanded(pattern), _MOST + 1))
    if len(patterns) > _MOST:
        raise ToolError(f"The braces in {inert(pattern)} stand for more than {_MOST} patterns; use fewer.")
    return patterns


def _expanded(pattern: str) -> Iterator[str]:
    start, end, commas = _first_braces(pattern)
    if not commas:
        yield pattern
        return
    for left, right in pairwise([start, *commas, end]):
        yield from _expanded(pattern[:start] + pattern[left + 1 : right] + pattern[end + 1 :])


def _first_braces(pattern: str) -> tuple[int, int, list[int]]:
    """Where the first pair of braces with a comma of its own begins and ends, and its commas; no commas: none."""
    open_at: list[tuple[int, list[int]]] = []
    for at, letter in enumerate(pattern):
        if letter == "{":
            open_at.append((at, []))
        elif letter == "," and open_at:
            open_at[-1][1].append(at)
        elif letter == "}" and open_at:
            start, commas = open_at.pop()
            if commas:
                return start, at, commas
    return 0, 0, []


def _compile(pattern: str, ignore_case: bool) -> Matcher:
    if pattern.endswith("/"):
        pattern += _ANY
    names = [name for name in pattern.split("/") if name not in ("", ".")]
    if len(names) <= 1 and "/" not in pattern.removeprefix("./") and names != [_ANY]:
        match = name_matcher(names[0] if names else "", ignore_case)
        return lambda path: match(path.rpartition("/")[2]) is not None
    return path_matcher([None if name == _ANY else name_matcher(name, ignore_case) for name in names])


def name_matcher(glob: str, ignore_case: bool = False) -> NameMatcher:
    """One name, without slashes."""
    # The regular expression that fnmatch makes of a glob does not backtrack from one star into another.
    return re.compile(fnmatch.translate(glob.replace("[^", "[!")), re.IGNORECASE if ignore_case else 0).match


def path_matcher(steps: Steps) -> Matcher:
    return lambda path: len(steps) in reached(steps, path.split("/"))


def reached(steps: Steps, names: Sequence[str]) -> set[int]:
    """All the ways through the pattern at once, one name of the path after the other: how many steps may be taken when
    the names are over."""
    states = _expand_states({0}, steps)
    for name in names:
        next_states: set[int] = set()
        for state in states:
            step = steps[state] if state < len(steps) else None
            if step is not None and step(name):
                next_states.add(state + 1)
            elif step is None and state < len(steps):
                next_states.add(state)
        if not next_states:
            return next_states
        states = _expand_states(next_states, steps)
    return states


def _expand_states(states: set[int], steps: Steps) -> set[int]:
    """With those that `**` leads to when it stands for nothing."""
    for state in sorted(states):
        at = state
        while at < len(steps) and steps[at] is None:
            at += 1
            states.add(at)
    return states
