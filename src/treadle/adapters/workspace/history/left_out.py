"""The entries that a snapshot of the tree leaves out, and why; never silently (W-05). Pure rules: sizes, names, words.

A folder is left out by its name alone only where the name says that a tool made everything in it and can make it again.
Names that are also given to folders of sources (build, target …) count only where .gitignore names the folder, too.
"""

from collections.abc import Iterable, Mapping

from treadle.diff.changes import CACHES
from treadle.protocol.files import Uncaptured

FILE_CAP = 64 << 20
IGNORED_FILE_CAP = 1 << 20
SMALL = 1 << 20
"""Files up to this size are kept in any number; larger ones up to TOTAL_CAP together, so that a folder of data cannot
crowd out the sources."""
TOTAL_CAP = 4 << 30
IGNORED_TOTAL_CAP = 256 << 20
DEPTH_CAP = 250

GENERATED_IF_IGNORED = frozenset(
    (
        "venv",
        "env",
        "virtualenv",
        "build",
        "dist",
        "out",
        "target",
        "vendor",
        "Pods",
        "Carthage",
        "_build",
        ".build",
        "cmake-build-debug",
        "cmake-build-release",
        ".cache",
        ".output",
        ".yarn",
        ".bundle",
        "DerivedData",
        "bazel-out",
        "zig-cache",
        ".zig-cache",
    )
)

CAPTURED = 0
TOO_LARGE, IGNORED_LARGE, TOTAL_FULL, IGNORED_FULL, UNREADABLE, GENERATED_FOLDER, TOO_DEEP, SPECIAL, OWN = range(1, 10)
REASONS = {
    TOO_LARGE: f"larger than {FILE_CAP >> 20} MiB",
    IGNORED_LARGE: f"named by .gitignore and larger than {IGNORED_FILE_CAP >> 20} MiB",
    TOTAL_FULL: f"the large files of this project have more than {TOTAL_CAP >> 30} GiB together",
    IGNORED_FULL: f"the files named by .gitignore have more than {IGNORED_TOTAL_CAP >> 20} MiB together",
    UNREADABLE: "cannot be read by the user who runs Treadle",
    GENERATED_FOLDER: "a folder of generated files",
    TOO_DEEP: f"lies more than {DEPTH_CAP} folders deep",
    SPECIAL: "a socket or a device",
    OWN: "Treadle's own data",
}
_MOST_LISTED = 40


def generated(name: str, ignored: bool) -> bool:
    return name in CACHES or (ignored and name in GENERATED_IF_IGNORED)


def listed(
    omitted: Iterable[tuple[str, int, int]], outcomes: Mapping[str, str] | None = None
) -> tuple[Uncaptured, ...]:
    """Paths with why they were left out and their size, as they are told: folders of one name in one line, and of very
    many files the largest. `said` is what became of some of them meanwhile."""
    outcomes = outcomes or {}
    folders: dict[str, list[str]] = {}
    entries: list[Uncaptured] = []
    for path, reason, size in omitted:
        if reason == OWN:
            continue
        if reason == GENERATED_FOLDER and path not in outcomes:
            folders.setdefault(path.rpartition("/")[2], []).append(path)
        else:
            became = f"{outcomes[path]}; " if path in outcomes else ""
            entries.append(Uncaptured(path, f"{became}{REASONS[reason]}", size))
    for name, paths in folders.items():
        alone = len(paths) == 1
        description = REASONS[GENERATED_FOLDER] if alone else f"{len(paths):,} folders of generated files"
        entries.append(Uncaptured(paths[0] if alone else f"**/{name}", description))
    return _bounded(entries)


def _bounded(entries: list[Uncaptured]) -> tuple[Uncaptured, ...]:
    if len(entries) > _MOST_LISTED:
        entries.sort(key=lambda each: -each.size)
        surplus = entries[_MOST_LISTED:]
        del entries[_MOST_LISTED:]
        entries.append(
            Uncaptured("**", f"{len(surplus):,} more that were left out", sum(each.size for each in surplus))
        )
    return tuple(sorted(entries, key=lambda each: each.path))
