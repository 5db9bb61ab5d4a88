"""The two programs that search: ripgrep, and our own where there is none. Both work in a directory that is held open,
never go through a link, and write the same. Which command line, and what of ripgrep may not be used, is decided here.
Their output is read piece by piece; the first files by path and all the sums are kept, so memory is bounded.

ripgrep opens files by path, so a directory that is swapped for a link at the right moment can make it look outside.
Therefore nothing it says is believed but numbers: names are checked and lines read again through the root (`search`).
"""

import os
import re
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import msgspec

from treadle.adapters.workspace.paths.glob import expand
from treadle.adapters.workspace.paths.ignore import FOLDERS
from treadle.adapters.workspace.search.scan import MAX_FILE, SearchJob
from treadle.base.subprocesses import program_outside

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
def ripgrep(root: str) -> str | None:
    """The program, beside the interpreter or on the path; never one that the project brings along (S-09)."""
    bundled = os.path.join(os.path.dirname(sys.executable), "rg") if sys.executable else ""
    return bundled if bundled and os.access(bundled, os.X_OK) else program_outside("rg", root)


def command(program: str | None, job: SearchJob) -> list[str]:
    """The command line for a job; without a program, of our own one."""
    if program is not None:
        return _ripgrep(program, job)
    # Isolated, and with our own search path: the working directory is the project's, whose modules must not run.
    path = [str(Path(__file__).resolve().parents[4]), *(folder for folder in sys.path if os.path.isabs(folder))]
    run = "from treadle.adapters.workspace.search.scan import main\nsys.exit(main(sys.argv[1]))"
    code = f"import sys; sys.path[:] = {path!r}\n{run}"
    job = msgspec.structs.replace(job, seconds=int(TIMEOUT_S) + 5)
    return [sys.executable, "-I", "-S", "-c", code, msgspec.json.encode(job).decode()]


def environment() -> dict[str, str]:
    """Nothing that could configure a program: no RIPGREP_CONFIG_PATH, no PYTHON…, no keys."""
    return {name: os.environ[name] for name in ("SYSTEMROOT", "TMPDIR") if name in os.environ}


def _ripgrep(program: str, job: SearchJob) -> list[str]:
    argv = [program, *_SAFE, *(f"--glob=!{folder}" for folder in FOLDERS)]
    if job.rules >= 0:
        argv.append(f"--ignore-file=/dev/fd/{job.rules}")
    if not job.pattern:
        return [*argv, "--files", "--", "."]
    argv += _NUMBERS
    argv.append("--ignore-case" if job.ignore_case else "--case-sensitive")
    if job.literal:
        argv.append("--fixed-strings")
    return [*argv, *_types(job), f"--regexp={job.pattern}", "--", "-" if job.stdin else "."]


def list_other_encodings(program: str, job: SearchJob) -> list[str]:
    """The command line of ripgrep that names the files whose bytes are no valid UTF-8, each ended by a NUL."""
    names = _ripgrep(program, msgspec.structs.replace(job, pattern=""))[:-3]
    more = ("--files-with-matches", "--encoding=none", f"--max-filesize={MAX_FILE}", *_types(job))
    return [*names, *more, f"--regexp={_NO_UTF8}", "--", "."]


def _types(job: SearchJob) -> list[str]:
    """Globs of the last name, which spare reading what cannot match; none if it takes more than those to tell. A type,
    and not a glob: a glob would bring back what .gitignore names."""
    names = [pattern.rpartition("/")[2] for pattern in expand(job.include)] if job.include else []
    if not names or not all(_PLAIN_NAME.fullmatch(name) for name in names):
        return []
    return [*(f"--type-add=wanted:{name}" for name in names), "--type=wanted"]


_ROOM = 1_024
"""How many more than wanted are held before the list is cut to the first ones again."""
_LINE = 64
"""Bytes that a line of the programs takes at most."""


class LineCount(msgspec.Struct):
    """The matching lines of one file: how many, and what was written of the first ones."""

    count: int = 0
    head: bytes = b""

    def first(self, most: int) -> list[tuple[int, int]]:
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
            self._kept = dict(self.sorted()[: self._most])

    def sorted(self) -> list[tuple[str, LineCount]]:
        return sorted(self._kept.items())


class FileReader:
    """Reads `./path NUL` again and again."""

    def __init__(self, is_wanted: Callable[[str], bool], most: int) -> None:
        self._wanted = is_wanted
        self._open = b""
        self.files = First(most)

    def feed(self, data: bytes) -> None:
        *paths, self._open = (self._open + data).split(b"\0")
        for path in paths:
            name = path_of(path)
            if self._wanted(name):
                self.files.add(name, LineCount())


class MatchReader:
    """Reads blocks of `./path NUL`, a line `number:column:…` per match, and an empty line in between."""

    def __init__(self, is_wanted: Callable[[str], bool], most: int) -> None:
        self.wanted = is_wanted
        self._head = most * _LINE
        self._open = b""
        self._path: str | None = None
        self._counted = LineCount()
        self._binary = False
        self.files = First(most)
        self.total = 0

    def feed(self, data: bytes) -> None:
        data = self._open + data
        at = 0
        while True:
            end, at = at, self._step(data, at)
            if at == end:
                break
        self._open = data[at:]

    def close(self) -> None:
        """End of the output: the rest is the last block."""
        if self._path is not None:
            self._lines(self._open)
            self._end()
        self._open = b""

    def _step(self, data: bytes, at: int) -> int:
        """How far was read: a path, the lines that are there, or the end of a block; nothing if that takes more."""
        if self._path is None:
            end = data.find(b"\0", at)
            if end < 0:
                return at
            self._path = path_of(data[at:end])
            return end + 1
        if data.startswith(b"\n", at):
            self._end()
            return at + 1
        end = data.find(b"\n\n", at)
        if end < 0:
            end = data.rfind(b"\n", at)
        if end < 0:
            return at
        self._lines(data[at : end + 1])
        return end + 1

    def _lines(self, text: bytes) -> None:
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

    def _end(self) -> None:
        path, counted, binary = self._path, self._counted, self._binary
        self._path, self._counted, self._binary = None, LineCount(), False
        if path is not None and counted.count and not binary and self.wanted(path):
            self.files.add(path, counted)
            self.total += counted.count


def path_of(data: bytes) -> str:
    return os.fsdecode(data.removeprefix(b"./"))
