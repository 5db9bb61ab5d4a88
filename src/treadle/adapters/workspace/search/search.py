"""Finds files and lines below the root: starts a program in a held directory (ripgrep, or our own where there is none),
and reads again through the root everything that the program names.

Both programs never go through a link, and write the same. Their output is read piece by piece; the first files by path
and all the sums are kept, so memory is bounded. ripgrep opens files by path, so a directory that is swapped for a link
at the right moment can make it look outside. Therefore nothing it says is believed but numbers: names are checked and
lines read again through the root, so that no name and no byte from outside is ever shown (S-01)."""

import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import cache
from pathlib import Path
from typing import Protocol

import msgspec
from msgspec.structs import replace

from treadle.adapters.workspace.paths import ignore
from treadle.adapters.workspace.paths.entries import make_missing_error
from treadle.adapters.workspace.search import scan
from treadle.adapters.workspace.search.scan import MAX_FILE, SearchJob, decode_lines, is_bytewise, is_supported
from treadle.base.subprocesses import Completed, Launch, find_program_outside, make_descriptor_path, run_blocking
from treadle.diff.encodings import escape_broken_bytes
from treadle.errors import ToolError
from treadle.ports.workspace import FileMatches, FileStat, Line, Matches, Paths, Query, escape_name

TIMEOUT_S = 30.0

# No configuration of the user's or the project's, no preprocessor, no archive, no file above the directory.
_SAFE = (
    "--no-config", "--no-messages", "--color=never", "--no-follow", "--no-pre", "--no-search-zip", "--no-mmap",
    "--null", "--hidden", "--no-require-git", "--no-ignore-dot", "--no-ignore-exclude", "--no-ignore-global",
    "--no-ignore-parent",
)  # fmt: skip
# The lines themselves are left out, however long: their numbers are enough.
_NUMBERS = (
    "--heading", "--with-filename", "--line-number", "--column", "--max-columns=1", "--no-max-columns-preview",
    "--crlf", "--engine=auto", f"--max-filesize={MAX_FILE}", "--no-context-separator",
)  # fmt: skip
_NO_UTF8 = (
    r"(?-u)[\xC0\xC1\xF5-\xFF]|(?:^|[\x00-\x7F])[\x80-\xBF]|[\xC2-\xF4](?:[^\x80-\xBF]|$)|[\xC2-\xDF][\x80-\xBF]{2}"
)
"""Bytes that valid UTF-8 does not have. Some other texts that have none of them are valid UTF-8 as well."""
_PLAIN_NAME = re.compile(r"[\w.*?-]+")


@cache
def find_ripgrep(root: str) -> str | None:
    """The program, beside the interpreter or on the path; never one that the project brings along (S-09)."""
    bundled = os.path.join(os.path.dirname(sys.executable), "rg") if sys.executable else ""
    return bundled if bundled and os.access(bundled, os.X_OK) else find_program_outside("rg", root)


def build_command(program: str | None, job: SearchJob) -> list[str]:
    """The command line for a job; without a program, of our own one."""
    if program is not None:
        return _build_ripgrep_command(program, job)
    # Isolated, and with our own search path: the working directory is the project's, whose modules must not run.
    path = [str(Path(__file__).resolve().parents[4]), *(folder for folder in sys.path if os.path.isabs(folder))]
    run = "from treadle.adapters.workspace.search.scan import main\nsys.exit(main(sys.argv[1]))"
    code = f"import sys; sys.path[:] = {path!r}\n{run}"
    job = replace(job, seconds=int(TIMEOUT_S) + 5)
    return [sys.executable, "-I", "-S", "-c", code, msgspec.json.encode(job).decode()]


def make_environment() -> dict[str, str]:
    """Nothing that could configure a program: no RIPGREP_CONFIG_PATH, no PYTHON…, no keys."""
    return {name: os.environ[name] for name in ("SYSTEMROOT", "TMPDIR") if name in os.environ}


def _build_ripgrep_command(program: str, job: SearchJob) -> list[str]:
    argv = [program, *_SAFE, *(f"--glob=!{folder}" for folder in ignore.FOLDERS)]
    if job.rules >= 0:
        argv.append(f"--ignore-file=/dev/fd/{job.rules}")
    if not job.pattern:
        return [*argv, "--files", "--", "."]
    argv += [*_NUMBERS, "--ignore-case" if job.ignore_case else "--case-sensitive"]
    argv += ["--fixed-strings"] if job.literal else []
    return [*argv, *_build_type_options(job), f"--regexp={job.pattern}", "--", "-" if job.stdin else "."]


def list_other_encodings(program: str, job: SearchJob) -> list[str]:
    """The command line of ripgrep that names the files whose bytes are no valid UTF-8, each ended by a NUL."""
    names = _build_ripgrep_command(program, replace(job, pattern=""))[:-3]
    more = ("--files-with-matches", "--encoding=none", f"--max-filesize={MAX_FILE}", *_build_type_options(job))
    return [*names, *more, f"--regexp={_NO_UTF8}", "--", "."]


def _build_type_options(job: SearchJob) -> list[str]:
    """Globs of the last name, which spare reading what cannot match; none if it takes more than those to tell. A type,
    and not a glob: a glob would bring back what .gitignore names."""
    names = [pattern.rpartition("/")[2] for pattern in ignore.expand(job.include)] if job.include else []
    if not names or not all(_PLAIN_NAME.fullmatch(name) for name in names):
        return []
    return [*(f"--type-add=wanted:{name}" for name in names), "--type=wanted"]


_ROOM = 1_024  # How many more than wanted are held before the list is cut to the first ones again
_LINE = 64  # Bytes that a line of the programs takes at most


class LineCount(msgspec.Struct):
    """The matching lines of one file: how many, and what was written of the first ones."""

    count: int = 0
    head: bytes = b""

    def parse_positions(self, most: int) -> list[tuple[int, int]]:
        """Numbers and byte columns, both from 1. Read only of the files that are shown."""
        positions = []
        for line in self.head.split(b"\n", most)[:most]:
            number, colon, remainder = line.partition(b":")
            if colon:
                column = remainder.partition(b":")[0]
                # ripgrep tells no column of a line whose match it does not find a second time (`\r` at its end).
                positions.append((int(number), int(column) if column.isdigit() else 1))
        return positions


class First:
    """The first paths of any number, in order, and how many there were."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: dict[str, LineCount] = {}
        self.total = 0

    def add(self, path: str, counted: LineCount) -> None:
        self.total += 1
        self._kept[path] = counted
        if len(self._kept) > self._most + _ROOM:
            self._kept = dict(self.sort_by_name()[: self._most])

    def sort_by_name(self) -> list[tuple[str, LineCount]]:
        return sorted(self._kept.items())


class FileReader:
    """Reads `./path NUL` again and again."""

    def __init__(self, is_wanted: Callable[[str], bool], most: int) -> None:
        self._wanted, self._open, self.files = is_wanted, b"", First(most)

    def feed(self, data: bytes) -> None:
        *paths, self._open = (self._open + data).split(b"\0")
        for name in filter(self._wanted, map(decode_name, paths)):
            self.files.add(name, LineCount())


class MatchReader:
    """Reads blocks of `./path NUL`, a line `number:column:…` per match, and an empty line in between."""

    def __init__(self, is_wanted: Callable[[str], bool], most: int) -> None:
        self.wanted, self.files, self.total = is_wanted, First(most), 0
        self._head, self._open = most * _LINE, b""
        self._path: str | None = None
        self._counted, self._binary = LineCount(), False

    def feed(self, data: bytes) -> None:
        data, at, end = self._open + data, 0, -1
        while at != end:
            end, at = at, self._read_step(data, at)
        self._open = data[at:]

    def close(self) -> None:
        """End of the output: the rest is the last block."""
        if self._path is not None:
            self._count_lines(self._open)
            self._finish_block()
        self._open = b""

    def _read_step(self, data: bytes, at: int) -> int:
        """How far was read: a path, the lines that are there, or the end of a block; nothing if that takes more."""
        if self._path is None:
            end = data.find(b"\0", at)
            if end < 0:
                return at
            self._path = decode_name(data[at:end])
            return end + 1
        if data.startswith(b"\n", at):
            self._finish_block()
            return at + 1
        end = max(data.find(b"\n\n", at), 0) or data.rfind(b"\n", at)
        if end < 0:
            return at
        self._count_lines(data[at : end + 1])
        return end + 1

    def _count_lines(self, text: bytes) -> None:
        if not text:
            return
        last = text.rfind(b"\n", 0, len(text) - 1) + 1
        if not text[last : last + 1].isdigit():  # a warning: the file turned out to be binary
            self._binary = True
            return
        counted = self._counted
        counted.count += text.count(b"\n") + (not text.endswith(b"\n"))
        if len(counted.head) < self._head:
            counted.head += text[: self._head]

    def _finish_block(self) -> None:
        path, counted, binary = self._path, self._counted, self._binary
        self._path, self._counted, self._binary = None, LineCount(), False
        if path is not None and counted.count and not binary and self.wanted(path):
            self.files.add(path, counted)
            self.total += counted.count


def decode_name(data: bytes) -> str:
    return os.fsdecode(data.removeprefix(b"./"))


_NEWLINE = re.compile(r"(?<!\\)(?:\\\\)*\\[nr]")
_MATCHES_MORE = re.compile(r"\.|\[\^|\\[bBDpPSuUWwx<>]|\[:\^|\(\?[=!<]")
"""Parts of a pattern that can match characters beyond ASCII, or ask for them beside a match."""
_NAMED = 10
_UNSUPPORTED = ("look-around", "backreferences")
_USUAL_S = 1.0  # Most searches have ended by then; after it the cause of the delay is looked for
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
    fd: int = -1  # The directory, held open; -1: none
    parts: Sequence[str] = ()  # Its path


class _Survey(msgspec.Struct):
    """Files that the programs leave out, and how many they cannot read."""

    too_large: tuple[str, ...] = ()
    utf32: set[str] = set()  # Names from the searched directory, if ripgrep searches
    unreadable: int = 0


class _Blocked(Exception):
    """ripgrep waits for a file that is not regular."""


class _Halt:
    """Tells if a search is to stop: it was called off, or ripgrep is blocked by a `.gitignore` that became a FIFO after
    `Engine._look_into_folders`. When ripgrep takes long, such a file is looked for, a little with each look."""

    def __init__(self, stop: threading.Event | None, top: int) -> None:
        self._stop = stop
        self._due = time.monotonic() + _USUAL_S
        self._looks = scan.find_special_files(top, ignore.NAME) if top >= 0 else iter(())
        self.blocked = False

    def is_set(self) -> bool:
        if self._stop is not None and self._stop.is_set():
            return True
        until = time.monotonic() + _LOOK_S
        while self._due < time.monotonic() < until and not self.blocked:
            self.blocked = bool(next(self._looks, False))
        return self.blocked


class Engine:
    """Which program searches. `program` is that of ripgrep; None is our own."""

    def __init__(self, guard: GuardedRoot, program: str | None) -> None:
        self._guard, self._program = guard, program

    def find(self, pattern: str, path: str, *, ignore_case: bool, most: int, stop: threading.Event | None) -> Paths:
        is_wanted = _compile_glob(pattern, self._guard.path, ignore_case=ignore_case)
        with self._guard.hold(path, exact=True) as (fd, parts), self._open_inherited_rules(parts) as rules:
            reader = FileReader(is_wanted, most)
            scope = Scope(stop, time.monotonic() + TIMEOUT_S, fd, parts)
            try:
                unreadable = self._look_into_folders(rules, scope)
                ran = self._run(SearchJob(rules=rules), reader.feed, scope)
            except _Blocked:
                return Engine(self._guard, None).find(pattern, path, ignore_case=ignore_case, most=most, stop=stop)
        candidates = [_join(parts, name) for name, _ in reader.files.sort_by_name()[:most]]
        paths = tuple(each for each in candidates if self._is_file(each))
        return Paths(paths, reader.files.total - len(candidates) + len(paths), ran.ending == "exited", unreadable)

    def search(self, query: Query, stop: threading.Event | None) -> Matches:
        if not query.pattern:
            raise ToolError("The pattern is empty; give the text or regular expression to look for.")
        if "\0" in query.pattern:
            raise ToolError("A pattern cannot contain a NUL character.")
        if "\n" in query.pattern or (not query.literal and _NEWLINE.search(query.pattern)):
            reason = "The pattern has a line break in it, but lines are searched one by one"
            raise ToolError(f"{reason}; look for one of them.")
        status = self._guard.stat(query.path)
        if status is None:
            raise make_missing_error(query.path)
        if status.kind != "directory":
            return self._search_file(query, stop)
        try:
            return self._search_tree(query, stop)
        except _Blocked:
            return Engine(self._guard, None).search(query, stop)

    def _search_tree(self, query: Query, stop: threading.Event | None) -> Matches:
        is_wanted = _compile_glob(query.include, self._guard.path) if query.include else _accepts_any
        with self._guard.hold(query.path, exact=True) as (fd, parts), self._open_inherited_rules(parts) as rules:
            job = SearchJob(query.pattern, query.include, query.ignore_case, query.literal, rules=rules)
            scope = Scope(stop, time.monotonic() + TIMEOUT_S, fd, parts)
            unreadable = self._look_into_folders(rules, scope)
            other_files = self._find_other_encodings(job, scope)
            reader = MatchReader(lambda name: is_wanted(name) and name not in other_files, query.most)
            ran = self._run(job, reader.feed, scope)
            reader.close()
            survey = self._survey(is_wanted, rules, scope) if ran.ending == "exited" else _Survey()
            is_own_pattern = is_supported(job)
            own_files = other_files | survey.utf32 if is_own_pattern else other_files
            if own_files and ran.ending == "exited":
                reader.wanted = is_wanted
                with _hold_temp_file(b"\0".join(map(os.fsencode, own_files))) as only:
                    job = replace(job, only=only)
                    ran = self._run(job, reader.feed, scope, program=None)
                reader.close()
        matches = self._build_matches(query, reader, ran.ending == "exited", lambda name: _join(parts, name))
        left_out = () if is_own_pattern else tuple(_join(parts, name) for name in sorted(survey.utf32)[:_NAMED])
        unreadable += survey.unreadable
        return replace(matches, too_large=survey.too_large, other_encoding=left_out, unreadable=unreadable)

    def _look_into_folders(self, rules: int, scope: Scope) -> int:
        """Count those that may not be read. Raise _Blocked if a `.gitignore` is a FIFO, device or socket: ripgrep would
        open it, and wait for ever."""
        unreadable = 0
        for is_special in scan.find_special_files(scope.fd, ignore.NAME, scan.read_inherited_rules(rules)):
            if is_special and self._program is not None:
                raise _Blocked
            unreadable += is_special is None
            if (scope.stop is not None and scope.stop.is_set()) or time.monotonic() > scope.until:
                break  # the search ends at once, too
        return unreadable

    def _find_other_encodings(self, job: SearchJob, scope: Scope) -> frozenset[str]:
        """Files that ripgrep cannot search as text because they are no UTF-8; our own program reads them as read_file
        does. None, if the pattern cannot match other bytes than ASCII, or only ripgrep understands it."""
        more_than_ascii = not job.pattern.isascii() or (not job.literal and _MATCHES_MORE.search(job.pattern))
        if self._program is None or not more_than_ascii or not is_supported(job):
            return frozenset()
        reader = FileReader(_accepts_any, sys.maxsize)
        self._start(list_other_encodings(self._program, job), job, reader.feed, scope)
        return frozenset(name for name, _ in reader.files.sort_by_name())

    def _survey(self, accepts: ignore.Matcher, rules: int, scope: Scope) -> _Survey:
        """Look at the files that may match. ripgrep takes UTF-32 for binary data; its bytes are a multiple of four."""
        survey = _Survey()

        def is_large(name: str) -> bool:
            if not accepts(name):
                return False
            try:
                size = os.stat(name, dir_fd=scope.fd, follow_symlinks=False).st_size
                is_readable = os.access(name, os.R_OK, dir_fd=scope.fd)
            except OSError as error:
                size, is_readable = 0, not isinstance(error, PermissionError)
            survey.unreadable += not is_readable
            if self._program is not None and size % 4 == 0 and scan.is_utf32(scope.fd, name):
                survey.utf32.add(name)
            return is_readable and size > MAX_FILE

        reader = FileReader(is_large, _NAMED)
        self._run(SearchJob(rules=rules), reader.feed, scope)
        survey.too_large = tuple(_join(scope.parts, name) for name, _ in reader.files.sort_by_name()[:_NAMED])
        return survey

    def _search_file(self, query: Query, stop: threading.Event | None) -> Matches:
        data = self._guard.read_bytes(query.path, MAX_FILE)
        if decode_lines(data) is None:
            raise ToolError(f"{escape_name(query.path)} is a binary file; it is not searched.")
        job = SearchJob(query.pattern, "", query.ignore_case, query.literal, stdin=True)
        other_encoding = scan.is_other_encoding(data) and is_supported(job)
        if data.startswith(scan.UTF32) and not other_encoding:
            return Matches((), 0, 0, other_encoding=(query.path,))
        with self._guard.open(query.path) as fd:
            reader = MatchReader(_accepts_any, query.most)
            program = None if other_encoding else self._program
            ran = self._run(job, reader.feed, Scope(stop, time.monotonic() + TIMEOUT_S), stdin=fd, program=program)
        reader.close()
        return self._build_matches(query, reader, ran.ending == "exited", lambda _: query.path)

    def _run(
        self, job: SearchJob, feed: Callable[[bytes], None], scope: Scope, stdin: int = -1, program: str | None = ""
    ) -> Completed:
        """With this program (None is our own) instead of the usual one, if one is given."""
        program = self._program if program == "" else program
        ran = self._start(build_command(program, job), job, feed, scope, stdin)
        if ran.ending != "exited" or ran.code in (0, 1) or not ran.errors.strip():
            return ran
        if complaint := _find_complaint(ran.errors):
            raise ToolError(complaint)
        if program is None:
            raise ToolError(f"The search failed: {escape_name(' '.join(ran.errors.split()))}")
        self._program = None  # an ancient or broken ripgrep, which has said nothing so far
        return self._run(job, feed, scope, stdin)

    def _start(
        self, command: list[str], job: SearchJob, feed: Callable[[bytes], None], scope: Scope, stdin: int = -1
    ) -> Completed:
        cwd = make_descriptor_path(scope.fd, os.path.join(self._guard.path, *scope.parts)) if scope.fd >= 0 else "/"
        descriptors = [descriptor for descriptor in (job.rules, job.only) if descriptor >= 0]
        source = stdin if stdin >= 0 else subprocess.DEVNULL
        launch = Launch(command, make_environment(), cwd, source, descriptors)
        halt = _Halt(scope.stop, scope.fd if command[0] == self._program else -1)
        ran = run_blocking(launch, feed, max(0.1, scope.until - time.monotonic()), halt)
        if halt.blocked:
            raise _Blocked
        return ran

    def _build_matches(
        self, query: Query, reader: MatchReader, is_complete: bool, name_of: Callable[[str], str]
    ) -> Matches:
        files: list[FileMatches] = []
        total, total_files, remaining = reader.total, reader.files.total, query.most
        for name, counted in reader.files.sort_by_name()[: query.most]:
            if remaining <= 0:
                break
            path = name_of(name)
            lines = self._read_lines(path, counted.parse_positions(remaining), query.context) if query.texts else ()
            if lines is None or not (lines or (not query.texts and self._is_file(path))):
                total, total_files = total - counted.count, total_files - 1
                continue
            files.append(FileMatches(path, counted.count, lines))
            remaining -= min(counted.count, remaining) if query.texts else 1
        return Matches(tuple(files), total_files, total, is_complete)

    def _read_lines(self, path: str, positions: Sequence[tuple[int, int]], context: int) -> tuple[Line, ...] | None:
        """The lines with these numbers and those around them; None if this is no text file of the project."""
        text, bytewise = None, False
        with suppress(ToolError):
            data = self._guard.read_bytes(path, MAX_FILE)
            text, bytewise = decode_lines(data), is_bytewise(data)
        if text is None:
            return None
        columns = {number: column for number, column in positions if number <= len(text)}
        around = {near for number in columns for near in range(number - context, number + context + 1)}

        def build(number: int, line: str) -> Line:
            if number not in columns:
                return Line(number, escape_broken_bytes(line))
            before = columns[number] - 1
            utf8 = b"" if bytewise else line.encode(errors="surrogateescape")[:before]
            return Line(number, escape_broken_bytes(line), before if bytewise else len(utf8.decode(errors="ignore")))

        return tuple(build(at, text[at - 1]) for at in sorted(around.intersection(range(1, len(text) + 1))))

    def _is_file(self, path: str) -> bool:
        with suppress(ToolError):
            status = self._guard.stat(path)
            return status is not None and status.kind == "file"
        return False

    @contextmanager
    def _open_inherited_rules(self, parts: Sequence[str]) -> Iterator[int]:
        """A descriptor with what the directories above say is ignored, read through the root; -1: nothing."""
        rules: list[str] = []
        for depth in range(len(parts)):
            with suppress(ToolError):
                data = self._guard.read_bytes("/".join([*parts[:depth], ignore.NAME]), ignore.MAX_BYTES)
                rules += ignore.rebase_patterns(ignore.decode_rule_lines(data), parts[depth:])
        data = "\n".join(rules).encode(errors="surrogateescape")
        with _hold_temp_file(data) if rules else nullcontext(-1) as fd:
            yield fd


@contextmanager
def _hold_temp_file(data: bytes) -> Iterator[int]:
    with tempfile.TemporaryFile() as file:
        file.write(data)
        file.seek(0)
        yield file.fileno()


def _accepts_any(_: str) -> bool:
    return True


def _join(parts: Sequence[str], name: str) -> str:
    return "/".join([*parts, name])


def _compile_glob(pattern: str, root: str, *, ignore_case: bool = False) -> ignore.Matcher:
    if "\0" in pattern:
        raise ToolError("A pattern cannot contain a NUL character.")
    pattern = pattern.removeprefix(root.rstrip("/") + "/") if pattern.startswith("/") else pattern
    if ".." in pattern.split("/"):
        raise ToolError(f"{escape_name(pattern)} leads up; give the directory as path, and a pattern below it.")
    return ignore.make_matcher(pattern, ignore_case=ignore_case)


def _find_complaint(errors: str) -> str | None:
    """The error in the pattern, out of a longer explanation, with advice; None if it is another error."""
    reasons = [line.removeprefix("error: ") for line in errors.splitlines() if line.startswith("error: ")]
    reasons = [reason for reason in reasons if not any(word in reason for word in _UNSUPPORTED)]
    reasons += re.findall(r"^PCRE2: error compiling pattern at offset \d+: (.*)", errors, re.M)
    if not reasons:
        return None
    return (
        f"The pattern is not a valid regular expression: {escape_name(reasons[0])}. To look for the text itself set "
        r"literal to true, or put a backslash before special characters, as in \( \[ \{ \. \* \+ \?"
    )
