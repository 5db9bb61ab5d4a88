"""The changes that a chat made to the files of its project, derived from the log: for each path the states before and
after (W-02). Pure.

A path's history is a row of steps. Each step begins with the state in which the step before it ended; if it does not,
another program or person changed the file in between, and an undo must not lose that change. An undo removes the steps
that it covers and rebases the steps after them, a redo restores them, a keep marks them, and an undo or keep of single
hunks divides them. The remaining steps in the range of a request are links to undo; later steps stay."""

from bisect import bisect_left
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from treadle.base.file_system import is_below
from treadle.protocol.events import ChangesKept, FilesChanged, Redone, RestoreRequested, Undone
from treadle.protocol.files import FileChange, FileState, Link, Trail, decode_path, encode_path, find_git_unit

Change = FilesChanged | Undone | Redone | ChangesKept


class LedgerEntry(msgspec.Struct, frozen=True):
    """A change with its place in the log; its files are all there."""

    seq: int
    change: Change
    files: tuple[FileChange, ...]
    request: RestoreRequested | None = None  # the request that caused the change; None for a change by the chat itself


class _Step(msgspec.Struct, frozen=True):
    """A change that stands. `first` and `last` are where it was made in the log: more than one place only if undoing or
    keeping single hunks melted several into one."""

    first: int
    last: int
    old_state: FileState | None
    new_state: FileState | None
    observed: bool = False
    is_kept: bool = False

    def is_within(self, request: RestoreRequested) -> bool:
        is_in_range = self.first > request.since and not 0 < request.upto < self.last
        return is_in_range and (request.even_kept or not self.is_kept)

    def is_partly_within(self, request: RestoreRequested) -> bool:
        """True if only a part of the step lies in the range. That part cannot be separated from the rest."""
        if self.is_kept and not request.even_kept:
            return False
        return self.first <= request.since < self.last or request.since < self.first <= request.upto < self.last

    @property
    def has_states(self) -> bool:
        """Changes that old logs tell of have no states."""
        return self.old_state != self.new_state


_Row = tuple[_Step, ...]


class _Past(msgspec.Struct, frozen=True):
    file: FileChange
    old_row: _Row
    new_row: _Row
    undone_steps: _Row  # the steps that it took back, or parts of which
    alone: bool  # True if the undo met only the chat's own changes in the file


def select_trails(
    entries: Sequence[LedgerEntry], request: RestoreRequested, runs: Sequence[int] = ()
) -> tuple[Trail, ...]:
    """Return the trails that the request covers, by path, oldest first. A change that was only observed is included
    only if its path is named. `entries`: all, regardless of the request's range. `runs`: where runs begin."""
    trails_by_path = _find_trails(entries, request, runs)
    covered = {path: trail for path, trail in trails_by_path.items() if covers_path(request.paths, path)}
    selected = {path: trail for path, trail in covered.items() if not trail.observed or path in request.paths}
    if request.kind == "undo" and request.paths:
        selected |= _select_belonging(trails_by_path, selected)
    return tuple(selected.values())


def find_unnamed_paths(entries: Sequence[LedgerEntry], request: RestoreRequested) -> tuple[str, ...]:
    """Return the paths that the request would cover if their changes were not only observed."""
    observed = (path for path, trail in _find_trails(entries, request).items() if trail.observed)
    return tuple(path for path in observed if covers_path(request.paths, path) and path not in request.paths)


def find_redo_trails(entries: Sequence[LedgerEntry], undo: str, runs: Sequence[int] = ()) -> tuple[Trail, ...]:
    """The trails that take an undo back: its changes from their end, with all later changes to those paths."""
    for number, entry in enumerate(entries):
        if isinstance(entry.change, Undone) and entry.change.restore == undo:
            since = _collect_later_links(entries[number + 1 :], {file.path for file in entry.files}, runs)
            chains = ((Link(file.before, file.after), *since.get(file.path, ())) for file in entry.files)
            pairs = zip(entry.files, chains, strict=True)
            return tuple(Trail(file.path, chain, ignored=file.ignored) for file, chain in pairs)
    return ()


def _collect_later_links(
    entries: Iterable[LedgerEntry], paths: Container[str], runs: Sequence[int]
) -> dict[str, list[Link]]:
    links_by_path: dict[str, list[Link]] = {}
    for entry in entries:
        match entry.change:
            case FilesChanged(source=source):
                by, foreign = _name_run(entry.seq, runs), source == "observed"
            case Undone() | Redone():
                by, foreign = f"a later {'undo' if isinstance(entry.change, Undone) else 'redo'}", False
            case ChangesKept():
                continue
        for file in entry.files:
            if file.path in paths:
                link = Link(file.before, file.after, by, foreign or file.before == file.after)
                links_by_path.setdefault(file.path, []).append(link)
    return links_by_path


def find_last_undo(entries: Sequence[LedgerEntry], requests: Iterable[RestoreRequested]) -> str:
    """The newest undo that was not redone; empty if there is none."""
    redos = {request.restore: request.of for request in requests if request.kind == "redo"}
    changes = [entry.change for entry in entries if entry.files]
    redone_ids = {redos.get(change.restore, "") for change in changes if isinstance(change, Redone)}
    undone_ids = (change.restore for change in reversed(changes) if isinstance(change, Undone))
    return next((undo for undo in undone_ids if undo not in redone_ids), "")


def find_git_fingerprint(entries: Iterable[LedgerEntry]) -> str:
    git_fingerprint = ""
    for entry in entries:
        git_fingerprint = (entry.change.git if not isinstance(entry.change, ChangesKept) else "") or git_fingerprint
    return git_fingerprint


def covers_path(paths: Sequence[str], path: str) -> bool:
    """True if `path` is one of `paths` or lies below one. Empty `paths` cover everything, and so does the root."""
    if not paths:
        return True
    path = decode_path(path)
    return any(each == "." or is_below(path, each) for each in map(decode_path, paths))


# -- the rows -------------------------------------------------------------------------------------------------------


def list_standing_paths(entries: Iterable[LedgerEntry]) -> frozenset[str]:
    return frozenset(path for path, row in _build_rows(entries).items() if row)


def _find_trails(
    entries: Sequence[LedgerEntry], request: RestoreRequested, runs: Sequence[int] = ()
) -> dict[str, Trail]:
    trails_by_path: dict[str, Trail] = {}
    changes = (entry for entry in entries if not isinstance(entry.change, ChangesKept))
    ignored = {file.path: file.ignored for entry in changes for file in entry.files}
    for path, row in _build_rows(entries).items():
        selected_steps = [step for step in row if step.is_within(request)]
        observed = any(step.observed for step in selected_steps)
        if any(step.is_partly_within(request) for step in row) or not all(step.has_states for step in selected_steps):
            trails_by_path[path] = Trail(path, (), observed, ignored[path])
            continue
        begin = row.index(selected_steps[0]) if selected_steps else len(row)
        if chain := _build_links(row[begin:], frozenset(selected_steps), runs):
            trails_by_path[path] = Trail(path, tuple(chain), observed, ignored[path])
    return trails_by_path


def _build_links(row: Iterable[_Step], selected_steps: Container[_Step], runs: Sequence[int]) -> list[Link]:
    """Build the links of a row. Adjacent selected steps become one link."""
    chain: list[Link] = []
    for step in row:
        if step not in selected_steps:
            by = _name_run(step.last, runs) + (" (kept)" if step.is_kept else "")
            chain.append(Link(step.old_state, step.new_state, by, step.observed or not step.has_states))
            continue
        if chain and not chain[-1].by and chain[-1].after == step.old_state:
            chain[-1] = Link(chain[-1].before, step.new_state)
        else:
            chain.append(Link(step.old_state, step.new_state))
        if chain[-1].before == chain[-1].after:
            chain.pop()
    return chain


def _name_run(seq: int, runs: Sequence[int]) -> str:
    number = bisect_left(runs, seq)
    return f"run {number}" if number else "another run"


def _build_rows(entries: Iterable[LedgerEntry]) -> dict[str, _Row]:
    """The steps that stand, by path, in the order in which they were made."""
    rows: dict[str, _Row] = {}
    undone: dict[tuple[str, str], _Past] = {}
    for entry in entries:
        request = entry.request or RestoreRequested("", "undo")
        for file in entry.files:
            row = rows.get(file.path, ())
            match entry.change:
                case FilesChanged(source=source):
                    step = _Step(entry.seq, entry.seq, file.before, file.after, source == "observed")
                    rows[file.path] = (*row, step)
                case ChangesKept():
                    rows[file.path] = _keep(row, file, request)
                case Undone(restore=restore):
                    undone_steps = tuple(step for step in row if step.is_within(request))
                    rows[file.path] = new_row = _undo(row, undone_steps, file, request)
                    is_alone = _is_undisturbed(row, undone_steps, file)
                    undone[restore, file.path] = _Past(file, row, new_row, undone_steps, is_alone)
                case Redone():
                    rows[file.path] = _redo(row, file, undone.get((request.of, file.path)), entry.seq)
    return rows


def _undo(row: _Row, undone_steps: _Row, file: FileChange, request: RestoreRequested) -> _Row:
    if not undone_steps:
        return row
    aim = file.merged or file.after
    part = file.path in request.hunks and aim != undone_steps[0].old_state
    at = row.index(undone_steps[0])
    later_steps = _rebase_steps([step for step in row[at:] if step not in undone_steps], file.rebased)
    remainder = _drop_stateless_steps([replace(_merge_steps(undone_steps), new_state=aim)] if part else [])
    return (*row[:at], *remainder, *later_steps)


def _rebase_steps(steps: Sequence[_Step], rebased: Sequence[Link]) -> Sequence[_Step]:
    """Steps that stand behind undone ones: they lead from something else to something else now."""
    if len(steps) != len(rebased):  # an old log, or a path that went back exactly
        return steps
    pairs = zip(steps, rebased, strict=True)
    return _drop_stateless_steps(replace(step, old_state=link.before, new_state=link.after) for step, link in pairs)


def _is_undisturbed(row: _Row, undone_steps: _Row, file: FileChange) -> bool:
    """True if an undo met only states that the chat itself had left."""
    at = undone_steps[0].old_state if undone_steps else None
    for step in row[row.index(undone_steps[0]) :] if undone_steps else ():
        if step.old_state != at or step.observed:
            return False
        at = step.new_state
    return at == file.before


def _redo(row: _Row, file: FileChange, past: _Past | None, seq: int) -> _Row:
    """The steps of the undo stand again, if all is as it was; else the redo is a change like another."""
    if past is None:
        return (*row, _Step(seq, seq, file.before, file.after))
    back = (past.file.after, past.file.before) == (file.before, file.after)
    if back and (past.alone or past.file.merged is None) and row == past.new_row:
        return past.old_row
    if not past.undone_steps:
        return row
    return (*row, replace(_merge_steps(past.undone_steps), old_state=file.before, new_state=file.after))


def _keep(row: _Row, file: FileChange, request: RestoreRequested) -> _Row:
    selected_steps = [step for step in row if step.is_within(request)]
    if not selected_steps:
        return row
    if file.path not in request.hunks or file.after == selected_steps[-1].new_state:
        return tuple(replace(step, is_kept=True) if step in selected_steps else step for step in row)
    merged_step, at = _merge_steps(selected_steps), row.index(selected_steps[0])
    parts = [replace(merged_step, new_state=file.after, is_kept=True), replace(merged_step, old_state=file.after)]
    return (*row[:at], *_drop_stateless_steps(parts), *(step for step in row[at:] if step not in selected_steps))


def _merge_steps(steps: Sequence[_Step]) -> _Step:
    first, last = min(step.first for step in steps), max(step.last for step in steps)
    return _Step(first, last, steps[0].old_state, steps[-1].new_state, any(step.observed for step in steps))


def _drop_stateless_steps(steps: Iterable[_Step]) -> list[_Step]:
    return [step for step in steps if step.has_states]


# -- paths that must be undone together --------------------------------------------------------------------------------


def _select_belonging(trails_by_path: Mapping[str, Trail], selected_paths: Iterable[str]) -> dict[str, Trail]:
    """Trails that must be included: removed folders into which files come back, and all of `.git` or nothing."""
    folders = {above for path in selected_paths for above in _iterate_parents(path) if above in trails_by_path}
    more = {folder for folder in folders if _is_folder_removal(trails_by_path[folder])}
    units = {find_git_unit(path) for path in (*selected_paths, *more)} - {""}
    more |= {path for path in trails_by_path if units and find_git_unit(path) in units}
    return {path: trails_by_path[path] for path in trails_by_path if path in more}


def _iterate_parents(path: str) -> Iterator[str]:
    path = decode_path(path)
    while "/" in path:
        path = path.rpartition("/")[0]
        yield encode_path(path)


def _is_folder_removal(trail: Trail) -> bool:
    states = (trail.links[0].before, trail.links[-1].after) if trail.links else (None, None)
    was_folder, is_folder = (state is not None and state.kind == "directory" for state in states)
    return was_folder and not is_folder
