"""Plans the undo of a chat's changes, from the current state on disk: the changes to make, and the paths to leave alone
with the reason (W-02, W-03). Reads only; `transaction` makes the changes.

Each path is undone by itself (`PathUndo`): from its current state, link by link, to the original one. Later changes to
keep are applied on top of that again: those of the chat itself by a three-way merge, as their states are known; those
of others, too, if the caller asks for it. If a change cannot be merged, the path is left alone, so that it is never
lost.

Then paths that belong together are checked: a folder is removed only if nothing is left in it, a file is restored only
into a folder, and the files under `.git` are restored all together or not at all. Leaving one path alone may mean that
another must be, too, so the check is repeated until no further path is left out."""

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import pairwise
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from treadle.adapters.workspace.history.content_store import ContentStore, open_after_images
from treadle.adapters.workspace.history.git_index import INDEX, UNIT, compute_git_fingerprint
from treadle.adapters.workspace.history.states import Folders, get_state_kind, hold_file, is_folder, split_path
from treadle.adapters.workspace.paths.entries import LIST, hold_fd
from treadle.adapters.workspace.root import Root
from treadle.chat.change_rules import explain_left_out
from treadle.diff.diff import MAX_TEXT, apply_hunks, count_lines, diff_texts, is_text, remove_hunks
from treadle.diff.merge import merge
from treadle.errors import NotFound, ToolError
from treadle.ports.snapshots import MERGEABLE, UNCLEAR, Plan, UndoRequest
from treadle.ports.workspace import escape_name
from treadle.protocol import files
from treadle.protocol.files import DiffStat, FileChange, FileConflict, FileState, Link, decode_path, make_file_change

State = FileState | None
SOMEBODY = "somebody"
_COUNTED = 1 << 20  # Files up to this size are compared to say how many lines change


class UndoTarget(msgspec.Struct, frozen=True):
    """The final state of a path. `merged`: without later changes; `rebased`: new links of the chat's later changes."""

    state: State
    merged: State = None
    rebased: tuple[Link, ...] = ()


class Blocked(Exception):
    """The path cannot be undone."""

    def __init__(self, reason: str, diff_text: str = "") -> None:
        super().__init__(reason)
        self.reason, self.diff = reason, diff_text


def walk(links: Sequence[Link], now: State) -> tuple[State, int]:
    """Follow the links back until a change by others: return the state there, and the number of links left."""
    if now not in (links[-1].before, links[-1].after) and now == links[0].before:
        return now, 0
    for remaining in range(len(links), 0, -1):
        link = links[remaining - 1]
        if now == link.after:
            now = link.before
        elif now != link.before:
            return now, remaining
    return now, 0


class PathUndo:
    """`path` as it is recorded, `now` what lies there; `on_disk` reads its bytes."""

    def __init__(self, path: str, now: State, images: ContentStore, on_disk: Callable[[str], bytes]) -> None:
        self._path, self._now, self._images, self._on_disk = path, now, images, on_disk
        self._after_images = open_after_images(images.folder)
        self.made: dict[str, bytes] = {}  # Texts that are nowhere kept yet, by their hash

    def find(
        self, chain: Sequence[Link], *, merging: bool, never_merge: bool = False, hunks: Sequence[int] = ()
    ) -> UndoTarget:
        """Return the target of the undo. Blocked if a later change is in the way, or the original content is no longer
        kept. `merging`: also merge changes by others, not only those of the chat; `never_merge`: merge none."""
        selected_links = [link for link in chain if not link.by]
        start = selected_links[0].before
        if hunks and (hunk_state := self._take_back_hunks(selected_links, hunks)) is not None:
            chain = [Link(hunk_state, link.after) if link is selected_links[0] else link for link in chain]
            selected_links, start = [Link(hunk_state, selected_links[0].after)], hunk_state
        state, remaining = walk(selected_links, self._now)
        # Every state from the first link to the current one is known, and some changes are to stay.
        follows = all(one.after == following.before for one, following in pairwise(chain))
        if remaining or (follows and chain[-1].after == self._now and any(link.by for link in chain)):
            try:
                return self._rebase_changes(chain, start, merging=merging, never_merge=never_merge)
            except Blocked:
                if remaining:
                    raise
        self._require(state)
        return UndoTarget(state)

    def _rebase_changes(self, chain: Sequence[Link], start: State, *, merging: bool, never_merge: bool) -> UndoTarget:
        """The original content plus the changes to keep."""
        first = next(number for number, link in enumerate(chain) if not link.by)
        state, rebased_links = start, list(chain[:first])
        for link in (each for each in self._fill_gaps(chain[first:]) if each.by):
            if state != link.before and link.foreign and not merging:
                raise self._explain_drift(link)
            previous_state = state
            state = link.after if state == link.before else self._merge_change(link, state, never_merge=never_merge)
            if link.by != SOMEBODY:
                rebased_links.append(Link(previous_state, state))
        self._require(state)
        return UndoTarget(state, start if state != start else None, tuple(rebased_links))

    def _fill_gaps(self, chain: Sequence[Link]) -> list[Link]:
        """The chain with links for the changes by others in between and since."""
        links: list[Link] = []
        for link in (*chain, Link(self._now, self._now)):
            if links and links[-1].after != link.before:
                links.append(Link(links[-1].after, link.before, SOMEBODY, True))
            links.append(link)
        return links[:-1]

    def stat(self, state: State) -> DiffStat:
        if all(each is None or each.kind != "file" or each.size <= _COUNTED for each in (self._now, state)):
            old, new = self.read_text(self._now), self.read_text(state)
            if old is not None and new is not None:
                return count_lines(old.decode("utf-8", "replace"), new.decode("utf-8", "replace"))
        return DiffStat()

    def _take_back_hunks(self, links: Sequence[Link], hunk_numbers: Sequence[int]) -> State:
        """The current state without these hunks; None if these are all hunks."""
        old, new = read_both_texts(links, self.read_text)
        data, new_state = remove_hunks(old, new, hunk_numbers), links[0].after
        is_whole = data == old or links[0].before is None or new_state is None
        return None if is_whole or new_state is None else self._make(data, new_state.mode)

    def _merge_change(self, link: Link, state: State, *, never_merge: bool) -> State:
        """A later change, made to another state than it was made to."""
        if state == link.after:
            return state
        kinds = {each.kind if each is not None else "" for each in (link.before, link.after, state)}
        if never_merge or link.before is None or link.after is None or state is None or kinds - {"file"}:
            raise self._explain_obstacle(link, "it was made, removed or replaced as a whole")
        mode = state.mode if link.after.mode == link.before.mode else link.after.mode
        if state.mode not in (link.before.mode, mode):
            raise self._explain_obstacle(link, "both changed its mode")
        if link.before.digest == link.after.digest:
            return replace(state, mode=mode)
        if link.before.digest == state.digest:
            return replace(link.after, mode=mode)
        base, ours, theirs = self.read_text(link.before), self.read_text(link.after), self.read_text(state)
        if base is None or ours is None or theirs is None:
            raise self._explain_obstacle(link, "there is no text on all three sides")
        merge_result = merge(base, ours, theirs)
        if merge_result.clashes:
            lines = ", ".join(f"{each.first}" for each in merge_result.clashes[:10])
            raise self._explain_obstacle(link, f"both changed the same lines (at {lines})")
        return self._make(merge_result.data, mode)

    def _explain_obstacle(self, link: Link, reason: str) -> Blocked:
        """A later change that cannot be put on top of what was there before."""
        if link.foreign:
            return self._explain_drift(link, f". It cannot be merged: {reason}")
        return Blocked(f"{link.by} changed it later, and {reason}; take that back first, or both together")

    def _explain_drift(self, link: Link, more: str = "") -> Blocked:
        if link.by != SOMEBODY:
            return Blocked(f"it was found changed while a background process of {link.by} ran{more}")
        time_note = " since" if link.after == self._now else " between two changes of this chat"
        # From what the chat left to what is there, where both are text.
        old, new, diff_text = self.read_text(link.before), self.read_text(link.after), ""
        if old is not None and new is not None and old != new:
            sides = ((link.before, old), (link.after, new))
            texts = (None if state is None else data.decode("utf-8", "replace") for state, data in sides)
            diff_text = diff_texts(escape_name(decode_path(self._path)), *texts).text
        return Blocked(f"{_describe_difference(link.before, link.after)}{time_note}{more}", diff_text)

    def read_text(self, state: State) -> bytes | None:
        """The bytes of a state, if they are a text that can be had. Of nothing: none."""
        if state is None:
            return b""
        if state.kind != "file" or state.size > MAX_TEXT:
            return None
        with suppress(NotFound, ToolError, OSError):
            data = self._read_bytes(state)
            return data if is_text(data) else None
        return None

    def _read_bytes(self, state: FileState) -> bytes:
        if state.digest in self.made:
            return self.made[state.digest]
        if self._now is not None and state.digest == self._now.digest:
            data = self._on_disk(self._path)
            if hashlib.sha256(data).hexdigest() == state.digest:
                return data
        try:
            return self._images.read(state.digest, MAX_TEXT)
        except NotFound:
            return self._after_images.read(state.digest)

    def _make(self, data: bytes, mode: int) -> FileState:
        digest = hashlib.sha256(data).hexdigest()
        self.made[digest] = data
        return FileState("file", mode, digest, len(data))

    def _require(self, state: State) -> None:
        if state == self._now:
            return
        if "other" in (state and state.kind, self._now and self._now.kind):
            raise Blocked("it is or was a socket or a device, which cannot be kept and made again")
        if state is None or state.kind != "file" or state.digest in self.made or self._images.has_object(state.digest):
            return
        if self._now is None or state.digest != self._now.digest:
            raise Blocked("its earlier content is no longer stored, so it cannot be restored")


def read_both_texts(links: Sequence[Link], text: Callable[[State], bytes | None]) -> tuple[bytes, bytes]:
    """The texts at both ends of a single link. ToolError if there is no such thing."""
    if len(links) != 1:
        raise Blocked("something else changed it between these changes, so its hunks cannot be told apart")
    old, new = text(links[0].before), text(links[0].after)
    if old is None or new is None:
        raise Blocked("it is no text, or its bytes are no longer kept, so it has no hunks; take all of it or nothing")
    return old, new


def _describe_difference(expected: State, now: State) -> str:
    if expected is None:
        return "it was created again"
    if now is None:
        return "it was removed"
    if expected.kind != now.kind:
        return f"it was replaced by a {now.kind}"
    if replace(expected, mode=now.mode) == now:
        return f"{MERGEABLE}: its mode was {expected.mode:o} and is {now.mode:o}"
    return MERGEABLE


_FOLDER_MODE = 0o755
T = TypeVar("T")


def plan_undo(root: Root, images: ContentStore, request: UndoRequest, *, keep: bool = False) -> Plan:
    """With `keep`, everything is kept that it takes: merged texts, and texts without some hunks, are nowhere else."""
    with Folders(root.open_top()) as folders:
        planning = _Planning(root, images, folders, request)
        undo_plan = planning.plan()
    if keep and planning.made:
        with images.open_batch() as batch:
            for data in planning.made.values():
                batch.put(data)
    return undo_plan


def read_texts(root: Root, images: ContentStore, change: FileChange) -> tuple[bytes | None, bytes | None]:
    with Folders(root.open_top()) as folders:
        try:
            now = folders.read_state(change.path)
        except OSError:
            now = None
        way = PathUndo(change.path, now, images, lambda path: _read(folders, path))
        return way.read_text(change.before), way.read_text(change.after)


def keep_hunks(root: Root, images: ContentStore, trail: files.Trail, hunks: Sequence[int]) -> FileChange:
    with Folders(root.open_top()) as folders:
        way = PathUndo(trail.path, folders.read_state(trail.path), images, lambda path: _read(folders, path))
        try:
            old, new = read_both_texts(trail.links, way.read_text)
        except Blocked as blocked:
            raise ToolError(f"{escape_name(decode_path(trail.path))}: {blocked.reason}.") from None
    old_state, new_state = trail.links[0].before, trail.links[0].after
    data = apply_hunks(old, new, hunks)
    if data == new:
        return make_file_change(trail.path, old_state, new_state, DiffStat(), ignored=trail.ignored)
    if old_state is None or new_state is None:
        name = escape_name(decode_path(trail.path))
        raise ToolError(f"{name} was made or removed as a whole; keep all of it or nothing.")
    kept_state = FileState("file", old_state.mode, images.put(data), len(data))
    return make_file_change(trail.path, old_state, kept_state, DiffStat(), ignored=trail.ignored)


class _Planning:
    def __init__(self, root: Root, images: ContentStore, folders: Folders, request: UndoRequest) -> None:
        self._root, self._images, self._folders, self._wanted = root, images, folders, request
        self._ours = {trail.path for trail in request.trails}
        self._changes: dict[str, FileChange] = {}
        self._conflicts: dict[str, FileConflict] = {}
        self._refused: set[str] = set()  # Repositories that are left alone
        self.made: dict[str, bytes] = {}

    @cached_property
    def _is_git_changed(self) -> bool:
        return bool(self._wanted.git) and compute_git_fingerprint(self._root) != self._wanted.git

    def plan(self) -> Plan:
        for trail in sorted(self._wanted.trails, key=lambda each: split_path(each.path)):
            if not self._wanted.hunks or trail.path in self._wanted.hunks:
                self._plan_path(trail)
        previous_paths: set[str] | None = None
        while previous_paths != set(self._changes):
            previous_paths = set(self._changes)
            if self._wanted.gated:
                reasons = explain_left_out(self._changes.values(), lambda path: self._root.inspect(path) is not None)
                for path, reason in reasons.items():
                    del self._changes[path]
                    self._conflicts[path] = FileConflict(path, f"it is not made again: {reason}")
            self._remove_only_empty_folders()
            self._put_only_into_folders()
            self._keep_repositories_whole()
        used_digests: set[str] = set()
        for change in self._changes.values():  # the states that a later undo may go on from
            ends = (change.after, change.merged, *(end for link in change.rebased for end in (link.before, link.after)))
            used_digests.update(state.digest for state in ends if state is not None)
        self.made = {digest: data for digest, data in self.made.items() if digest in used_digests}
        return Plan(_sort_by_path(self._changes), _sort_by_path(self._conflicts))

    def _plan_path(self, trail: files.Trail) -> None:
        path, unit = trail.path, files.find_git_unit(trail.path)
        if unit == UNIT and self._is_git_changed:
            reason = "something else in it has changed since, and it goes back as a whole or not at all"
            return self._refuse(unit, reason)
        try:
            if not trail.links:
                raise Blocked(UNCLEAR)
            now = self._folders.read_state(path)
            chain = trail.chain
            if path == INDEX and now is not None and now.kind == "file" and chain[-1].after is not None:
                # The entries of the index are known to be unchanged, so notes of git in it do not count.
                chain = (*chain[:-1], replace(chain[-1], after=now))
            way = PathUndo(path, now, self._images, lambda each: _read(self._folders, each))
            hunks = self._wanted.hunks.get(path, ())
            target = way.find(chain, merging=self._wanted.merge and not unit, never_merge=bool(unit), hunks=hunks)
        except Blocked as blocked:
            self._conflicts[path] = FileConflict(path, blocked.reason, blocked.diff)
        except OSError as error:
            self._conflicts[path] = FileConflict(path, f"it cannot be read: {os.strerror(error.errno or 0)}")
        else:
            if target.state != now:
                self.made |= way.made
                change = make_file_change(path, now, target.state, way.stat(target.state), ignored=trail.ignored)
                self._changes[path] = replace(change, merged=target.merged, rebased=target.rebased)
        return None

    def _remove_only_empty_folders(self) -> None:
        growing = {_get_parent(path): path for path, change in self._changes.items() if change.after is not None}
        for path in sorted(self._changes, key=_compute_depth, reverse=True):
            change = self._changes[path]
            if not is_folder(change.before) or is_folder(change.after):
                continue
            with hold_fd(os.open(".", LIST, dir_fd=self._folders.hold_folder(split_path(path)))) as fd:
                children = [files.encode_path(f"{decode_path(path)}/{name}") for name in os.listdir(fd)]
            remaining = [child for child in children if not self._is_removed(child)]
            remaining += [growing[path]] if path in growing else []
            if not remaining:
                continue
            del self._changes[path]
            known_paths = (self._conflicts, self._ours, self._wanted.standing)
            foreign = [child for child in remaining if not any(child in paths for paths in known_paths)]
            # In the store of objects a folder may serve others, too; there is nothing to say about that.
            unit = files.find_git_unit(path)
            holds_objects = unit and decode_path(path).startswith(f"{decode_path(unit)}/objects/")
            if (foreign or change.after is not None) and not holds_objects:
                shown_path = escape_name(decode_path((foreign or remaining)[0]))
                reason = f"the folder stays, because of what is in it, as {shown_path}"
                self._conflicts[path] = FileConflict(path, reason)

    def _is_removed(self, path: str) -> bool:
        return path in self._changes and self._changes[path].after is None

    def _put_only_into_folders(self) -> None:
        for path in (each for each in sorted(self._changes, key=_compute_depth) if not self._is_removed(each)):
            try:
                self._see_to_folder(_get_parent(path))
            except Blocked as blocked:
                del self._changes[path]
                self._conflicts[path] = FileConflict(path, blocked.reason, blocked.diff)

    def _see_to_folder(self, path: str) -> None:
        """There is, or will be, a folder: one that is nowhere known is made."""
        if not path:
            return
        planned = self._changes.get(path)
        status = self._folders.lstat(path) if planned is None else None
        if (
            is_folder(planned.after)
            if planned
            else status is not None and get_state_kind(status.st_mode) == "directory"
        ):
            return
        if status is not None or planned is not None or path in self._conflicts:
            raise Blocked(f"its folder {escape_name(decode_path(path))} is not there, and cannot be brought back")
        self._see_to_folder(_get_parent(path))
        self._changes[path] = make_file_change(path, None, FileState("directory", _FOLDER_MODE), DiffStat())

    def _keep_repositories_whole(self) -> None:
        for path, conflict in list(self._conflicts.items()):
            if (unit := files.find_git_unit(path)) and unit not in self._refused:
                reason = f"{escape_name(decode_path(path))} in it: {conflict.reason}; it goes back as a whole or not"
                self._refuse(unit, reason)
        changes = self._changes.items()
        self._changes = {path: change for path, change in changes if files.find_git_unit(path) not in self._refused}

    def _refuse(self, unit: str, reason: str) -> None:
        self._refused.add(unit)
        self._conflicts = {path: each for path, each in self._conflicts.items() if files.find_git_unit(path) != unit}
        self._conflicts[unit] = FileConflict(unit, reason)


def _read(folders: Folders, path: str) -> bytes:
    with hold_file(*folders.locate(path)) as fd, open(fd, "rb", closefd=False) as file:
        return file.read()


def _get_parent(path: str) -> str:
    return files.encode_path(decode_path(path).rpartition("/")[0])


def _compute_depth(path: str) -> int:
    return decode_path(path).count("/")


def _sort_by_path(by_path: Mapping[str, T]) -> tuple[T, ...]:
    return tuple(by_path[path] for path in sorted(by_path, key=split_path))
