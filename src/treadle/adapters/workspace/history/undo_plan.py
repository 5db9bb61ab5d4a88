"""Plans the undo of a chat's changes, from the current state on disk: the changes to make, and the paths to leave alone
with the reason (W-02, W-03). Reads only; `transaction` makes the changes.

Each path is undone by itself (`path_undo`). Then paths that belong together are checked: a folder is removed only if
nothing is left in it, a file is restored only into a folder, and the files under `.git` are restored all together or
not at all. Leaving one path alone may mean that another must be, too, so the check is repeated until no further path is
left out.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

from msgspec.structs import replace

from treadle.adapters.workspace.history.content_store import ContentStore
from treadle.adapters.workspace.history.git_unit import INDEX, UNIT, git_fingerprint
from treadle.adapters.workspace.history.path_undo import Blocked, PathUndo, both, conflict
from treadle.adapters.workspace.history.states import Folders, kind_of, parts_of, reading
from treadle.adapters.workspace.paths.entries import LIST, closing_fd
from treadle.adapters.workspace.root import Root
from treadle.chat.change_rules import left_out
from treadle.diff.hunks import only
from treadle.errors import ToolError
from treadle.ports.snapshots import UNCLEAR, Plan, UndoRequest
from treadle.ports.workspace import inert
from treadle.protocol.files import (
    DiffStat,
    FileChange,
    FileConflict,
    FileState,
    Link,
    StateKind,
    Trail,
    change_of,
    decode_path,
    encode_path,
    git_unit,
)

_FOLDER_MODE = 0o755
T = TypeVar("T")


def plan(root: Root, images: ContentStore, request: UndoRequest) -> Plan:
    with Folders(root.top()) as folders:
        return _Planning(root, images, folders, request).plan()


def prepared(root: Root, images: ContentStore, request: UndoRequest) -> Plan:
    """The same, with everything kept that it takes: merged texts, and texts without some hunks, are nowhere else."""
    with Folders(root.top()) as folders:
        planning = _Planning(root, images, folders, request)
        undo_plan = planning.plan()
    if planning.made:
        with images.batch() as batch:
            for data in planning.made.values():
                batch.put(data)
    return undo_plan


def texts(root: Root, images: ContentStore, change: FileChange) -> tuple[bytes | None, bytes | None]:
    with Folders(root.top()) as folders:
        try:
            now = folders.look(change.path)
        except OSError:
            now = None
        way = PathUndo(change.path, now, images, lambda path: _read(folders, path))
        return way.text(change.before), way.text(change.after)


def keep_hunks(root: Root, images: ContentStore, trail: Trail, hunks: Sequence[int]) -> FileChange:
    with Folders(root.top()) as folders:
        way = PathUndo(trail.path, folders.look(trail.path), images, lambda path: _read(folders, path))
        try:
            old, new = both(trail.links, way.text)
        except Blocked as blocked:
            raise ToolError(f"{inert(decode_path(trail.path))}: {blocked.reason}.") from None
    old_state, new_state = trail.links[0].before, trail.links[0].after
    data = only(old, new, hunks)
    if data == new:
        return change_of(trail.path, old_state, new_state, DiffStat(), ignored=trail.ignored)
    if old_state is None or new_state is None:
        raise ToolError(f"{inert(decode_path(trail.path))} was made or removed as a whole; keep all of it or nothing.")
    kept_state = FileState("file", old_state.mode, images.put(data), len(data))
    return change_of(trail.path, old_state, kept_state, DiffStat(), ignored=trail.ignored)


class _Planning:
    def __init__(self, root: Root, images: ContentStore, folders: Folders, request: UndoRequest) -> None:
        self._root = root
        self._images = images
        self._folders = folders
        self._wanted = request
        self._ours = {trail.path for trail in request.trails}
        self._changes: dict[str, FileChange] = {}
        self._conflicts: dict[str, FileConflict] = {}
        self._refused: set[str] = set()
        """Repositories that are left alone."""
        self._git_changed: bool | None = None
        self.made: dict[str, bytes] = {}

    def plan(self) -> Plan:
        for trail in sorted(self._wanted.trails, key=lambda each: parts_of(each.path)):
            if not self._wanted.hunks or trail.path in self._wanted.hunks:
                self._one(trail)
        previous_paths: set[str] | None = None
        while previous_paths != set(self._changes):
            previous_paths = set(self._changes)
            if self._wanted.gated:
                self._leave_what_is_never_made()
            self._remove_only_empty_folders()
            self._put_only_into_folders()
            self._repositories_whole()
        ends = [state for change in self._changes.values() for state in _ends(change)]
        used_digests = {state.digest for state in ends if state is not None}
        self.made = {digest: data for digest, data in self.made.items() if digest in used_digests}
        return Plan(_sorted(self._changes), _sorted(self._conflicts))

    # -- each path for itself -----------------------------------------------------------------------------------------

    def _one(self, trail: Trail) -> None:
        path, unit = trail.path, git_unit(trail.path)
        if unit == UNIT and self._git_touched():
            reason = "something else in it has changed since, and it goes back as a whole or not at all"
            self._refuse(unit, reason)
            return
        try:
            if not trail.links:
                raise Blocked(UNCLEAR)
            now = self._folders.look(path)
            chain = _as_left(trail, now) if unit == UNIT else trail.chain
            way = PathUndo(path, now, self._images, lambda each: _read(self._folders, each))
            hunks = self._wanted.hunks.get(path, ())
            target = way.find(chain, merging=self._wanted.merge and not unit, never_merge=bool(unit), hunks=hunks)
        except Blocked as blocked:
            self._conflicts[path] = conflict(path, blocked)
            return
        except OSError as error:
            self._conflicts[path] = FileConflict(path, f"it cannot be read: {os.strerror(error.errno or 0)}")
            return
        if target.state != now:
            self.made |= way.made
            stat = way.stat(target.state)
            self._changes[path] = change_of(
                path, now, target.state, stat, ignored=trail.ignored, merged=target.merged, rebased=target.rebased
            )

    def _git_touched(self) -> bool:
        if self._git_changed is None:
            self._git_changed = bool(self._wanted.git) and git_fingerprint(self._root) != self._wanted.git
        return self._git_changed

    def _leave_what_is_never_made(self) -> None:
        for path, reason in left_out(self._changes.values(), lambda each: self._root.inspect(each) is not None).items():
            del self._changes[path]
            self._conflicts[path] = FileConflict(path, f"it is not made again: {reason}")

    # -- folders ------------------------------------------------------------------------------------------------------

    def _remove_only_empty_folders(self) -> None:
        growing = {_parent(path): path for path, change in self._changes.items() if change.after is not None}
        for path in sorted(self._changes, key=_depth, reverse=True):
            change = self._changes[path]
            if _kind(change.before) != "directory" or _kind(change.after) == "directory":
                continue
            remaining = [child for child in self._inside(path) if not self._goes(child)]
            remaining += [growing[path]] if path in growing else []
            if not remaining:
                continue
            del self._changes[path]
            foreign = [child for child in remaining if child not in self._conflicts and child not in self._ours]
            foreign = [child for child in foreign if child not in self._wanted.standing]
            # In the store of objects a folder may serve others, too; there is nothing to say about that.
            if (foreign or change.after is not None) and not _holds_objects(path):
                shown_path = inert(decode_path((foreign or remaining)[0]))
                self._conflicts[path] = FileConflict(
                    path, f"the folder stays, because of what is in it, as {shown_path}"
                )

    def _inside(self, path: str) -> Iterator[str]:
        with closing_fd(os.open(".", LIST, dir_fd=self._folders.at(parts_of(path)))) as fd:
            for name in os.listdir(fd):
                yield encode_path(f"{decode_path(path)}/{name}")

    def _goes(self, path: str) -> bool:
        return path in self._changes and self._changes[path].after is None

    def _put_only_into_folders(self) -> None:
        for path in sorted(self._changes, key=_depth):
            if self._goes(path):
                continue
            try:
                self._see_to_folder(_parent(path))
            except Blocked as blocked:
                del self._changes[path]
                self._conflicts[path] = conflict(path, blocked)

    def _see_to_folder(self, path: str) -> None:
        """There is, or will be, a folder: one that is nowhere known is made."""
        if not path:
            return
        planned = self._changes.get(path)
        if planned is not None:
            kind = _kind(planned.after)
        else:
            status = self._folders.lstat(path)
            kind = None if status is None else kind_of(status.st_mode)
        if kind == "directory":
            return
        if kind is not None or planned is not None or path in self._conflicts:
            raise Blocked(f"its folder {inert(decode_path(path))} is not there, and cannot be brought back")
        self._see_to_folder(_parent(path))
        self._changes[path] = change_of(path, None, FileState("directory", _FOLDER_MODE), DiffStat())

    # -- repositories -------------------------------------------------------------------------------------------------

    def _repositories_whole(self) -> None:
        for path, file_conflict in list(self._conflicts.items()):
            unit = git_unit(path)
            if unit and unit not in self._refused:
                self._refuse(
                    unit, f"{inert(decode_path(path))} in it: {file_conflict.reason}; it goes back as a whole or not"
                )
        if self._refused:
            self._changes = {
                path: change for path, change in self._changes.items() if git_unit(path) not in self._refused
            }

    def _refuse(self, unit: str, reason: str) -> None:
        self._refused.add(unit)
        self._conflicts = {
            path: file_conflict for path, file_conflict in self._conflicts.items() if git_unit(path) != unit
        }
        self._conflicts[unit] = FileConflict(unit, reason)


def _as_left(trail: Trail, now: FileState | None) -> Sequence[Link]:
    """Return the chain with the current index as its last state: the entries of the index are known to be unchanged, so
    notes of git in it do not count."""
    if trail.path != INDEX or now is None or now.kind != "file" or trail.chain[-1].after is None:
        return trail.chain
    *older, last = trail.chain
    return [*older, replace(last, after=now)]


def _ends(change: FileChange) -> Iterator[FileState | None]:
    """The states that a later undo may go on from."""
    yield change.after
    yield change.merged
    for link in change.rebased:
        yield from (link.before, link.after)


def _read(folders: Folders, path: str) -> bytes:
    with reading(*folders.of(path)) as fd, open(fd, "rb", closefd=False) as file:
        return file.read()


def _parent(path: str) -> str:
    return encode_path(decode_path(path).rpartition("/")[0])


def _depth(path: str) -> int:
    return decode_path(path).count("/")


def _holds_objects(path: str) -> bool:
    unit = git_unit(path)
    return bool(unit) and decode_path(path).startswith(f"{decode_path(unit)}/objects/")


def _kind(state: FileState | None) -> StateKind | None:
    return None if state is None else state.kind


def _sorted(by_path: Mapping[str, T]) -> tuple[T, ...]:
    return tuple(by_path[path] for path in sorted(by_path, key=parts_of))
