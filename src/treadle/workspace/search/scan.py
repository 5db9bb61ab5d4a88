"""A small search program for where there is no ripgrep: it takes a job, searches its working directory or its input,
and writes what ripgrep would, so that one reader serves both. A process of its own, because nothing else can stop a
regular expression that never ends. It goes from descriptor to descriptor and never through a link, so that nothing
swapped meanwhile leads elsewhere."""

import codecs
import os
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress

import msgspec

from treadle.workspace.paths.entries import LIST, bytes_at
from treadle.workspace.paths.glob import matcher
from treadle.workspace.paths.ignore import FOLDERS, Ignoring, Rules
from treadle.workspace.paths.ignore import lines_of as rules_of


class Leaf(msgspec.Struct, frozen=True):
    """A regular file: its path from the top, and where it can be opened while it is the current one."""

    path: str
    directory: int
    name: str


class _Level(msgspec.Struct):
    """A directory on the way down: what is still to be visited in it, and what is ignored there."""

    fd: int
    prefix: str
    files: list[str]
    directories: list[str]
    rules: Ignoring


def leaves(top: int, inherited: Rules | None = None) -> Iterator[Leaf]:
    """Every file, in no order. `inherited` are rules from above the top, weaker than any below."""
    levels = [_read(os.dup(top), "", Ignoring() if inherited is None else Ignoring(((inherited, 0),)))]
    try:
        while levels:
            level = levels[-1]
            while level.files:
                name = level.files.pop()
                yield Leaf(level.prefix + name, level.fd, name)
            if not level.directories:
                os.close(levels.pop().fd)
                continue
            name = level.directories.pop()
            try:
                fd = os.open(name, LIST, dir_fd=level.fd)
            except OSError:  # gone, closed to us, or a link by now
                continue
            levels.append(_read(fd, f"{level.prefix}{name}/", level.rules))
    finally:
        for level in levels:
            os.close(level.fd)


def _read(fd: int, prefix: str, above: Ignoring) -> _Level:
    level = _Level(fd, prefix, [], [], above.within(prefix, fd, None))
    try:
        with os.scandir(fd) as entries:
            for entry in entries:
                directory = entry.is_dir(follow_symlinks=False)
                if entry.name in FOLDERS or not (directory or entry.is_file(follow_symlinks=False)):
                    continue
                if not level.rules.covers(prefix + entry.name, directory=directory):
                    (level.directories if directory else level.files).append(entry.name)
    except OSError:  # what could be listed counts
        pass
    return level


MAX_FILE = 32_000_000
"""Bytes of a file that is searched; larger ones are left out."""


def lines_of(data: bytes, errors: str = "backslashreplace") -> list[str] | None:
    """The lines without their ends; None if the bytes are no text. UTF-16 is known by its byte-order mark."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        text = data.decode("utf-16", errors="replace")
    elif b"\0" in data:
        return None
    else:
        text = data.removeprefix(codecs.BOM_UTF8).decode(errors=errors)
    if "\0" in text:
        return None
    if "\r" in text:
        text = text.replace("\r\n", "\n")
    lines = text.split("\n")
    if not lines[-1]:  # the end of the last line, or nothing at all
        lines.pop()
    return lines


def characters(line: str, bytes_before: int) -> int:
    """How many characters of the line lie within its first bytes."""
    return len(line.encode(errors="surrogateescape")[:bytes_before].decode(errors="ignore"))


_WHOLE = re.compile(r"\\[AZB]|\(\?[=!<(]")
"""In a pattern with one of these, the neighbours of a line may decide whether it matches: no shortcut by file."""


class SearchJob(msgspec.Struct, frozen=True):
    pattern: str = ""
    """Empty: only list the files."""
    include: str = ""
    ignore_case: bool = False
    literal: bool = False
    stdin: bool = False
    """Whether to search the standard input instead of a directory."""
    rules: int = -1
    """A descriptor with rules from above the directory; -1: there are none."""
    seconds: int = 30
    """How long it may take at most, even when nobody is left to stop it."""


def main(text: str) -> int:
    job = msgspec.json.decode(text, type=SearchJob)
    signal.alarm(job.seconds)  # its default action ends the process, whatever it is doing
    _allow_depth()
    try:
        with suppress(BrokenPipeError):
            _work(job)
    except re.error as error:
        at = "" if error.pos is None else f" at position {error.pos}"
        sys.stderr.write(f"regex parse error:\nerror: {error.msg}{at}\n")
        return 2
    return 0


def _work(job: SearchJob) -> None:
    out = open(1, "wb", closefd=False)  # noqa: SIM115 - flushed below
    if not job.pattern:
        for leaf in leaves(os.open(".", os.O_RDONLY), _inherited(job)):
            out.write(b"./" + os.fsencode(leaf.path) + b"\0")
        out.flush()
        return
    pattern = re.compile(re.escape(job.pattern) if job.literal else job.pattern, re.I if job.ignore_case else 0)
    shortcut = None if _WHOLE.search(job.pattern) else re.compile(pattern.pattern, pattern.flags | re.M)
    for path, data in _files(job):
        lines = lines_of(data, "surrogateescape")
        if lines is None or (shortcut is not None and not shortcut.search("\n".join(lines))):
            continue
        if block := b"".join(_matches(pattern, lines)):
            out.write(path + b"\0" + block + b"\n")
    out.flush()


def _files(job: SearchJob) -> Iterator[tuple[bytes, bytes]]:
    if job.stdin:
        yield b"<stdin>", open(0, "rb", closefd=False).read(MAX_FILE)  # noqa: SIM115
        return
    wanted = matcher(job.include) if job.include else None
    for leaf in leaves(os.open(".", os.O_RDONLY), _inherited(job)):
        if (wanted is None or wanted(leaf.path)) and (data := bytes_at(leaf.directory, leaf.name, MAX_FILE)):
            yield b"./" + os.fsencode(leaf.path), data


def _matches(pattern: re.Pattern[str], lines: list[str]) -> Iterator[bytes]:
    for number, line in enumerate(lines, 1):
        match = pattern.search(line)
        if match:
            before = len(line[: match.start()].encode(errors="surrogateescape"))
            yield b"%d:%d:\n" % (number, before + 1)


def _inherited(job: SearchJob) -> Rules | None:
    if job.rules < 0:
        return None
    with open(job.rules, "rb", closefd=False) as file:
        return Rules(rules_of(file.read()))


def _allow_depth() -> None:
    """One descriptor is held for each level of the tree."""
    import resource

    with suppress(ValueError, OSError):
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
