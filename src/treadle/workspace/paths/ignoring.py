"""Whether .gitignore names a path, asked on a walk that has two sides: a folder of a view and the one beneath. What the
upper side says counts, where it says something."""

import os

from treadle.workspace.paths.ignore import FOLDERS, MAX_BYTES, NAME, Rules, lines_of
from treadle.workspace.search.tree import bytes_at


class Ignoring:
    """The rules that hold in a folder: its own, and weaker those above."""

    def __init__(self, sources: tuple[tuple[Rules, int], ...] = (), *, all: bool = False) -> None:
        self._sources = sources
        self._all = all

    def under(self, ignored: bool) -> "Ignoring":
        """In a folder that is itself ignored, everything is."""
        return self if ignored == self._all or self._all else type(self)(all=True)

    def within(self, prefix: str, upper: int | None, lower: int | None) -> "Ignoring":
        """With what the folder of this path itself says. `prefix` ends with a slash, but for the root's."""
        if self._all:
            return self
        data = None if upper is None else _list_in(upper)
        if data is None and lower is not None and (upper is None or not _has(upper)):
            data = _list_in(lower)
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


def _list_in(folder: int) -> bytes | None:
    return bytes_at(folder, NAME, MAX_BYTES)


def _has(folder: int) -> bool:
    """Whether the name stands there at all, if only to say that it was removed."""
    try:
        os.stat(NAME, dir_fd=folder, follow_symlinks=False)
    except OSError:
        return False
    return True
