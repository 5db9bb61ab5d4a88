"""What a chat has done to the files of its project, out of the log: by path, from which state to which (W-02). Pure.

A path's history is a chain of links. Where one link ends as the next begins, they are one; where they do not, somebody
else changed the file in between, and going back must not lose that. An undo is a link like any other: behind it the
chain is as if nothing had happened. What was kept moves the beginning of a chain.
"""

from collections.abc import Iterable, Sequence

import msgspec

from treadle.protocol.events import FilesChanged, Kept, Redone, RestoreRequested, Undone
from treadle.protocol.files import FileChange, Link, Trail

Change = FilesChanged | Undone | Redone | Kept


class Entry(msgspec.Struct, frozen=True):
    """A change with its place in the log; its files are all there."""

    seq: int
    change: Change
    files: tuple[FileChange, ...]


def trails(entries: Sequence[Entry], wanted: RestoreRequested) -> tuple[Trail, ...]:
    """What the request is about, by path, oldest first. What is only known from watching comes only if it is named."""
    chains: dict[str, list[Link]] = {}
    observed: set[str] = set()
    for entry in entries:
        if entry.seq <= wanted.since or (wanted.upto and entry.seq > wanted.upto):
            continue
        for file in entry.files:
            if isinstance(entry.change, Kept):
                if not wanted.even_kept:
                    _keep(chains, file)
                continue
            if isinstance(entry.change, FilesChanged) and entry.change.source == "observed":
                observed.add(file.path)
            _add(chains.setdefault(file.path, []), file)
    return tuple(
        Trail(path, tuple(links), path in observed)
        for path, links in chains.items()
        if links and covers(wanted.paths, path) and (path not in observed or path in wanted.paths)
    )


def redone(entries: Iterable[Entry], undo: str) -> tuple[Trail, ...]:
    """What takes an undo back: its changes, seen from their end."""
    for entry in entries:
        if isinstance(entry.change, Undone) and entry.change.restore == undo:
            return tuple(Trail(file.path, (Link(file.before, file.after),)) for file in entry.files)
    return ()


def last_undo(entries: Sequence[Entry], requests: Iterable[RestoreRequested]) -> str:
    """The newest undo that was not redone; empty if there is none."""
    redos = {request.restore: request.of for request in requests if request.kind == "redo"}
    done = {redos.get(entry.change.restore, "") for entry in entries if isinstance(entry.change, Redone)}
    for entry in reversed(entries):
        if isinstance(entry.change, Undone) and entry.files and entry.change.restore not in done:
            return entry.change.restore
    return ""


def fingerprint(entries: Iterable[Entry]) -> str:
    """The newest known fingerprint of `.git`."""
    found = ""
    for entry in entries:
        found = (entry.change.git if not isinstance(entry.change, Kept) else "") or found
    return found


def covers(paths: Sequence[str], path: str) -> bool:
    """Whether a path is one of these or lies below one; no paths cover everything."""
    return not paths or any(path == each or path.startswith(each.rstrip("/") + "/") for each in paths)


def _add(chain: list[Link], file: FileChange) -> None:
    if chain and chain[-1].after == file.before:
        chain[-1] = Link(chain[-1].before, file.after)
    else:
        chain.append(Link(file.before, file.after))
    if chain[-1].before == chain[-1].after:
        chain.pop()


def _keep(chains: dict[str, list[Link]], file: FileChange) -> None:
    """Move the beginning of a chain: behind all of it, or, where only some hunks were kept, to a state in between."""
    chain = chains.get(file.path)
    if chain is None:
        return
    whole = file.after == chain[-1].after
    chains[file.path] = [] if whole else [Link(file.after, chain[-1].after)]
