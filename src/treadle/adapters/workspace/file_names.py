"""The names of a project's files, for completion, without those that git would ignore; and the best of them for a few
letters. Reads names and rules for ignoring only: no program is run in a project that no person has trusted yet."""

import os
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from treadle.adapters.workspace.paths.entries import hold_fd
from treadle.adapters.workspace.paths.ignore import Ignoring, Rules
from treadle.adapters.workspace.search.scan import iterate_leaves

MOST = 100_000
_UNTYPED = ("node_modules/", "__pycache__/", ".venv/", "target/", ".mypy_cache/", ".ruff_cache/")
"""Folders that people do not type by hand, unless the project's own rules say otherwise."""


def list_file_names(root: str) -> list[str]:
    """Blocks; call it from a thread."""
    try:
        top = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    except (OSError, ValueError):  # a zero byte is in no path
        return []
    with hold_fd(top):
        return [leaf.path for leaf in islice(iterate_leaves(top, Ignoring(((Rules(_UNTYPED), 0),))), MOST)]


def choose_best_names(names: Sequence[str], typed: str, most: int = 8) -> list[str]:
    """The names in which the typed letters stand in this order, the closest first: whole in the last part of the path
    before whole in the path before scattered, and short ones before long ones."""
    query = typed.casefold()
    if not query:
        return sorted(names, key=len)[:most]
    matches = [name for name in names if query in name.casefold()]
    if len(matches) < most:
        matched = set(matches)
        letters = {name: iter(name.casefold()) for name in names if name not in matched}
        scattered = [name for name, rest in letters.items() if all(letter in rest for letter in query)]
        matches += sorted(scattered, key=len)[: most - len(matches)]

    def rank(name: str) -> tuple[int, int, str]:
        lower = name.casefold()
        last = lower.rpartition("/")[2]
        place = 0 if last.startswith(query) else 1 if query in last else 2 if query in lower else 3
        return place, len(name), name

    return sorted(matches, key=rank)[:most]


def read_branch(root: str) -> str:
    """The git branch of a project as its files say, or the beginning of the commit that is checked out; or nothing."""
    try:
        git = Path(root, ".git")
        if git.is_file():  # a worktree
            git = Path(root, _read_beginning(git).removeprefix("gitdir:").strip())
        head = _read_beginning(git / "HEAD").strip() if (git / "HEAD").is_file() else ""
    except (OSError, ValueError):
        return ""
    return head.removeprefix("ref: refs/heads/") if head.startswith("ref: ") else head[:8]


def _read_beginning(file: Path) -> str:
    with file.open(encoding="utf-8") as stream:
        return stream.read(4_096)
