"""What .gitignore files say: of one directory, and of those above the one that is searched. Reads nothing itself."""

import fnmatch
import re
from collections.abc import Iterable, Iterator, Sequence

from pathspec import GitIgnoreSpec

NAME = ".gitignore"
MAX_BYTES = 1_000_000
"""A file with more is taken for no list of patterns, and left aside."""
FOLDERS = (".git", ".hg", ".svn", ".jj")
"""Where version control keeps its own things: never searched."""


class Rules:
    """The patterns of one file, for paths relative to its directory."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._spec = GitIgnoreSpec.from_lines(line for line in lines if _is_pattern(line))

    def verdict(self, path: str, *, directory: bool) -> bool | None:
        """True: ignored · False: kept by a `!` · None: they say nothing of it."""
        return self._spec.check_file(path + "/" if directory else path).include


def lines_of(data: bytes) -> list[str]:
    text = data.decode(errors="surrogateescape").removeprefix("\ufeff")
    return [line.removesuffix("\r") for line in text.split("\n")]


def _is_pattern(line: str) -> bool:
    try:
        GitIgnoreSpec.from_lines([line])
    except ValueError:  # git does not understand it, either, and goes on
        return False
    return True


def seen_from(lines: Iterable[str], below: Sequence[str]) -> list[str]:
    """The patterns of a directory as they read from a directory further down, `below` being the names in between.
    What only speaks of the names in between is left out: a directory that is searched by name is wanted."""
    found = []
    for line in lines:
        body, mark, slash = _taken_apart(line)
        if not body:
            continue
        if "/" not in body:
            found.append(line)
            continue
        names = body.removeprefix("/").split("/")
        for rest in _rests(names, below):
            found.append(f"{mark}/{'/'.join(rest)}{slash}")
    return found


def _taken_apart(line: str) -> tuple[str, str, str]:
    """The pattern without what stands before and behind it; empty if the line has none."""
    body = line if re.search(r"\\\s+$", line) else line.rstrip()
    if body.startswith("#"):
        return "", "", ""
    mark = "!" if body.startswith("!") else ""
    body = body.removeprefix("!")
    slash = "/" if body.endswith("/") else ""
    return body.removesuffix("/"), mark, slash


def _rests(names: Sequence[str], below: Sequence[str]) -> Iterator[Sequence[str]]:
    """What is left of an anchored pattern after the names in between, in each way in which it can match them."""
    states = _closed({0}, names)
    for name in below:
        ahead = set()
        for state in states:
            if state < len(names):
                if names[state] == "**":
                    ahead.add(state)
                elif fnmatch.fnmatchcase(name, re.sub(r"\\(.)", r"[\1]", names[state])):
                    ahead.add(state + 1)
        states = _closed(ahead, names)
    for state in sorted(states):
        if any(name != "**" for name in names[state:]):
            yield names[state:]


def _closed(states: set[int], names: Sequence[str]) -> set[int]:
    for state in sorted(states):
        at = state
        while at < len(names) and names[at] == "**":
            at += 1
            states.add(at)
    return states
