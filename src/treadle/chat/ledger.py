"""What a chat has done to the files of its project, out of the log: by path, from which state to which (W-02). Pure.

A path's history is a row of steps, each of which begins as the one before it ended; where it does not, somebody else
changed the file in between, and going back must not lose that. An undo takes the steps away that it covers and moves
those behind them, a redo puts them back, a keep marks them, and one of single hunks divides them. What is left in the
range of a request are links to be taken back; steps of other runs behind them are links that stay.
"""

from bisect import bisect_left
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from treadle.file_system import is_below
from treadle.protocol.events import FilesChanged, Kept, Redone, RestoreRequested, Undone
from treadle.protocol.files import FileChange, FileState, Link, Trail, decode_path, encode_path, git_unit

Change = FilesChanged | Undone | Redone | Kept


class LedgerEntry(msgspec.Struct, frozen=True):
    """A change with its place in the log; its files are all there."""

    seq: int
    change: Change
    files: tuple[FileChange, ...]
    request: RestoreRequested | None = None
    """What asked for it; None for a change by the chat itself."""


class _Step(msgspec.Struct, frozen=True):
    """A change that stands. `first` and `last` are where it was made in the log: more than one place only if undoing or
    keeping single hunks melted several into one."""

    first: int
    last: int
    before: FileState | None
    after: FileState | None
    observed: bool = False
    kept: bool = False

    def within(self, wanted: RestoreRequested) -> bool:
        return self.first > wanted.since and not 0 < wanted.upto < self.last and (wanted.even_kept or not self.kept)

    def cut(self, wanted: RestoreRequested) -> bool:
        """Whether only a part of it lies in the range, and nobody can tell which."""
        if self.kept and not wanted.even_kept:
            return False
        begins = self.first <= wanted.since < self.last
        return begins or wanted.since < self.first <= wanted.upto < self.last

    @property
    def known(self) -> bool:
        """Changes that old logs tell of have no states."""
        return self.before != self.after


_Row = tuple[_Step, ...]


class _Past(msgspec.Struct, frozen=True):
    """What an undo did to the row of a path, for a redo."""

    file: FileChange
    before: _Row
    after: _Row
    gone: _Row
    """The steps that it took back, or parts of which."""
    alone: bool
    """Whether it left nobody else's changes in the file."""


def trails(entries: Sequence[LedgerEntry], wanted: RestoreRequested, runs: Sequence[int] = ()) -> tuple[Trail, ...]:
    """What the request is about, by path, oldest first. What is only known from watching comes only if it is named.
    `entries` are all there are, whatever the range of the request; `runs` are where runs begin, to name them."""
    found = _found(entries, wanted, runs)
    chosen = {
        path: trail
        for path, trail in found.items()
        if covers(wanted.paths, path) and (not trail.observed or path in wanted.paths)
    }
    if wanted.kind == "undo" and wanted.paths:
        chosen |= _belonging(found, chosen)
    return tuple(chosen.values())


def unnamed(entries: Sequence[LedgerEntry], wanted: RestoreRequested) -> tuple[str, ...]:
    """What would be covered if it were not only known from watching."""
    return tuple(
        path
        for path, trail in _found(entries, wanted).items()
        if trail.observed and covers(wanted.paths, path) and path not in wanted.paths
    )


def redone(entries: Sequence[LedgerEntry], undo: str, runs: Sequence[int] = ()) -> tuple[Trail, ...]:
    """What takes an undo back: its changes, seen from their end, with all that the chat did to those paths since."""
    for number, entry in enumerate(entries):
        if isinstance(entry.change, Undone) and entry.change.restore == undo:
            since = _since(entries[number + 1 :], {file.path for file in entry.files}, runs)
            return tuple(
                Trail(file.path, (Link(file.before, file.after), *since.get(file.path, ())), ignored=file.ignored)
                for file in entry.files
            )
    return ()


def _since(entries: Iterable[LedgerEntry], paths: Container[str], runs: Sequence[int]) -> dict[str, list[Link]]:
    found: dict[str, list[Link]] = {}
    for entry in entries:
        match entry.change:
            case FilesChanged(source=source):
                by, foreign = _run(entry.seq, runs), source == "observed"
            case Undone() | Redone():
                by, foreign = f"a later {'undo' if isinstance(entry.change, Undone) else 'redo'}", False
            case Kept():
                continue
        for file in entry.files:
            if file.path in paths:
                link = Link(file.before, file.after, by, foreign or file.before == file.after)
                found.setdefault(file.path, []).append(link)
    return found


def last_undo(entries: Sequence[LedgerEntry], requests: Iterable[RestoreRequested]) -> str:
    """The newest undo that was not redone; empty if there is none."""
    redos = {request.restore: request.of for request in requests if request.kind == "redo"}
    done = {
        redos.get(entry.change.restore, "") for entry in entries if isinstance(entry.change, Redone) and entry.files
    }
    for entry in reversed(entries):
        if isinstance(entry.change, Undone) and entry.files and entry.change.restore not in done:
            return entry.change.restore
    return ""


def fingerprint(entries: Iterable[LedgerEntry]) -> str:
    """The newest known fingerprint of `.git`."""
    found = ""
    for entry in entries:
        found = (entry.change.git if not isinstance(entry.change, Kept) else "") or found
    return found


def covers(paths: Sequence[str], path: str) -> bool:
    """Whether a path is one of these or lies below one; no paths cover everything, and so does the root itself."""
    if not paths:
        return True
    path = decode_path(path)
    above = [decode_path(each) for each in paths]
    return any(each == "." or is_below(path, each) for each in above)


# -- the rows -------------------------------------------------------------------------------------------------------


def standing(entries: Iterable[LedgerEntry]) -> frozenset[str]:
    """The paths to which something was done that stands."""
    return frozenset(path for path, row in _rows(entries).items() if row)


def _found(entries: Sequence[LedgerEntry], wanted: RestoreRequested, runs: Sequence[int] = ()) -> dict[str, Trail]:
    found: dict[str, Trail] = {}
    ignored = {
        file.path: file.ignored for entry in entries for file in entry.files if not isinstance(entry.change, Kept)
    }
    for path, row in _rows(entries).items():
        chosen = [step for step in row if step.within(wanted)]
        observed = any(step.observed for step in chosen)
        if any(step.cut(wanted) for step in row) or not all(step.known for step in chosen):
            found[path] = Trail(path, (), observed, ignored[path])
        elif chosen:
            chain = tuple(_chain(row[row.index(chosen[0]) :], frozenset(chosen), runs))
            trail = Trail(path, chain, observed, ignored[path])
            if trail.links:
                found[path] = trail
    return found


def _chain(row: Iterable[_Step], chosen: Container[_Step], runs: Sequence[int]) -> list[Link]:
    """What is wanted and follows on each other is one link."""
    chain: list[Link] = []
    for step in row:
        if step not in chosen:
            by = _run(step.last, runs) + (" (kept)" if step.kept else "")
            chain.append(Link(step.before, step.after, by, step.observed or not step.known))
            continue
        if chain and not chain[-1].by and chain[-1].after == step.before:
            chain[-1] = Link(chain[-1].before, step.after)
        else:
            chain.append(Link(step.before, step.after))
        if chain[-1].before == chain[-1].after:
            chain.pop()
    return chain


def _run(seq: int, runs: Sequence[int]) -> str:
    number = bisect_left(runs, seq)
    return f"run {number}" if number else "another run"


def _rows(entries: Iterable[LedgerEntry]) -> dict[str, _Row]:
    """The steps that stand, by path, in the order in which they were made."""
    rows: dict[str, _Row] = {}
    undone: dict[tuple[str, str], _Past] = {}
    for entry in entries:
        asked = entry.request or RestoreRequested("", "undo")
        for file in entry.files:
            row = rows.get(file.path, ())
            match entry.change:
                case FilesChanged(source=source):
                    step = _Step(entry.seq, entry.seq, file.before, file.after, source == "observed")
                    rows[file.path] = (*row, step)
                case Kept():
                    rows[file.path] = _keep(row, file, asked)
                case Undone(restore=restore):
                    gone = tuple(step for step in row if step.within(asked))
                    left = _undo(row, gone, file, asked)
                    undone[restore, file.path] = _Past(file, row, left, gone, _alone(row, gone, file))
                    rows[file.path] = left
                case Redone():
                    rows[file.path] = _redo(row, file, undone.get((asked.of, file.path)), entry.seq)
    return rows


def _undo(row: _Row, gone: _Row, file: FileChange, asked: RestoreRequested) -> _Row:
    if not gone:
        return row
    aim = file.merged or file.after
    part = file.path in asked.hunks and aim != gone[0].before
    at = row.index(gone[0])
    left = _moved([step for step in row[at:] if step not in gone], file.rebased)
    return (*row[:at], *_known([replace(_melted(gone), after=aim)] if part else []), *left)


def _moved(steps: Sequence[_Step], rebased: Sequence[Link]) -> Sequence[_Step]:
    """Steps that stand behind undone ones: they lead from something else to something else now."""
    if len(steps) != len(rebased):  # an old log, or a path that went back exactly
        return steps
    moved = [replace(step, before=link.before, after=link.after) for step, link in zip(steps, rebased, strict=True)]
    return _known(moved)


def _alone(row: _Row, gone: _Row, file: FileChange) -> bool:
    """Whether an undo met nothing but what the chat itself left."""
    at = gone[0].before if gone else None
    for step in row[row.index(gone[0]) :] if gone else ():
        if step.before != at or step.observed:
            return False
        at = step.after
    return at == file.before


def _redo(row: _Row, file: FileChange, past: _Past | None, seq: int) -> _Row:
    """The steps of the undo stand again, if all is as it was; else the redo is a change like another."""
    if past is None:
        return (*row, _Step(seq, seq, file.before, file.after))
    back = (past.file.after, past.file.before) == (file.before, file.after)
    if back and (past.alone or past.file.merged is None) and row == past.after:
        return past.before
    if not past.gone:
        return row
    return (*row, replace(_melted(past.gone), before=file.before, after=file.after))


def _keep(row: _Row, file: FileChange, asked: RestoreRequested) -> _Row:
    chosen = [step for step in row if step.within(asked)]
    if not chosen:
        return row
    if file.path not in asked.hunks or file.after == chosen[-1].after:
        return tuple(replace(step, kept=True) if step in chosen else step for step in row)
    whole = _melted(chosen)
    return _instead(row, chosen, [replace(whole, after=file.after, kept=True), replace(whole, before=file.after)])


def _melted(steps: Sequence[_Step]) -> _Step:
    first, last = min(step.first for step in steps), max(step.last for step in steps)
    return _Step(first, last, steps[0].before, steps[-1].after, any(step.observed for step in steps))


def _instead(row: _Row, gone: Sequence[_Step], new: Iterable[_Step]) -> _Row:
    at = row.index(gone[0])
    left = [step for step in row[at:] if step not in gone]
    return (*row[:at], *_known(new), *left)


def _known(steps: Iterable[_Step]) -> list[_Step]:
    return [step for step in steps if step.known]


# -- what belongs together ---------------------------------------------------------------------------------------------


def _belonging(found: Mapping[str, Trail], chosen: Iterable[str]) -> dict[str, Trail]:
    """What must come along: the removed folders into which files come back, and all of `.git`, or nothing of it."""
    more = {above for path in chosen for above in _above(path) if above in found and _removes_folder(found[above])}
    units = {git_unit(path) for path in (*chosen, *more)} - {""}
    more |= {path for path in found if units and git_unit(path) in units}
    return {path: found[path] for path in found if path in more}


def _above(path: str) -> Iterator[str]:
    path = decode_path(path)
    while "/" in path:
        path = path.rpartition("/")[0]
        yield encode_path(path)


def _removes_folder(trail: Trail) -> bool:
    if not trail.links:
        return False
    before, after = trail.links[0].before, trail.links[-1].after
    return before is not None and before.kind == "directory" and (after is None or after.kind != "directory")
