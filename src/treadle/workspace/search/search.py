"""Finding files and lines below the root: starts a program in a held directory, and reads again through the root
whatever it names, so that no name and no byte from outside is ever shown, whatever is swapped meanwhile (S-01)."""

import os
import re
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from treadle.errors import ToolError
from treadle.ports.workspace import FileMatches, FileStat, Line, Matches, Paths, Query, inert
from treadle.subprocesses import Completed, Launch, held_folder, run_blocking
from treadle.workspace.paths.entries import missing
from treadle.workspace.paths.glob import Matcher, matcher
from treadle.workspace.paths.ignore import MAX_BYTES, NAME, seen_from
from treadle.workspace.paths.ignore import lines_of as rules_of
from treadle.workspace.search import engines
from treadle.workspace.search.report import FileReader, MatchReader
from treadle.workspace.search.scan import MAX_FILE, SearchJob, characters, lines_of

_NEWLINE = re.compile(r"(?<!\\)(?:\\\\)*\\[nr]")
_UNSUPPORTED = ("look-around", "backreferences")


class GuardedRoot(Protocol):
    """What is needed of the root."""

    path: str

    def stat(self, path: str) -> FileStat | None: ...
    def read_bytes(self, path: str, limit: int = 0) -> bytes: ...
    def open(self, path: str) -> AbstractContextManager[int]: ...
    def hold(self, path: str, *, exact: bool = False) -> AbstractContextManager[tuple[int, tuple[str, ...]]]: ...


class Engine:
    """Which program searches. `program` is that of ripgrep; None is our own."""

    def __init__(self, guard: GuardedRoot, program: str | None) -> None:
        self._guard = guard
        self._program = program

    def find(self, pattern: str, path: str, *, ignore_case: bool, most: int, stop: threading.Event | None) -> Paths:
        wanted = _glob(pattern, self._guard.path, ignore_case=ignore_case)
        with self._guard.hold(path, exact=True) as (fd, parts), self._inherited(parts) as rules:
            reader = FileReader(wanted, most)
            ran = self._run(SearchJob(rules=rules), reader.feed, stop, fd, parts)
        found = [_join(parts, name) for name, _ in reader.files.sorted()[:most]]
        paths = tuple(each for each in found if self._is_file(each))
        return Paths(paths, reader.files.total - len(found) + len(paths), ran.ending == "exited")

    def search(self, query: Query, stop: threading.Event | None) -> Matches:
        _require_pattern(query)
        found = self._guard.stat(query.path)
        if found is None:
            raise missing(query.path)
        if found.kind == "directory":
            return self._search_tree(query, stop)
        return self._search_file(query, stop)

    def _search_tree(self, query: Query, stop: threading.Event | None) -> Matches:
        wanted = _glob(query.include, self._guard.path) if query.include else _any
        with self._guard.hold(query.path, exact=True) as (fd, parts), self._inherited(parts) as rules:
            reader = MatchReader(wanted, query.most)
            ran = self._run(_job(query, rules=rules), reader.feed, stop, fd, parts)
        reader.close()
        return self._checked(query, reader, ran, lambda name: _join(parts, name))

    def _search_file(self, query: Query, stop: threading.Event | None) -> Matches:
        if lines_of(self._guard.read_bytes(query.path, MAX_FILE)) is None:
            raise ToolError(f"{inert(query.path)} is a binary file; it is not searched.")
        with self._guard.open(query.path) as fd:
            reader = MatchReader(_any, query.most)
            ran = self._run(_job(query, stdin=True), reader.feed, stop, stdin=fd)
        reader.close()
        return self._checked(query, reader, ran, lambda _: query.path)

    def _run(
        self,
        job: SearchJob,
        feed: Callable[[bytes], None],
        stop: threading.Event | None,
        fd: int = -1,
        parts: Sequence[str] = (),
        stdin: int = -1,
    ) -> Completed:
        launch = Launch(
            engines.command(self._program, job),
            engines.environment(),
            held_folder(fd, os.path.join(self._guard.path, *parts)) if fd >= 0 else "/",
            stdin if stdin >= 0 else subprocess.DEVNULL,
            [job.rules] if job.rules >= 0 else [],
        )
        ran = run_blocking(launch, feed, engines.TIMEOUT_S, stop)
        if ran.ending != "exited" or ran.code in (0, 1) or not ran.errors.strip():
            return ran
        if complaint := _complaint(ran.errors):
            raise ToolError(complaint)
        if self._program is None:
            raise ToolError(f"The search failed: {inert(' '.join(ran.errors.split()))}")
        self._program = None  # an ancient or broken ripgrep, which has said nothing so far
        return self._run(job, feed, stop, fd, parts, stdin)

    def _checked(self, query: Query, reader: MatchReader, ran: Completed, name_of: Callable[[str], str]) -> Matches:
        """What was found, as far as it lies inside."""
        files: list[FileMatches] = []
        total, total_files, left = reader.total, reader.files.total, query.most
        for name, counted in reader.files.sorted()[: query.most]:
            if left <= 0:
                break
            path = name_of(name)
            lines = self._lines(path, counted.first(left), query.context) if query.texts else ()
            if lines is None or not (lines or (not query.texts and self._is_file(path))):
                total, total_files = total - counted.count, total_files - 1
                continue
            files.append(FileMatches(path, counted.count, lines))
            left -= min(counted.count, left) if query.texts else 1
        return Matches(tuple(files), total_files, total, ran.ending == "exited")

    def _lines(self, path: str, found: Sequence[tuple[int, int]], context: int) -> tuple[Line, ...] | None:
        """The lines with these numbers and those around them; None if this is no text file of the project."""
        try:
            text = lines_of(self._guard.read_bytes(path, MAX_FILE))
        except ToolError:
            return None
        if text is None:
            return None
        columns = {number: column for number, column in found if number <= len(text)}
        wanted = sorted({near for number in columns for near in range(number - context, number + context + 1)})
        return tuple(
            Line(number, text[number - 1], characters(text[number - 1], columns[number] - 1))
            if number in columns
            else Line(number, text[number - 1])
            for number in wanted
            if 1 <= number <= len(text)
        )

    def _is_file(self, path: str) -> bool:
        try:
            found = self._guard.stat(path)
        except ToolError:
            return False
        return found is not None and found.kind == "file"

    @contextmanager
    def _inherited(self, parts: Sequence[str]) -> Iterator[int]:
        """A descriptor with what the directories above say is ignored, read through the root; -1: nothing."""
        rules: list[str] = []
        for depth in range(len(parts)):
            try:
                data = self._guard.read_bytes("/".join([*parts[:depth], NAME]), MAX_BYTES)
            except ToolError:
                continue
            rules += seen_from(rules_of(data), parts[depth:])
        if not rules:
            yield -1
            return
        with tempfile.TemporaryFile() as file:
            file.write("\n".join(rules).encode(errors="surrogateescape"))
            file.seek(0)
            yield file.fileno()


def engine(guard: GuardedRoot) -> Engine:
    """The fastest that is here."""
    return Engine(guard, engines.ripgrep(guard.path))


def _job(query: Query, *, rules: int = -1, stdin: bool = False) -> SearchJob:
    include = "" if stdin else query.include
    return SearchJob(query.pattern, include, query.ignore_case, query.literal, stdin, rules)


def _any(_: str) -> bool:
    return True


def _join(parts: Sequence[str], name: str) -> str:
    return "/".join([*parts, name])


def _glob(pattern: str, root: str, *, ignore_case: bool = False) -> Matcher:
    if "\0" in pattern:
        raise ToolError("A pattern cannot contain a NUL character.")
    pattern = pattern.removeprefix(root.rstrip("/") + "/") if pattern.startswith("/") else pattern
    if ".." in pattern.split("/"):
        raise ToolError(f"{inert(pattern)} leads up; give the directory as path, and a pattern below it.")
    return matcher(pattern, ignore_case=ignore_case)


def _require_pattern(query: Query) -> None:
    if not query.pattern:
        raise ToolError("The pattern is empty; give the text or regular expression to look for.")
    if "\0" in query.pattern:
        raise ToolError("A pattern cannot contain a NUL character.")
    if "\n" in query.pattern or (not query.literal and _NEWLINE.search(query.pattern)):
        raise ToolError("The pattern has a line break in it, but lines are searched one by one; look for one of them.")


def _complaint(errors: str) -> str | None:
    """What is wrong with the pattern, out of a longer explanation, and what to do; None if it is something else."""
    reasons = [line.removeprefix("error: ") for line in errors.splitlines() if line.startswith("error: ")]
    reasons = [reason for reason in reasons if not any(word in reason for word in _UNSUPPORTED)]
    reasons += re.findall(r"^PCRE2: error compiling pattern at offset \d+: (.*)", errors, re.M)
    if not reasons:
        return None
    return (
        f"The pattern is not a valid regular expression: {inert(reasons[0])}. To look for the text itself set literal "
        r"to true, or put a backslash before special characters, as in \( \[ \{ \. \* \+ \?"
    )
