"""The names of a project's files, for completion: those that git knows or would, else a walk; and the best of them for
a few letters. Reads names only."""

import os
import subprocess
from collections.abc import Sequence

MOST = 100_000
_SKIPPED = frozenset({".git", "node_modules", "__pycache__", ".venv", "target", ".mypy_cache", ".ruff_cache"})


def file_names(root: str) -> list[str]:
    """Blocks; call it from a thread."""
    command = ["git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--deduplicate"]
    try:
        found = subprocess.run(command, capture_output=True, timeout=20, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return _walked(root)
    return [os.fsdecode(name) for name in found.split(b"\0") if name][:MOST]


def _walked(root: str) -> list[str]:
    names: list[str] = []
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(each for each in folders if each not in _SKIPPED)
        below = os.path.relpath(folder, root)
        names += [name if below == "." else f"{below}/{name}" for name in sorted(files)]
        if len(names) >= MOST:
            break
    return names[:MOST]


def best(names: Sequence[str], typed: str, most: int = 8) -> list[str]:
    """The names in which the typed letters stand in this order, the closest first: whole in the last part of the path
    before whole in the path before scattered, and short ones before long ones."""
    wanted = typed.casefold()
    if not wanted:
        return sorted(names, key=len)[:most]
    whole = [name for name in names if wanted in name.casefold()]
    if len(whole) < most:
        known = set(whole)
        scattered = [name for name in names if name not in known and _in_order(wanted, name.casefold())]
        whole += sorted(scattered, key=len)[: most - len(whole)]
    return sorted(whole, key=lambda name: _rank(name, wanted))[:most]


def _rank(name: str, wanted: str) -> tuple[int, int, str]:
    lower = name.casefold()
    last = lower.rpartition("/")[2]
    place = 0 if last.startswith(wanted) else 1 if wanted in last else 2 if wanted in lower else 3
    return place, len(name), name


def _in_order(wanted: str, name: str) -> bool:
    at = -1
    for letter in wanted:
        at = name.find(letter, at + 1)
        if at < 0:
            return False
    return True
