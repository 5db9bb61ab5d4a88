"""Writes requirements-run.lock: the part of requirements.lock that running Treadle from a checkout needs, and that
building needs. `make run` installs it, `make test` the rest.

    python -m scripts.run_lock    # after requirements.lock was resolved anew, in an environment built from it
"""

import re
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
FULL, RUN = ROOT / "requirements.lock", ROOT / "requirements-run.lock"
_PIN = re.compile(r"^([A-Za-z0-9_.-]+)(?:\[[^]]*\])?==", re.M)


def pins(text: str) -> dict[str, str]:
    """By package: its lines of a lock file, with all hashes."""
    starts = [*_PIN.finditer(text)]
    ends = [match.start() for match in starts[1:]] + [len(text)]
    return {canonicalize_name(match[1]): text[match.start() : end] for match, end in zip(starts, ends, strict=True)}


def list_requirements(project: dict[str, object]) -> list[str]:
    """What pyproject.toml requires for running and for building."""
    return [*project["project"]["dependencies"], *project["build-system"]["requires"]]  # type: ignore[index]


def closure(wanted: list[str]) -> set[str]:
    """The packages that these requirements bring along, on any platform."""
    found: set[str] = set()
    waiting = [(Requirement(each), frozenset[str]()) for each in wanted]
    seen: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        requirement, of_extras = waiting.pop()
        if not _applies(requirement, of_extras):
            continue
        name = canonicalize_name(requirement.name)
        found.add(name)
        key = name, frozenset(requirement.extras)
        if key not in seen:
            seen.add(key)
            waiting += [(Requirement(each), key[1]) for each in _requirements(name)]
    return found


def _requirements(name: str) -> Iterator[str]:
    try:
        yield from requires(name) or ()
    except PackageNotFoundError:  # of another platform
        return


def _applies(requirement: Requirement, extras: frozenset[str]) -> bool:
    """Whether the requirement holds with these extras; markers of platforms and versions are pip's business."""
    marker = str(requirement.marker or "")
    named = re.findall(r'extra == "([^"]+)"', marker)
    return not named or any(extra in extras for extra in named)


def run_lock() -> str:
    known = pins(FULL.read_text(encoding="utf-8"))
    wanted = closure(list_requirements(tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))))
    return "".join(lines for name, lines in known.items() if name in wanted)


if __name__ == "__main__":
    RUN.write_text(run_lock(), encoding="utf-8")
    sys.exit()
