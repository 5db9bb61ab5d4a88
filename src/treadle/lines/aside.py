"""Which changes are counted and not told of one by one: what lies in `.git`, what tools made and can make again, what
.gitignore names (W-04). Pure; whoever must see everything asks for less to be put aside."""

from collections.abc import Collection, Container, Iterable
from typing import Literal

import msgspec

from treadle.file_system import is_below
from treadle.protocol.files import FileChange, decode_path, encode_path

Aside = Literal["git", "caches", "ignored"]
ASIDE: frozenset[Aside] = frozenset(("git", "caches", "ignored"))
JUDGED: frozenset[Aside] = frozenset(("git", "ignored"))
"""Where somebody decides by what is shown: a program may lie in `.venv`."""

CACHES = frozenset(
    (
        "node_modules",
        "bower_components",
        "jspm_packages",
        ".pnpm-store",
        ".next",
        ".nuxt",
        ".svelte-kit",
        ".angular",
        ".parcel-cache",
        ".turbo",
        ".venv",
        "__pycache__",
        ".tox",
        ".nox",
        ".eggs",
        ".mypy_cache",
        ".pytest_cache",
        ".ruff_cache",
        ".hypothesis",
        ".ipynb_checkpoints",
        ".gradle",
        ".terraform",
        ".dart_tool",
        ".stack-work",
        ".ccls-cache",
        ".direnv",
    )
)
"""Folders in which a tool made everything and can make it again, by their name alone."""
_TAG = "CACHEDIR.TAG"
"""Lies in folders that say so of themselves, whatever their name is: `target` of Cargo."""
_GIT = ".git"
_MOST_NAMES = 4


class Sorted(msgspec.Struct, frozen=True):
    """Changes, by whether they are told of."""

    told: tuple[FileChange, ...]
    git: int = 0
    cached: int = 0
    caches: tuple[str, ...] = ()
    """The names of the folders."""
    ignored: int = 0

    @property
    def counts(self) -> list[str]:
        """What is not told of, in words."""
        names = ", ".join(self.caches[:_MOST_NAMES]) + (" …" if len(self.caches) > _MOST_NAMES else "")
        lines = [f".git: {count(self.git, 'file')}"] if self.git else []
        lines += [f"{count(self.cached, 'file')} in {names}"] if self.cached else []
        return lines + ([count(self.ignored, "ignored file")] if self.ignored else [])


def sort_out(files: Iterable[FileChange], aside: Collection[Aside] = ASIDE) -> Sorted:
    files = tuple(files)
    tagged = {file.path.rpartition("/")[0] for file in files if file.path.endswith(f"/{_TAG}")}
    told: list[FileChange] = []
    numbers: dict[Aside, int] = {}
    caches: dict[str, None] = {}
    for file in files:
        cache = cache_of(file, tagged)
        kinds: dict[Aside, bool] = {"git": in_git(file.path), "caches": bool(cache), "ignored": file.ignored}
        kind = next((kind for kind, so in kinds.items() if so and kind in aside), None)
        if kind is None:
            told.append(file)
        elif not is_folder(file):
            numbers[kind] = numbers.get(kind, 0) + 1
            caches |= {cache: None} if kind == "caches" else {}
    return Sorted(
        tuple(told), numbers.get("git", 0), numbers.get("caches", 0), tuple(sorted(caches)), numbers.get("ignored", 0)
    )


def cache_of(file: FileChange, tagged: Container[str] = ()) -> str:
    """The name of the outermost cache in which a change lies, or which it makes or removes; empty if there is none."""
    parts = decode_path(file.path).split("/")
    above = ""
    for number, part in enumerate(parts, 1):
        above = f"{above}/{part}" if above else part
        if (number < len(parts) or is_folder(file)) and (part in CACHES or encode_path(above) in tagged):
            return part
    return ""


def in_git(path: str) -> bool:
    return is_below(path, _GIT)


def is_folder(file: FileChange) -> bool:
    state = file.after or file.before
    return state is not None and state.kind == "directory"


def count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
