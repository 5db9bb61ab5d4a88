"""All files below a directory that is held open, except what is ignored. Goes from descriptor to descriptor and never
through a link, so that nothing swapped meanwhile leads elsewhere."""

import os
from collections.abc import Iterator

import msgspec

from treadle.workspace.paths.entries import bytes_at
from treadle.workspace.paths.ignore import FOLDERS, MAX_BYTES, NAME, Rules, lines_of

_STEP = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Leaf(msgspec.Struct, frozen=True):
    """A regular file: its path from the top, and where it can be opened while it is the current one."""

    path: str
    directory: int
    name: str


class _Level(msgspec.Struct):
    """A directory on the way down: what is still to be visited in it, and what its own list ignores."""

    fd: int
    prefix: str
    files: list[str]
    directories: list[str]
    rules: Rules | None


def leaves(top: int, inherited: Rules | None = None) -> Iterator[Leaf]:
    """Every file, in no order. `inherited` are rules from above the top, weaker than any below."""
    levels = [_read(os.dup(top), "", [], inherited)]
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
                fd = os.open(name, _STEP, dir_fd=level.fd)
            except OSError:  # gone, closed to us, or a link by now
                continue
            levels.append(_read(fd, f"{level.prefix}{name}/", levels, inherited))
    finally:
        for level in levels:
            os.close(level.fd)


def read_leaf(leaf: Leaf, most: int) -> bytes | None:
    """The bytes of a file; None if it is none any more, cannot be read, or has more than `most`."""
    return bytes_at(leaf.directory, leaf.name, most)


def _read(fd: int, prefix: str, above: list[_Level], inherited: Rules | None) -> _Level:
    level = _Level(fd, prefix, [], [], None)
    data = bytes_at(fd, NAME, MAX_BYTES)
    if data is not None:
        level.rules = Rules(lines_of(data))
    sources = [(each.rules, len(each.prefix)) for each in (level, *reversed(above)) if each.rules is not None]
    if inherited is not None:
        sources.append((inherited, 0))
    try:
        with os.scandir(fd) as entries:
            for entry in entries:
                directory = entry.is_dir(follow_symlinks=False)
                if entry.name in FOLDERS or not (directory or entry.is_file(follow_symlinks=False)):
                    continue
                if not _ignored(sources, prefix + entry.name, directory):
                    (level.directories if directory else level.files).append(entry.name)
    except OSError:  # what could be listed counts
        pass
    return level


def _ignored(sources: list[tuple[Rules, int]], path: str, directory: bool) -> bool:
    """By the nearest list that says anything."""
    for rules, start in sources:
        verdict = rules.verdict(path[start:], directory=directory)
        if verdict is not None:
            return verdict
    return False
