"""The way back of one path: from what lies there now, link by link, to what was there at first (W-02). Whatever
somebody else did to it on the way is never lost: the path is left alone, or, where that is wanted and both are text,
merged. Knows one path at a time; what belongs together is the business of `undoing`."""

import hashlib
from collections.abc import Callable, Sequence

import msgspec
from msgspec.structs import replace

from treadle.errors import NotFound, ToolError
from treadle.lines import hunks as parts
from treadle.lines.diff import diff
from treadle.lines.merge import merge
from treadle.ports.workspace import inert
from treadle.protocol.files import DiffStat, FileConflict, FileState, Link, decode_path
from treadle.workspace.images import Images
from treadle.workspace.leavings import LEFT, Leavings

State = FileState | None
_COUNTED = 1 << 20
"""Files up to this size are compared to say how many lines change."""


class Found(msgspec.Struct, frozen=True):
    """Where the way back ends. `merged`: what that would have been without somebody else's changes."""

    state: State
    merged: State = None


class Blocked(Exception):
    """The way back cannot be gone."""

    def __init__(self, reason: str, shown: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.diff = shown


def walk(links: Sequence[Link], now: State) -> tuple[State, int]:
    """How far the way leads without meeting somebody else's change: to which state, and how many links are left."""
    if now not in (links[-1].before, links[-1].after) and now == links[0].before:
        return now, 0
    for left in range(len(links), 0, -1):
        link = links[left - 1]
        if now == link.after:
            now = link.before
        elif now != link.before:
            return now, left
    return now, 0


class WayBack:
    """`path` as it is recorded, `now` what lies there; `on_disk` reads its bytes."""

    def __init__(self, path: str, now: State, images: Images, on_disk: Callable[[str], bytes]) -> None:
        self._path = path
        self._now = now
        self._images = images
        self._leavings = Leavings(images.folder / LEFT)
        self._on_disk = on_disk
        self.made: dict[str, bytes] = {}
        """Texts that are nowhere kept yet, by their hash."""

    def find(self, links: Sequence[Link], *, merging: bool, hunks: Sequence[int] = ()) -> Found:
        """Blocked if somebody else's change is in the way, or what was there is no longer kept."""
        aim = links[0].before
        if hunks and (chosen := self._with_hunks_taken_back(links, hunks)) is not None:
            links, aim = [Link(chosen, links[0].after)], chosen
        state, left = walk(links, self._now)
        merged = left > 0
        while left:
            if not merging:
                raise self._drifted(links, left, state)
            state = self._merged(links, left, state)
            state, left = walk(links[: left - 1], state) if left > 1 else (state, 0)
        self._require(state)
        return Found(state, aim if merged else None)

    def stat(self, state: State) -> DiffStat:
        """How many lines the way back adds and removes."""
        if all(each is None or each.kind != "file" or each.size <= _COUNTED for each in (self._now, state)):
            old, new = self.text(self._now), self.text(state)
            if old is not None and new is not None:
                return diff("", old.decode("utf-8", "replace"), new.decode("utf-8", "replace")).stat
        return DiffStat()

    # -- hunks --------------------------------------------------------------------------------------------------------

    def _with_hunks_taken_back(self, links: Sequence[Link], chosen: Sequence[int]) -> State:
        """What is there without these hunks; None if they are all there are."""
        old, new = both(links, self.text)
        data = parts.without(old, new, chosen)
        before, after = links[0].before, links[0].after
        if data == old or before is None or after is None:
            return None
        return self._make(data, after.mode)

    # -- other people's changes ---------------------------------------------------------------------------------------

    def _merged(self, links: Sequence[Link], left: int, now: State) -> State:
        """Take a link back out of a text that somebody else has changed since."""
        link = links[left - 1]
        base, ours, theirs = self.text(link.after), self.text(now), self.text(link.before)
        if now is None or link.after is None or link.before is None or base is None or ours is None or theirs is None:
            raise self._drifted(links, left, now, ". It cannot be merged: there is no text on all three sides")
        done = merge(base, ours, theirs)
        if done.clashes:
            lines = ", ".join(f"{each.first}" for each in done.clashes[:10])
            raise self._drifted(links, left, now, f". It cannot be merged: both changed the same lines (at {lines})")
        mode = _merged_mode(link.after.mode, now.mode, link.before.mode)
        if mode is None:
            raise self._drifted(links, left, now, ". It cannot be merged: both changed its mode")
        return self._make(done.data, mode)

    def _drifted(self, links: Sequence[Link], left: int, now: State, more: str = "") -> Blocked:
        expected = links[left - 1].after
        when = " since" if left == len(links) else " between two changes of this chat"
        return Blocked(f"{_difference(expected, now)}{when}{more}", self._shown(expected, now))

    def _shown(self, expected: State, now: State) -> str:
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
            if (left := self._leavings.read(state.digest)) is not None:
                return left
            raise

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
            raise Blocked("what was there before is no longer kept, so it cannot be brought back")


def both(links: Sequence[Link], text: Callable[[State], bytes | None]) -> tuple[bytes, bytes]:
    """The texts at both ends of a single link. ToolError if there is no such thing."""
    if len(links) != 1:
        raise Blocked("somebody else changed it between two changes of this chat, so its hunks cannot be told apart")
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
        return "somebody has made it anew"
    if now is None:
        return "somebody has removed it"
    if expected.kind != now.kind:
        return f"somebody has made it a {now.kind}"
    if replace(expected, mode=now.mode) == now:
        return f"somebody has changed its mode from {expected.mode:o} to {now.mode:o}"
    return "somebody has changed it"
