"""Undo of one path: from its current state, link by link, to the original one (W-02). Later changes to keep are applied
on top of that again: those of the chat itself by a three-way merge, as their states are known; those of others, too, if
the caller asks for it. If a change cannot be merged, the path is left alone, so that it is never lost. Knows one path
at a time; `undo_plan` handles paths that belong together."""

import hashlib
from collections.abc import Callable, Sequence
from itertools import pairwise

import msgspec
from msgspec.structs import replace

from treadle.adapters.workspace.history.content_store import ContentStore, after_images
from treadle.diff import hunks as parts
from treadle.diff.diff import count_lines, diff
from treadle.diff.merge import merge
from treadle.errors import NotFound, ToolError
from treadle.ports.snapshots import MERGEABLE
from treadle.ports.workspace import inert
from treadle.protocol.files import DiffStat, FileConflict, FileState, Link, decode_path

State = FileState | None
SOMEBODY = "somebody"
_COUNTED = 1 << 20
"""Files up to this size are compared to say how many lines change."""


class UndoTarget(msgspec.Struct, frozen=True):
    """The final state of an undo of the path. `merged`: the final state without later changes; `rebased`: the links of
    the chat's own later changes, with their new states."""

    state: State
    merged: State = None
    rebased: tuple[Link, ...] = ()


class Blocked(Exception):
    """The path cannot be undone."""

    def __init__(self, reason: str, diff_text: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.diff = diff_text


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
        self._path = path
        self._now = now
        self._images = images
        self._after_images = after_images(images.folder)
        self._on_disk = on_disk
        self.made: dict[str, bytes] = {}
        """Texts that are nowhere kept yet, by their hash."""

    def find(
        self, chain: Sequence[Link], *, merging: bool, never_merge: bool = False, hunks: Sequence[int] = ()
    ) -> UndoTarget:
        """Return the target of the undo. Blocked if a later change is in the way, or the original content is no longer
        kept. `merging`: also merge changes by others, not only those of the chat; `never_merge`: merge none."""
        selected_links = [link for link in chain if not link.by]
        start = selected_links[0].before
        if hunks and (hunk_state := self._with_hunks_taken_back(selected_links, hunks)) is not None:
            chain = [Link(hunk_state, link.after) if link is selected_links[0] else link for link in chain]
            selected_links, start = [Link(hunk_state, selected_links[0].after)], hunk_state
        state, remaining = walk(selected_links, self._now)
        if remaining or self._stands_behind(chain):
            try:
                return self._rebased(chain, start, merging=merging, never_merge=never_merge)
            except Blocked:
                if remaining:
                    raise
        self._require(state)
        return UndoTarget(state)

    def _stands_behind(self, chain: Sequence[Link]) -> bool:
        """True if every state from the first link to the current one is known, and some changes are to stay."""
        follows = all(one.after == following.before for one, following in pairwise(chain))
        return follows and chain[-1].after == self._now and any(link.by for link in chain)

    def _rebased(self, chain: Sequence[Link], start: State, *, merging: bool, never_merge: bool) -> UndoTarget:
        """The original content plus the changes to keep."""
        first = next(number for number, link in enumerate(chain) if not link.by)
        state, rebased_links = start, list(chain[:first])
        for link in self._with_gaps(chain[first:]):
            if not link.by:
                continue
            previous_state = state
            if state != link.before:
                if link.foreign and not merging:
                    raise self._drifted(link)
                state = self._merged(link, state, never_merge=never_merge)
            else:
                state = link.after
            if link.by != SOMEBODY:
                rebased_links.append(Link(previous_state, state))
        self._require(state)
        return UndoTarget(state, start if state != start else None, tuple(rebased_links))

    def _with_gaps(self, chain: Sequence[Link]) -> list[Link]:
        """The chain with links for the changes by others in between and since."""
        links: list[Link] = []
        for link in (*chain, Link(self._now, self._now)):
            if links and links[-1].after != link.before:
                links.append(Link(links[-1].after, link.before, SOMEBODY, True))
            links.append(link)
        return links[:-1]

    def stat(self, state: State) -> DiffStat:
        """How many lines the way back adds and removes."""
        if all(each is None or each.kind != "file" or each.size <= _COUNTED for each in (self._now, state)):
            old, new = self.text(self._now), self.text(state)
            if old is not None and new is not None:
                return count_lines(old.decode("utf-8", "replace"), new.decode("utf-8", "replace"))
        return DiffStat()

    # -- hunks --------------------------------------------------------------------------------------------------------

    def _with_hunks_taken_back(self, links: Sequence[Link], hunk_numbers: Sequence[int]) -> State:
        """The current state without these hunks; None if these are all hunks."""
        old, new = both(links, self.text)
        data = parts.without(old, new, hunk_numbers)
        old_state, new_state = links[0].before, links[0].after
        if data == old or old_state is None or new_state is None:
            return None
        return self._make(data, new_state.mode)

    # -- later changes ------------------------------------------------------------------------------------------------

    def _merged(self, link: Link, state: State, *, never_merge: bool) -> State:
        """A later change, made to another state than it was made to."""
        if state == link.after:
            return state
        kinds = {each.kind if each is not None else "" for each in (link.before, link.after, state)}
        if never_merge or link.before is None or link.after is None or state is None or kinds - {"file"}:
            raise self._in_the_way(link, "it was made, removed or replaced as a whole")
        mode = _merged_mode(link.before.mode, link.after.mode, state.mode)
        if mode is None:
            raise self._in_the_way(link, "both changed its mode")
        if link.before.digest == link.after.digest:
            return replace(state, mode=mode)
        if link.before.digest == state.digest:
            return replace(link.after, mode=mode)
        base, ours, theirs = self.text(link.before), self.text(link.after), self.text(state)
        if base is None or ours is None or theirs is None:
            raise self._in_the_way(link, "there is no text on all three sides")
        merge_result = merge(base, ours, theirs)
        if merge_result.clashes:
            lines = ", ".join(f"{each.first}" for each in merge_result.clashes[:10])
            raise self._in_the_way(link, f"both changed the same lines (at {lines})")
        return self._make(merge_result.data, mode)

    def _in_the_way(self, link: Link, reason: str) -> Blocked:
        """A later change that cannot be put on top of what was there before."""
        if link.foreign:
            return self._drifted(link, f". It cannot be merged: {reason}")
        return Blocked(f"{link.by} changed it later, and {reason}; take that back first, or both together")

    def _drifted(self, link: Link, more: str = "") -> Blocked:
        if link.by != SOMEBODY:
            return Blocked(f"it was found changed while a background process of {link.by} ran{more}")
        time_note = " since" if link.after == self._now else " between two changes of this chat"
        return Blocked(
            f"{_difference(link.before, link.after)}{time_note}{more}", self._diff_states(link.before, link.after)
        )

    def _diff_states(self, expected: State, now: State) -> str:
        """From what the chat left to what is there, where both are text."""
        old, new = self.text(expected), self.text(now)
        if old is None or new is None or old == new:
            return ""
        texts = [
            None if state is None else data.decode("utf-8", "replace") for state, data in ((expected, old), (now, new))
        ]
        return diff(inert(decode_path(self._path)), texts[0], texts[1]).text

    # -- bytes --------------------------------------------------------------------------------------------------------

    def text(self, state: State) -> bytes | None:
        """The bytes of a state, if they are a text that can be had. Of nothing: none."""
        if state is None:
            return b""
        if state.kind != "file" or state.size > parts.MAX_TEXT:
            return None
        try:
            data = self._bytes(state)
        except (NotFound, ToolError, OSError):
            return None
        return data if parts.is_text(data) else None

    def _bytes(self, state: FileState) -> bytes:
        if state.digest in self.made:
            return self.made[state.digest]
        if self._now is not None and state.digest == self._now.digest:
            data = self._on_disk(self._path)
            if hashlib.sha256(data).hexdigest() == state.digest:
                return data
        try:
            return self._images.read(state.digest, parts.MAX_TEXT)
        except NotFound:
            return self._after_images.read(state.digest)

    def _make(self, data: bytes, mode: int) -> FileState:
        digest = hashlib.sha256(data).hexdigest()
        self.made[digest] = data
        return FileState("file", mode, digest, len(data))

    def _require(self, state: State) -> None:
        """That it can be made."""
        if state == self._now:
            return
        if "other" in (state and state.kind, self._now and self._now.kind):
            raise Blocked("it is or was a socket or a device, which cannot be kept and made again")
        if state is None or state.kind != "file" or state.digest in self.made or self._images.has(state.digest):
            return
        if self._now is None or state.digest != self._now.digest:
            raise Blocked("its earlier content is no longer stored, so it cannot be restored")


def both(links: Sequence[Link], text: Callable[[State], bytes | None]) -> tuple[bytes, bytes]:
    """The texts at both ends of a single link. ToolError if there is no such thing."""
    if len(links) != 1:
        raise Blocked("something else changed it between these changes, so its hunks cannot be told apart")
    old, new = text(links[0].before), text(links[0].after)
    if old is None or new is None:
        raise Blocked("it is no text, or its bytes are no longer kept, so it has no hunks; take all of it or nothing")
    return old, new


def conflict(path: str, blocked: Blocked) -> FileConflict:
    return FileConflict(path, blocked.reason, blocked.diff)


def _merged_mode(base: int, ours: int, theirs: int) -> int | None:
    if ours == base:
        return theirs
    return ours if theirs in (base, ours) else None


def _difference(expected: State, now: State) -> str:
    if expected is None:
        return "it was created again"
    if now is None:
        return "it was removed"
    if expected.kind != now.kind:
        return f"it was replaced by a {now.kind}"
    if replace(expected, mode=now.mode) == now:
        return f"{MERGEABLE}: its mode was {expected.mode:o} and is {now.mode:o}"
    return MERGEABLE
