"""Changes of files in words: a line for each, with what came and went (W-04). How a path is shown is the caller's
business; here it is only placed."""

from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence

from msgspec.structs import replace

from treadle.lines.aside import ASIDE, Aside, count, is_folder, sort_out
from treadle.protocol.files import DiffStat, FileChange, FileState, change_of

_SIGNS = {"created": "A", "modified": "M", "deleted": "D"}
_MANY = 5
"""A folder that was removed with more files than this in it is told of in one line."""


def total(files: Iterable[FileChange], aside: Collection[Aside] = ASIDE) -> DiffStat:
    """What came and went in all, without what is put aside."""
    counted = sort_out(files, aside).told
    return DiffStat(sum(file.added for file in counted), sum(file.removed for file in counted))


def merged(known: Mapping[str, FileChange], files: Iterable[FileChange]) -> dict[str, FileChange]:
    """Changes by path, with later ones added to earlier ones; what cancels itself out is gone."""
    found = dict(known)
    for file in files:
        first = found.pop(file.path, None)
        if first is None:
            found[file.path] = file
            continue
        both = DiffStat(first.added + file.added, first.removed + file.removed)
        if first.before is None and first.after is None:  # an old log, which knows no states
            found[file.path] = replace(file, added=both.added, removed=both.removed)
        elif first.before != file.after:
            found[file.path] = change_of(file.path, first.before, file.after, both, ignored=file.ignored)
    return found


def change_lines(
    files: Iterable[FileChange], shown: Callable[[str], str], most: int = 30, aside: Collection[Aside] = ASIDE
) -> list[str]:
    """One line a file, at most so many; what is put aside is only counted. Of a folder that is gone with many files in
    it, the folder tells."""
    found = sort_out(files, aside)
    gone = _gone_folders(found.told)
    told = [file for file in without_parents(found.told, gone) if file.path in gone or not _below(file.path, gone)]
    lines = [change_line(file, shown) + gone.get(file.path, "") for file in told[:most]]
    if len(told) > most:
        rest = told[most:]
        lines.append(f"[{count(len(rest), 'more file')}{_numbers(total(rest, ()))}]")
    return lines + [f"[{counted}]" for counted in found.counts]


def without_parents(files: Iterable[FileChange], even: Container[str] = ()) -> list[FileChange]:
    """Folders only where they are all there is to tell: of one with something in it, that tells."""
    files = tuple(files)
    parents = {file.path.rpartition("/")[0] for file in files}
    return [file for file in files if file.path in even or not (is_folder(file) and file.path in parents)]


def _gone_folders(files: Sequence[FileChange]) -> dict[str, str]:
    """Folders that were removed with many files in them: told of in one line, of which this is the end."""
    deleted = [file for file in files if file.action == "deleted"]
    folders = {file.path for file in deleted if is_folder(file)}
    inside: dict[str, list[FileChange]] = {}
    for file in deleted:
        if not is_folder(file) and (top := _below(file.path, folders)):
            inside.setdefault(top, []).append(file)
    kept = {_below(file.path, folders) for file in files if file.action != "deleted"}
    return {
        top: f" ({count(len(all_of), 'file')}){_numbers(total(all_of, ()))}"
        for top, all_of in inside.items()
        if len(all_of) > _MANY and top not in kept
    }


def _below(path: str, folders: Container[str]) -> str:
    """The outermost of these folders in which a path lies; empty if there is none."""
    at = path.find("/")
    while at >= 0:
        if path[:at] in folders:
            return path[:at]
        at = path.find("/", at + 1)
    return ""


def change_line(file: FileChange, shown: Callable[[str], str]) -> str:
    """`M src/a.py +3 -1`."""
    name = shown(file.path) + ("/" if is_folder(file) else "")
    return f"{_SIGNS[file.action]} {name}{_numbers(DiffStat(file.added, file.removed))}{_nature(file)}"


def _numbers(stat: DiffStat) -> str:
    return (f" +{stat.added:,}" if stat.added else "") + (f" -{stat.removed:,}" if stat.removed else "")


def _nature(file: FileChange) -> str:
    """What the numbers do not say: another kind of thing, other permissions, bytes that are no text."""
    before, after = file.before, file.after
    if after is None or (before is None and after.kind == "file"):
        return ""
    if before is None or before.kind != after.kind:
        was = "" if before is None else f"{_noun(before)} to "
        return f" ({was}{_noun(after)})" if before is not None or after.kind in ("link", "fifo") else ""
    if after.kind == "link":
        return " (link)"
    mode = f" (mode {before.mode:o} to {after.mode:o})" if before.mode != after.mode else ""
    silent = after.digest != before.digest and not file.added and not file.removed
    return f" ({before.size:,} to {after.size:,} bytes){mode}" if silent else mode


def _noun(state: FileState) -> str:
    return {"directory": "folder", "fifo": "FIFO"}.get(state.kind, state.kind)
