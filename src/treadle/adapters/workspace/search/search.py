"""Finds files and lines below the root: starts a program in a held directory, and reads again through the root
everything that the program names, so that no name and no byte from outside is ever shown, even if a folder is swapped
meanwhile (S-01)."""

import codecs
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

import msgspec

from treadle.adapters.workspace.paths.entries import missing
from treadle.adapters.workspace.paths.glob import Matcher, matcher
from treadle.adapters.workspace.paths.ignore import MAX_BYTES, NAME, seen_from
from treadle.adapters.workspace.paths.ignore import lines_of as rules_of
from treadle.adapters.workspace.search import engines
from treadle.adapters.workspace.search.engines import FileReader, MatchReader
from treadle.adapters.workspace.search.scan import (
    MAX_FILE,
    SearchJob,
    characters,
    inherit,
    inherited_rules,
    is_supported,
    is_utf8,
    lines_of,
    special_files,
)
from treadle.base.subprocesses import Completed, Launch, held_folder, run_blocking
from treadle.diff.encodings import visible
from treadle.errors import ToolError
from treadle.ports.workspace import FileMatches, FileStat, Line, Matches, Paths, Query, inert

_NEWLINE = re.compile(r"(?<!\\)(?:\\\\)*\\[nr]")
_MATCHES_MORE = re.compile(r"\.|\[\^|\\[bBDpPSuUWwx<>]|\[:\^|\(\?[=!<]")
"""Parts of a pattern that can match characters beyond ASCII, or ask for them beside a match."""
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_LARGE_NAMED = 10
_UNSUPPORTED = ("look-around", "backreferences")
_USUAL_S = 1.0
"""Most searches have ended by then; after it the cause of the delay is looked for."""
_LOOK_S = 0.02


class GuardedRoot(Protocol):
    path: str

    def stat(self, path: str) -> FileStat | None: ...
    def read_bytes(self, path: str, limit: int = 0) -> bytes: ...
    def open(self, path: str) -> AbstractContextManager[int]: ...
    def hold(self, path: str, *, exact: bool = False) -> AbstractContextManager[tuple[int, tuple[str, ...]]]: ...


class Scope(msgspec.Struct, frozen=True):
    """Where the programs of one search run, and how long: they share one time limit."""

    stop: threading.Event | None
    until: float
    fd: int = -1
    """The directory, held open; -1: none."""
    parts: Sequence[str] = ()
    """Its path."""


class _Blocked(Exception):
    """ripgrep waits for a file that is not regular."""


class _Halt:
    """Tells if a search is to stop: it was called off, or ripgrep is blocked by a `.gitignore` that became a FIFO after
    `Engine._refuse_special_files`. When ripgrep takes long, the tree is searched for such a file, a little with each
    look."""

    def __init__(self, stop: threading.Event | None, top: int) -> None:
        self._stop = stop
        self._due = time.monotonic() + _USUAL_S
        self._looks = special_files(top, NAME) if top >= 0 else iter(())
        self.blocked = False

    def is_set(self) -> bool:
        if self._stop is not None and self._stop.is_set():
            return True
        until = time.monotonic() + _LOOK_S
        while self._due < time.monotonic() < until and not self.blocked:
            self.blocked = next(self._looks, False)
        return self.blocked


class Engine:
    """Which program searches. `program` is that of ripgrep; None is our own."""

    def __init__(self, guard: GuardedRoot, program: str | None) -> None:
        self._guard, self._program = guard, program

    def find(self, pattern: str, path: str, *, ignore_case: bool, most: int, stop: threading.Event | None) -> Paths:
        is_wanted = _glob(pattern, self._guard.path, ignore_case=ignore_case)
        with self._guard.hold(path, exact=True) as (fd, parts), self._inherited(parts) as rules:
            reader = FileReader(is_wanted, most)
            scope = Scope(stop, _time_limit(), fd, parts)
            try:
                self._refuse_special_files(rules, scope)
                ran = self._run(SearchJob(rules=rules), reader.feed, scope)
            except _Blocked:
                return Engine(self._guard, None).find(pattern, path, ignore_case=ignore_case, most=most, stop=stop)
        candidates = [_join(parts, name) for name, _ in reader.files.sorted()[:most]]
        paths = tuple(each for each in candidates if self._is_file(each))
        return Paths(paths, reader.files.total - len(candidates) + len(paths), ran.ending == "exited")

    def search(self, query: Query, stop: threading.Event | None) -> Matches:
        _require_pattern(query)
        status = self._guard.stat(query.path)
        if status is None:
            raise missing(query.path)
        if status.kind == "directory":
            try:
                return self._search_tree(query, stop)
            except _Blocked:
                return Engine(self._guard, None).search(query, stop)
        return self._search_file(query, stop)

    def _search_tree(self, query: Query, stop: threading.Event | None) -> Matches:
        is_wanted = _glob(query.include, self._guard.path) if query.include else _any
        with self._guard.hold(query.path, exact=True) as (fd, parts), self._inherited(parts) as rules:
            job, scope = _job(query, rules=rules), Scope(stop, _time_limit(), fd, parts)
            self._refuse_special_files(rules, scope)
            other_files = self._other_encodings(job, scope)
            reader = MatchReader(lambda name: is_wanted(name) and name not in other_files, query.most)
            ran = self._run(job, reader.feed, scope)
            reader.close()
            if other_files and ran.ending == "exited":
                reader.wanted = is_wanted
                with _file_with(b"\0".join(map(os.fsencode, other_files))) as only:
                    job = msgspec.structs.replace(job, only=only)
                    ran = self._run(job, reader.feed, scope, program=None)
                reader.close()
            too_large = self._too_large(is_wanted, rules, scope) if ran.ending == "exited" else ()
        return self._checked(query, reader, ran, lambda name: _join(parts, name), too_large)

    def _refuse_special_files(self, rules: int, scope: Scope) -> None:
        """Raise _Blocked if a `.gitignore` is a FIFO, device or socket: ripgrep would open it, and wait for ever."""
        if self._program is None:
            return
        for is_special in special_files(scope.fd, NAME, inherit(inherited_rules(rules))):
            if is_special:
                raise _Blocked
            if (scope.stop is not None and scope.stop.is_set()) or time.monotonic() > scope.until:
                return  # the search ends at once, too

    def _other_encodings(self, job: SearchJob, scope: Scope) -> frozenset[str]:
        """Files that ripgrep cannot search as text because they are no UTF-8; our own program reads them as read_file
        does. None, if the pattern cannot match other bytes than ASCII, or only ripgrep understands it."""
        more_than_ascii = not job.pattern.isascii() or (not job.literal and _MATCHES_MORE.search(job.pattern))
        if self._program is None or not more_than_ascii or not is_supported(job):
            return frozenset()
        reader = FileReader(_any, sys.maxsize)
        self._start(engines.list_other_encodings(self._program, job), job, reader.feed, scope)
        return frozenset(name for name, _ in reader.files.sorted())

    def _too_large(self, accepts: Matcher, rules: int, scope: Scope) -> tuple[str, ...]:
        def is_large(name: str) -> bool:
            try:
                return accepts(name) and os.stat(name, dir_fd=scope.fd, follow_symlinks=False).st_size > MAX_FILE
            except OSError:
                return False

        reader = FileReader(is_large, _LARGE_NAMED)
        self._run(SearchJob(rules=rules), reader.feed, scope)
        return tuple(_join(scope.parts, name) for name, _ in reader.files.sorted()[:_LARGE_NAMED])

    def _search_file(self, query: Query, stop: threading.Event | None) -> Matches:
        data = self._guard.read_bytes(query.path, MAX_FILE)
        if lines_of(data) is None:
            raise ToolError(f"{inert(query.path)} is a binary file; it is not searched.")
        job = _job(query, stdin=True)
        other_encoding = not is_utf8(data) and not data.startswith(_UTF16) and is_supported(job)
        with self._guard.open(query.path) as fd:
            reader = MatchReader(_any, query.most)
            program = None if other_encoding else self._program
            ran = self._run(job, reader.feed, Scope(stop, _time_limit()), stdin=fd, program=program)
        reader.close()
        return self._checked(query, reader, ran, lambda _: query.path)

    def _run(
        self, job: SearchJob, feed: Callable[[bytes], None], scope: Scope, stdin: int = -1, program: str | None = ""
    ) -> Completed:
        """With this program instead of the usual one, if one is given; None is our own."""
        program = self._program if program == "" else program
        ran = self._start(engines.command(program, job), job, feed, scope, stdin)
        if ran.ending != "exited" or ran.code in (0, 1) or not ran.errors.strip():
            return ran
        if complaint := _complaint(ran.errors):
            raise ToolError(complaint)
        if program is None:
            raise ToolError(f"The search failed: {inert(' '.join(ran.errors.split()))}")
        self._program = None  # an ancient or broken ripgrep, which has said nothing so far
        return self._run(job, feed, scope, stdin)

    def _start(
        self, command: list[str], job: SearchJob, feed: Callable[[bytes], None], scope: Scope, stdin: int = -1
    ) -> Completed:
        cwd = held_folder(scope.fd, os.path.join(self._guard.path, *scope.parts)) if scope.fd >= 0 else "/"
        descriptors = [descriptor for descriptor in (job.rules, job.only) if descriptor >= 0]
        source = stdin if stdin >= 0 else subprocess.DEVNULL
        launch = Launch(command, engines.environment(), cwd, source, descriptors)
        halt = _Halt(scope.stop, scope.fd if command[0] == self._program else -1)
        ran = run_blocking(launch, feed, max(0.1, scope.until - time.monotonic()), halt)
        if halt.blocked:
            raise _Blocked
        return ran

    def _checked(
        self,
        query: Query,
        reader: MatchReader,
        ran: Completed,
        name_of: Callable[[str], str],
        large: tuple[str, ...] = (),
    ) -> Matches:
        files: list[FileMatches] = []
        total, total_files, remaining = reader.total, reader.files.total, query.most
        for name, counted in reader.files.sorted()[: query.most]:
            if remaining <= 0:
                break
            path = name_of(name)
            lines = self._lines(path, counted.first(remaining), query.context) if query.texts else ()
            if lines is None or not (lines or (not query.texts and self._is_file(path))):
                total, total_files = total - counted.count, total_files - 1
                continue
            files.append(FileMatches(path, counted.count, lines))
            remaining -= min(counted.count, remaining) if query.texts else 1
        return Matches(tuple(files), total_files, total, ran.ending == "exited", large)

    def _lines(self, path: str, positions: Sequence[tuple[int, int]], context: int) -> tuple[Line, ...] | None:
        """The lines with these numbers and those around them; None if this is no text file of the project."""
        try:
            text = lines_of(self._guard.read_bytes(path, MAX_FILE))
        except ToolError:
            return None
        if text is None:
            return None
        columns = {number: column for number, column in positions if number <= len(text)}
        around = {near for number in columns for near in range(number - context, number + context + 1)}
        lines = []
        for number in sorted(around.intersection(range(1, len(text) + 1))):
            line = text[number - 1]
            at = (characters(line, columns[number] - 1),) if number in columns else ()
            lines.append(Line(number, visible(line), *at))
        return tuple(lines)

    def _is_file(self, path: str) -> bool:
        try:
            status = self._guard.stat(path)
        except ToolError:
            return False
        return status is not None and status.kind == "file"

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
        with _file_with("\n".join(rules).encode(errors="surrogateescape")) as fd:
            yield fd


def engine(guard: GuardedRoot) -> Engine:
    return Engine(guard, engines.ripgrep(guard.path))


@contextmanager
def _file_with(data: bytes) -> Iterator[int]:
    with tempfile.TemporaryFile() as file:
        file.write(data)
        file.seek(0)
        yield file.fileno()


def _time_limit() -> float:
    return time.monotonic() + engines.TIMEOUT_S


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
    """The error in the pattern, out of a longer explanation, with advice; None if it is another error."""
    reasons = [line.removeprefix("error: ") for line in errors.splitlines() if line.startswith("error: ")]
    reasons = [reason for reason in reasons if not any(word in reason for word in _UNSUPPORTED)]
    reasons += re.findall(r"^PCRE2: error compiling pattern at offset \d+: (.*)", errors, re.M)
    if not reasons:
        return None
    return (
        f"The pattern is not a valid regular expression: {inert(reasons[0])}. To look for the text itself set literal "
        r"to true, or put a backslash before special characters, as in \( \[ \{ \. \* \+ \?"
    )
