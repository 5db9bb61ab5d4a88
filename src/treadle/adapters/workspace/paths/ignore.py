"""Patterns of paths. Globs: `*`, `?`, `[a-z]`, `{a,b}` and `**` for any number of directories; linear in the path for
any pattern, because models write the patterns. And the rules of .gitignore files: of one directory, of those above the
one that is searched, and on a walk."""

import fnmatch
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice, pairwise

from treadle.adapters.workspace.paths.entries import LIST, hold_fd, read_bytes_at
from treadle.errors import ToolError
from treadle.ports.workspace import escape_name

Matcher = Callable[[str], bool]
NameMatcher = Callable[[str], re.Match[str] | None]
Steps = Sequence[NameMatcher | None]  # The names of a path, one by one; None stands for `**`

_ANY = "**"
_MOST = 200  # Patterns that braces may stand for


def make_matcher(pattern: str, *, ignore_case: bool = False) -> Matcher:
    """Return a predicate that is True if a relative path matches. A pattern without a slash is matched against the last
    name alone; one that ends with a slash stands for everything below that directory."""
    alternatives = [_compile(each, ignore_case) for each in expand(pattern)]
    return alternatives[0] if len(alternatives) == 1 else lambda path: any(matches(path) for matches in alternatives)


def expand(pattern: str) -> list[str]:
    """The patterns that the braces of one stand for; `{` without an end or a comma is an ordinary character."""
    patterns = list(islice(_expand_braces(pattern), _MOST + 1))
    if len(patterns) > _MOST:
        raise ToolError(f"The braces in {escape_name(pattern)} stand for more than {_MOST} patterns; use fewer.")
    return patterns


def _expand_braces(pattern: str) -> Iterator[str]:
    start, end, commas = _find_first_braces(pattern)
    if not commas:
        yield pattern
        return
    for left, right in pairwise([start, *commas, end]):
        yield from _expand_braces(pattern[:start] + pattern[left + 1 : right] + pattern[end + 1 :])


def _find_first_braces(pattern: str) -> tuple[int, int, list[int]]:
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
        match = make_name_matcher(names[0] if names else "", ignore_case)
        return lambda path: match(path.rpartition("/")[2]) is not None
    return make_path_matcher([None if name == _ANY else make_name_matcher(name, ignore_case) for name in names])


def make_name_matcher(glob: str, ignore_case: bool = False) -> NameMatcher:
    # The regular expression that fnmatch makes of a glob does not backtrack from one star into another.
    return re.compile(fnmatch.translate(glob.replace("[^", "[!")), re.IGNORECASE if ignore_case else 0).match


def make_path_matcher(steps: Steps) -> Matcher:
    return lambda path: len(steps) in find_reached_states(steps, path.split("/"))


def find_reached_states(steps: Steps, names: Sequence[str]) -> set[int]:
    """All the ways through the pattern at once, name by name: how many steps may be taken when the names are over."""
    states = _expand_states({0}, steps)
    for name in names:
        inner = [(state, steps[state]) for state in states if state < len(steps)]
        stays = {state for state, step in inner if step is None}
        states = _expand_states(stays | {state + 1 for state, step in inner if step is not None and step(name)}, steps)
        if not states:
            break
    return states


def _expand_states(states: set[int], steps: Steps) -> set[int]:
    """With those that `**` leads to when it stands for nothing."""
    for at in sorted(states):
        while at < len(steps) and steps[at] is None:
            at += 1
            states.add(at)
    return states


NAME = ".gitignore"
MAX_BYTES = 1_000_000  # A file with more is taken for no list of patterns, and left aside
FOLDERS = (".git", ".hg", ".svn", ".jj")  # Where version control keeps its own things: never searched
_DEEPEST = 100  # Folders that lie deeper are not looked for


_Rule = tuple[Matcher, bool, bool]  # what it matches; whether it ignores that; whether it is for directories only


class Rules:
    """The patterns of one file, for paths relative to its directory. The entries of an ignored one are not covered."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._rules = [rule for line in lines if (rule := _parse_rule(line)) is not None][::-1]

    def find_verdict(self, path: str, *, directory: bool) -> bool | None:
        """True: ignored · False: kept by a `!` · None: they say nothing of it. The last word counts."""
        rules = (rule for rule in self._rules if (directory or not rule[2]) and rule[0](path))
        return next((ignores for _, ignores, _ in rules), None)


def decode_rule_lines(data: bytes) -> list[str]:
    text = data.decode(errors="surrogateescape").removeprefix("\ufeff")
    return [line.removesuffix("\r") for line in text.split("\n")]


def _parse_rule(line: str) -> _Rule | None:
    body, mark, slash = _split_line(line)
    if not body:
        return None
    names = body.removeprefix("/").split("/")
    if names[-1] == _ANY:  # all that lies in it, not the directory itself
        names.append("*")
    if "/" not in body and len(names) == 1:
        match = _compile_name(body)
        return lambda path: match(path.rpartition("/")[2]) is not None, not mark, bool(slash)
    return make_path_matcher(_compile_steps(names)), not mark, bool(slash)


def _compile_name(glob: str) -> NameMatcher:
    """With a backslash before what is meant as it stands."""
    return make_name_matcher(re.sub(r"\\(.)", lambda each: f"[{each[1]}]" if each[1] in "*?[" else each[1], glob))


def rebase_patterns(lines: Iterable[str], below: Sequence[str]) -> list[str]:
    """The patterns of a directory as they read from a directory further down, `below` being the names in between.
    Patterns that only match names in between are left out: a directory that is searched by name is wanted."""
    patterns = []
    for line in lines:
        body, mark, slash = _split_line(line)
        if body and "/" not in body:
            patterns.append(line)
        elif body:
            # The rest of an anchored pattern after the names in between, for each way in which it can match them.
            names = body.removeprefix("/").split("/")
            rests = [names[state:] for state in sorted(find_reached_states(_compile_steps(names), below))]
            patterns += [f"{mark}/{'/'.join(rest)}{slash}" for rest in rests if any(name != _ANY for name in rest)]
    return patterns


def _split_line(line: str) -> tuple[str, str, str]:
    """The pattern without what stands before and behind it; empty if the line has none."""
    body = line if re.search(r"\\\s+$", line) else line.rstrip()
    if body.startswith("#"):
        return "", "", ""
    mark = "!" if body.startswith("!") else ""
    body = body.removeprefix("!")
    slash = "/" if body.endswith("/") else ""
    return body.removesuffix("/"), mark, slash


def _compile_steps(names: Sequence[str]) -> Steps:
    return [None if name == _ANY else _compile_name(name) for name in names]


class Ignoring:
    """The rules that hold in a folder: its own, and weaker those above."""

    def __init__(self, sources: tuple[tuple[Rules, int], ...] = (), *, all: bool = False) -> None:
        self._sources, self._all = sources, all

    def inherit_ignored(self, ignored: bool) -> "Ignoring":
        """In a folder that is itself ignored, everything is."""
        return self if ignored == self._all or self._all else type(self)(all=True)

    def add_folder_rules(self, prefix: str, folder: int | None) -> "Ignoring":
        """With what the folder of this path itself says. `prefix` ends with a slash, but for the root's."""
        data = None if self._all or folder is None else read_bytes_at(folder, NAME, MAX_BYTES)
        if data is None:
            return self
        return type(self)(((Rules(decode_rule_lines(data)), len(prefix)), *self._sources))

    def covers(self, path: str, *, directory: bool) -> bool:
        if self._all or path.partition("/")[0] in FOLDERS:
            return self._all
        verdicts = (rules.find_verdict(path[start:], directory=directory) for rules, start in self._sources)
        return next((verdict for verdict in verdicts if verdict is not None), False)


def list_ignored_folders(top: int, most: int) -> list[str]:
    """The folders below an open one that are ignored, without those that lie in ignored ones, at most so many."""
    paths: list[str] = []

    def search_folder(folder: int, prefix: str, rules: Ignoring) -> None:
        rules = rules.add_folder_rules(prefix, folder)
        with os.scandir(folder) as entries:
            names = sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
        for name in names:
            if len(paths) >= most or prefix.count("/") > _DEEPEST:
                return
            if name in FOLDERS:
                continue
            if rules.covers(prefix + name, directory=True):
                paths.append(prefix + name)
                continue
            with suppress(OSError), hold_fd(os.open(name, LIST, dir_fd=folder)) as fd:  # else closed, or just gone
                search_folder(fd, f"{prefix}{name}/", rules)

    search_folder(top, "", Ignoring())
    return paths
