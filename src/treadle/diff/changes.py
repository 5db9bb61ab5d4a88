"""File changes as text: one line per file, with the numbers of added and removed lines (W-04). Changes in `.git`, in
caches that tools can rebuild, and of ignored files are only counted; a caller that must list everything passes a
smaller `aside`. Pure."""

from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from typing import Literal

import msgspec
from msgspec.structs import replace

from treadle.base.file_system import is_below
from treadle.protocol.files import DiffStat, FileChange, FileState, decode_path, make_file_change

Aside = Literal["git", "caches", "ignored"]
ASIDE: frozenset[Aside] = frozenset(("git", "caches", "ignored"))
JUDGED: frozenset[Aside] = frozenset(("git", "ignored"))
"""The set for approvals, which list caches too: a program may lie in `.venv`."""

CACHES = frozenset((
    "node_modules", "bower_components", "jspm_packages", ".pnpm-store", ".next", ".nuxt", ".svelte-kit", ".angular",
    ".parcel-cache", ".turbo", ".venv", "__pycache__", ".tox", ".nox", ".eggs", ".mypy_cache", ".pytest_cache",
    ".ruff_cache", ".hypothesis", ".ipynb_checkpoints", ".gradle", ".terraform", ".dart_tool", ".stack-work",
    ".ccls-cache", ".direnv",
))  # fmt: skip
"""Folders in which a tool made everything and can make it again, by their name alone."""
_GIT = ".git"
_MOST_NAMES = 4


class Sorted(msgspec.Struct, frozen=True):
    """Changes, divided into those listed one by one and those only counted."""

    reported_files: tuple[FileChange, ...]
    git: int = 0
    cached: int = 0
    caches: tuple[str, ...] = ()  # The names of the folders
    ignored: int = 0

    @property
    def counts(self) -> list[str]:
        names = ", ".join(self.caches[:_MOST_NAMES]) + (" …" if len(self.caches) > _MOST_NAMES else "")
        lines = [f".git: {count(self.git, 'file')}"] if self.git else []
        lines += [f"{count(self.cached, 'file')} in {names}"] if self.cached else []
        return lines + ([count(self.ignored, "ignored file")] if self.ignored else [])


def sort_out(files: Iterable[FileChange], aside: Collection[Aside] = ASIDE) -> Sorted:
    listed_files: list[FileChange] = []
    numbers: Counter[Aside] = Counter()
    caches: set[str] = set()
    for file in files:
        cache = get_cache(file)
        kinds: dict[Aside, bool] = {"git": is_in_git(file.path), "caches": bool(cache), "ignored": file.ignored}
        kind = next((kind for kind, so in kinds.items() if so and kind in aside), None)
        if kind is None:
            listed_files.append(file)
        elif not is_folder(file):
            numbers[kind] += 1
            caches |= {cache} if kind == "caches" else set()
    return Sorted(tuple(listed_files), numbers["git"], numbers["caches"], tuple(sorted(caches)), numbers["ignored"])


def get_cache(file: FileChange) -> str:
    """The name of the outermost cache in which a change lies, or which it makes or removes; empty if there is none. A
    folder is a cache by its name, never by a tag in it that a command could write. A tracked file lies in no cache."""
    if file.tracked:
        return ""
    parts = decode_path(file.path).split("/")
    return next((part for part in (parts if is_folder(file) else parts[:-1]) if part in CACHES), "")


def is_in_git(path: str) -> bool:
    return is_below(path, _GIT)


def is_folder(file: FileChange) -> bool:
    """True if only folders lie there, before and after. A file that gives way to a folder is lost as if deleted."""
    states = [state for state in (file.before, file.after) if state is not None]
    return bool(states) and all(state.kind == "directory" for state in states)


def count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


_SIGNS = {"created": "A", "modified": "M", "deleted": "D"}
_MANY = 5  # A folder that was removed with more files than this in it is told of in one line


def sum_stats(files: Iterable[FileChange], aside: Collection[Aside] = ASIDE) -> DiffStat:
    counted = sort_out(files, aside).reported_files
    return DiffStat(sum(file.added for file in counted), sum(file.removed for file in counted))


def merge_changes(earlier_changes: Mapping[str, FileChange], files: Iterable[FileChange]) -> dict[str, FileChange]:
    """Add later changes to earlier ones, by path. Changes that cancel each other out are dropped."""
    changes_by_path = dict(earlier_changes)
    for file in files:
        first = changes_by_path.pop(file.path, None)
        if first is None:
            changes_by_path[file.path] = file
            continue
        both = DiffStat(first.added + file.added, first.removed + file.removed)
        if first.before is None and first.after is None:  # an old log, which knows no states
            changes_by_path[file.path] = replace(file, added=both.added, removed=both.removed)
        elif first.before != file.after:
            changes_by_path[file.path] = make_file_change(
                file.path, first.before, file.after, both, ignored=file.ignored
            )
    return changes_by_path


def format_changes(
    files: Iterable[FileChange], format_path: Callable[[str], str], most: int = 30, aside: Collection[Aside] = ASIDE
) -> list[str]:
    """One line per file, at most `most`; a removed folder with many files is one. Those in `aside` are only counted."""
    sorted_files = sort_out(files, aside)
    removed_folders = _list_gone_folders(sorted_files.reported_files)
    files = drop_parents(sorted_files.reported_files, removed_folders)
    listed_files = [
        file for file in files if file.path in removed_folders or not _find_outermost(file.path, removed_folders)
    ]
    lines = [format_change(file, format_path) + removed_folders.get(file.path, "") for file in listed_files[:most]]
    if unlisted_files := listed_files[most:]:
        lines.append(f"[{count(len(unlisted_files), 'more file')}{_format_numbers(sum_stats(unlisted_files, ()))}]")
    return lines + [f"[{counted}]" for counted in sorted_files.counts]


def drop_parents(files: Iterable[FileChange], even: Container[str] = ()) -> list[FileChange]:
    """Folders only where they are all there is to tell: of one with something in it, that tells."""
    files = tuple(files)
    parents = {file.path.rpartition("/")[0] for file in files}
    return [file for file in files if file.path in even or not (is_folder(file) and file.path in parents)]


def _list_gone_folders(files: Sequence[FileChange]) -> dict[str, str]:
    """Folders that were removed with many files in them: told of in one line, of which this is the end."""
    deleted = [file for file in files if file.action == "deleted"]
    folders = {file.path for file in deleted if is_folder(file)}
    inside: dict[str, list[FileChange]] = {}
    for file in deleted:
        if not is_folder(file) and (top := _find_outermost(file.path, folders)):
            inside.setdefault(top, []).append(file)
    surviving_folders = {_find_outermost(file.path, folders) for file in files if file.action != "deleted"}
    many = {top: all_of for top, all_of in inside.items() if len(all_of) > _MANY and top not in surviving_folders}
    return {
        top: f" ({count(len(all_of), 'file')}){_format_numbers(sum_stats(all_of, ()))}" for top, all_of in many.items()
    }


def _find_outermost(path: str, folders: Container[str]) -> str:
    """The outermost of these folders in which a path lies; empty if there is none."""
    return next((path[:at] for at, letter in enumerate(path) if letter == "/" and path[:at] in folders), "")


def format_change(file: FileChange, format_path: Callable[[str], str]) -> str:
    """`M src/a.py +3 -1`."""
    state = file.after or file.before
    name = format_path(file.path) + ("/" if state is not None and state.kind == "directory" else "")
    return f"{_SIGNS[file.action]} {name}{_format_numbers(DiffStat(file.added, file.removed))}{_describe_nature(file)}"


def _format_numbers(stat: DiffStat) -> str:
    return (f" +{stat.added:,}" if stat.added else "") + (f" -{stat.removed:,}" if stat.removed else "")


def _describe_nature(file: FileChange) -> str:
    """Describe changes that line counts do not show: another file type, other permissions, binary content."""
    old_state, new_state = file.before, file.after
    if new_state is None:
        return ""
    if old_state is None:
        return f" ({_name_kind(new_state)})" if new_state.kind in ("link", "fifo") else ""
    if old_state.kind != new_state.kind:
        return f" ({_name_kind(old_state)} to {_name_kind(new_state)})"
    if new_state.kind == "link":
        return " (link)"
    mode = f" (mode {old_state.mode:o} to {new_state.mode:o})" if old_state.mode != new_state.mode else ""
    silent = new_state.digest != old_state.digest and not file.added and not file.removed
    return f" ({old_state.size:,} to {new_state.size:,} bytes){mode}" if silent else mode


def _name_kind(state: FileState) -> str:
    return {"directory": "folder", "fifo": "FIFO"}.get(state.kind, state.kind)


_FOLDER = "__pycache__"
_SUFFIXES = (".pyc", ".pyo")


def drop_compiled(files: Sequence[FileChange]) -> tuple[FileChange, ...]:
    """The changes without compiled Python files, and without folders that would only hold those (S-23). Removals stay.
    Python runs a `.pyc` instead of its source, and a person cannot see whether it says the same; Python makes it again
    when needed. Two exceptions: tracked files, and installed packages, whose sources are not read either and which
    every later command would compile anew."""
    present = [file for file in files if file.after is not None]
    if not any(file.path.endswith(_SUFFIXES) for file in present):
        return tuple(files)
    sources = {decode_path(file.path) for file in present}
    dropped = {file.path for file in present if _is_compiled(file, sources)}
    used_folders = {file.path.rpartition("/")[0] for file in present if file.path not in dropped}
    new_folders = (file.path for file in present if is_folder(file) and file.before is None)
    dropped |= {path for path in new_folders if path not in used_folders and path.rpartition("/")[2] == _FOLDER}
    return tuple(file for file in files if file.path not in dropped)


def _is_compiled(file: FileChange, sources: set[str]) -> bool:
    """True unless it lies among installed packages and the same changes write its source."""
    if not file.path.endswith(_SUFFIXES) or is_folder(file) or file.tracked:
        return False
    folder, _, name = decode_path(file.path).rpartition("/")
    if not (get_cache(file) or file.ignored) or not {"site-packages", "dist-packages"}.intersection(folder.split("/")):
        return True
    return f"{folder.removesuffix(f'/{_FOLDER}')}/{name.partition('.')[0]}.py" not in sources
