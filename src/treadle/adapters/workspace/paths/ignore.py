"""The rules of .gitignore files: of one directory, of those above the one that is searched, and on a walk."""

import os
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress

import msgspec

from treadle.adapters.workspace.paths.entries import LIST, bytes_at, closing_fd
from treadle.adapters.workspace.paths.glob import Matcher, NameMatcher, Steps, name_matcher, path_matcher, reached

NAME = ".gitignore"
MAX_BYTES = 1_000_000
"""A file with more is taken for no list of patterns, and left aside."""
FOLDERS = (".git", ".hg", ".svn", ".jj")
"""Where version control keeps its own things: never searched."""
_ANY = "**"
_DEEPEST = 100
"""Folders that lie deeper are not looked for."""


class _Rule(msgspec.Struct, frozen=True):
    matches: Matcher
    ignores: bool
    directories_only: bool


class Rules:
    """The patterns of one file, for paths relative to its directory. They do not cover the entries of an ignored
    directory: a walk does not enter it."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._rules = [rule for line in lines if (rule := _rule(line)) is not None][::-1]

    def verdict(self, path: str, *, directory: bool) -> bool | None:
        """True: ignored · False: kept by a `!` · None: they say nothing of it. The last word counts."""
        for rule in self._rules:
            if (directory or not rule.directories_only) and rule.matches(path):
                return rule.ignores
        return None


def lines_of(data: bytes) -> list[str]:
    text = data.decode(errors="surrogateescape").removeprefix("\ufeff")
    return [line.removesuffix("\r") for line in text.split("\n")]


def _rule(line: str) -> _Rule | None:
    body, mark, slash = _taken_apart(line)
    if not body:
        return None
    names = body.removeprefix("/").split("/")
    if names[-1] == _ANY:  # all that lies in it, not the directory itself
        names.append("*")
    if "/" not in body and len(names) == 1:
        match = _name(body)
        return _Rule(lambda path: match(path.rpartition("/")[2]) is not None, not mark, bool(slash))
    return _Rule(path_matcher(_steps(names)), not mark, bool(slash))


def _name(glob: str) -> NameMatcher:
    """With a backslash before what is meant as it stands."""
    return name_matcher(re.sub(r"\\(.)", lambda each: f"[{each[1]}]" if each[1] in "*?[" else each[1], glob))


def seen_from(lines: Iterable[str], below: Sequence[str]) -> list[str]:
    """The patterns of a directory as they read from a directory further down, `below` being the names in between.
    Patterns that only match names in between are left out: a directory that is searched by name is wanted."""
    patterns = []
    for line in lines:
        body, mark, slash = _taken_apart(line)
        if not body:
            continue
        if "/" not in body:
            patterns.append(line)
            continue
        # The rest of an anchored pattern after the names in between, for each way in which it can match them.
        names = body.removeprefix("/").split("/")
        rests = [names[state:] for state in sorted(reached(_steps(names), below))]
        patterns += [f"{mark}/{'/'.join(rest)}{slash}" for rest in rests if any(name != _ANY for name in rest)]
    return patterns


def _taken_apart(line: str) -> tuple[str, str, str]:
    """The pattern without what stands before and behind it; empty if the line has none."""
    body = line if re.search(r"\\\s+$", line) else line.rstrip()
    if body.startswith("#"):
        return "", "", ""
    mark = "!" if body.startswith("!") else ""
    body = body.removeprefix("!")
    slash = "/" if body.endswith("/") else ""
    return body.removesuffix("/"), mark, slash


def _steps(names: Sequence[str]) -> Steps:
    return [None if name == _ANY else _name(name) for name in names]


class Ignoring:
    """The rules that hold in a folder: its own, and weaker those above."""

    def __init__(self, sources: tuple[tuple[Rules, int], ...] = (), *, all: bool = False) -> None:
        self._sources, self._all = sources, all

    def under(self, ignored: bool) -> "Ignoring":
        """In a folder that is itself ignored, everything is."""
        return self if ignored == self._all or self._all else type(self)(all=True)

    def within(self, prefix: str, folder: int | None) -> "Ignoring":
        """With what the folder of this path itself says. `prefix` ends with a slash, but for the root's."""
        data = None if self._all or folder is None else bytes_at(folder, NAME, MAX_BYTES)
        if data is None:
            return self
        return type(self)(((Rules(lines_of(data)), len(prefix)), *self._sources))

    def covers(self, path: str, *, directory: bool) -> bool:
        if self._all:
            return True
        if path.partition("/")[0] in FOLDERS:
            return False
        for rules, start in self._sources:
            verdict = rules.verdict(path[start:], directory=directory)
            if verdict is not None:
                return verdict
        return False


def ignored_folders(top: int, most: int) -> list[str]:
    """The folders below an open one that are ignored, without those that lie in ignored ones, at most so many."""
    paths: list[str] = []
    _find_ignored(top, "", Ignoring(), paths, most)
    return paths


def _find_ignored(folder: int, prefix: str, rules: Ignoring, paths: list[str], most: int) -> None:
    rules = rules.within(prefix, folder)
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
        with suppress(OSError), closing_fd(os.open(name, LIST, dir_fd=folder)) as fd:  # else closed to us, or just gone
            _find_ignored(fd, f"{prefix}{name}/", rules, paths, most)
