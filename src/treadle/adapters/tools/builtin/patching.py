"""The changes that a patch makes to the files it names (T-08): each hunk located by the same cascade as edit_file, all
of them or none. Pure; reads through a function and writes nothing."""

from collections.abc import Callable

import msgspec
from msgspec.structs import replace

from treadle.adapters.tools.builtin.matching import MatchKind, SearchedText, Shift
from treadle.adapters.tools.builtin.patch_text import Add, Delete, PatchHunk, PatchLine, Update, parse
from treadle.adapters.tools.builtin.replacement import find_existing_text, find_nearest
from treadle.adapters.tools.builtin.text import BOM
from treadle.errors import EditError
from treadle.ports.workspace import escape_name

Read = Callable[[str], str | None]  # The text of a file by its path; None if there is none

_LEVELS: tuple[MatchKind, ...] = ("exact", "trailing_space", "punctuation")
_LINES_NAMED = 20


class PatchPlan(msgspec.Struct, frozen=True):
    texts: dict[str, str | None]  # the new text of every file, None if deleted; in the patch's order
    old_paths: dict[str, str]  # Where a file comes from, by its new path
    executable: dict[str, bool]  # Files that shall be executable, or not, regardless of their present mode


def plan_patch(patch: str, read: Read) -> PatchPlan:
    """EditError names the file, the hunk and the nearest text; then nothing of the patch may be applied."""
    new_texts: dict[str, str | None] = {}
    planned = PatchPlan(new_texts, {}, {})

    def get_current_text(path: str) -> str | None:
        return new_texts[path] if path in new_texts else read(path)

    for section in parse(patch):
        path, shown_path = section.path, escape_name(section.path)
        text = get_current_text(path)
        match section:
            case Add(text=new):
                if text is not None and text != new:
                    raise EditError(
                        f"{shown_path} exists already, so it cannot be added. Use *** Update File to change it."
                    )
                new_texts[path] = new
            case Delete(hunks=hunks):
                if text is None:
                    raise EditError(f"{shown_path} does not exist, so it cannot be deleted.")
                if hunks is not None and apply(text, hunks, shown_path):
                    raise EditError(f"{shown_path} has other lines than the patch removes, so it is not deleted.")
                new_texts[path] = None
            case Update(move_to=target):
                if text is None:
                    raise EditError(
                        f"{shown_path} does not exist, so it cannot be updated. Use *** Add File to create it."
                    )
                if not section.hunks and not target and section.executable is None:
                    raise EditError(f"{shown_path}: the patch has no lines to change. Mark them with - and +.")
                new = apply(text, section.hunks, shown_path)
                if target and target != path:
                    if get_current_text(target) is not None:
                        raise EditError(
                            f"{shown_path} cannot be moved to {escape_name(target)}: a file is there already."
                        )
                    new_texts[path] = None
                    planned.old_paths[target] = path
                new_texts[target or path] = new
        if not isinstance(section, Delete) and section.executable is not None:
            planned.executable[section.move_to or path if isinstance(section, Update) else path] = section.executable
    return planned


class _HunkPlace(msgspec.Struct, frozen=True):
    """Where a hunk goes: the lines of the file that its old lines are, and how they are indented."""

    start: int
    lines: tuple[PatchLine, ...]
    shift: Shift | None = None

    @property
    def end(self) -> int:
        return self.start + sum(line.mark != "+" for line in self.lines)


def apply(text: str, hunks: tuple[PatchHunk, ...], path: str) -> str:
    """The text with all hunks applied; its line endings, byte-order mark and final newline are kept."""
    if "\r" in text and "\n" not in text:  # lines that end in CR alone, as on old Macs
        return apply(text.replace("\r", "\n"), tuple(map(_split_at_returns, hunks)), path).replace("\n", "\r")
    bom = BOM if text.startswith(BOM) else ""
    if "\n" in text:  # otherwise the patch alone tells how lines end
        bare = [[replace(line, text=line.text.removesuffix("\r")) for line in hunk.lines] for hunk in hunks]
        hunks = tuple(replace(hunk, lines=tuple(lines)) for hunk, lines in zip(hunks, bare, strict=True))
    parts = text[len(bom) :].split("\n")
    ends_with_newline = not parts[-1]  # of an empty file, too: what is added to it ends with a newline
    if ends_with_newline:
        parts.pop()
    content = [part.removesuffix("\r") for part in parts]
    body = SearchedText("\n".join(content))
    occupied: list[_HunkPlace] = []
    for number, hunk in enumerate(hunks, 1):
        name = f"{path}, hunk {number} of {len(hunks)}{f' (@@ {hunk.anchors[-1][:60]})' if hunk.anchors else ''}"
        place = _locate(body, len(content), hunk, occupied, name)
        occupied.append(place)
        if place.end >= len(content) and (hunk.unended_old or hunk.unended_new):
            ends_with_newline = not hunk.unended_new
    returns: list[bool | None] = [part.endswith("\r") for part in parts]
    if text and not text.endswith("\n") and any(returns):  # the last line does not show how it would end
        returns[-1] = returns[-1] or None
    assembled = _assemble(content, returns, sorted(occupied, key=lambda place: place.start))
    crlf = text.count("\r\n") * 2 > text.count("\n")
    lines = [line + ("\r\n" if (crlf if cr is None else cr) else "\n") for line, cr in assembled]
    joined = "".join(lines)
    if not ends_with_newline and lines:
        joined = joined.removesuffix("\n").removesuffix("\r")
    return bom + joined


def _split_at_returns(hunk: PatchHunk) -> PatchHunk:
    """For a file whose lines end in CR: to git it is one line without an end."""
    split = ((line, line.text.removesuffix("\r").split("\r")) for line in hunk.lines)
    parts = [(line, part, len(parts) > 1) for line, parts in split for part in parts]
    lines = tuple(PatchLine(line.mark, part, line.mark + part) if cut else line for line, part, cut in parts)
    return replace(hunk, lines=lines, unended_old=False, unended_new=False)


def _assemble(content: list[str], ends: list[bool | None], places: list[_HunkPlace]) -> list[tuple[str, bool | None]]:
    """The new lines, each with whether it ends in CRLF; None: as most of the file does."""
    new_lines: list[tuple[str, bool | None]] = []
    at = 0
    for place in places:
        new_lines += zip(content[at : place.start], ends[at : place.start], strict=True)
        at = place.start
        for line in place.lines:
            if line.mark == "+":
                neighbour_return = ends[max(0, at - 1)] if ends and at <= len(ends) else None
                new_lines.append((place.shift.apply(line.text) if place.shift else line.text, neighbour_return))
                continue
            if line.mark == " ":
                new_lines.append((content[at], ends[at]))
            at += 1
    return [*new_lines, *zip(content[at:], ends[at:], strict=True)]


# -- where a hunk goes --------------------------------------------------------------------------------------------
def _locate(body: SearchedText, total: int, hunk: PatchHunk, occupied: list[_HunkPlace], name: str) -> _HunkPlace:
    if all(line.mark == "+" for line in _trim_empty_lines(hunk.lines)):
        return _locate_insertion(body, total, hunk, name)
    for match_kind in _LEVELS:
        for lines in _list_readings(hunk.lines):
            old = [line.text for line in lines if line.mark != "+"]
            places = [_HunkPlace(at, lines) for at in body.find_lines(old, match_kind)]
            if places := _select_free(places, occupied, total):
                return _choose(body, total, hunk, places, name)
    for lines in _list_readings(hunk.lines):
        old, new = ([line.text for line in lines if line.mark != excluded_mark] for excluded_mark in "+-")
        places = [_HunkPlace(at, lines, shift) for at, shift in body.find_shifted(old, new)]
        if places := _select_free(places, occupied, total):
            return _choose(body, total, hunk, places, name)
    raise EditError(_explain_missing(body, hunk, name))


def _list_readings(lines: tuple[PatchLine, ...]) -> list[tuple[PatchLine, ...]]:
    """The lines as they are; without empty lines around them; and with lines that stay written without their space."""
    trimmed = _trim_empty_lines(lines)
    raw = tuple(PatchLine(" ", line.raw, line.raw) if line.mark == " " else line for line in trimmed)
    return list(dict.fromkeys((lines, trimmed, raw)))


def _trim_empty_lines(lines: tuple[PatchLine, ...]) -> tuple[PatchLine, ...]:
    filled = [number for number, line in enumerate(lines) if line.raw]
    return lines[filled[0] : filled[-1] + 1] if filled else ()


def _select_free(places: list[_HunkPlace], occupied: list[_HunkPlace], total: int) -> list[_HunkPlace]:
    """Places that no earlier hunk has changed, those behind the last one first. An empty file has no lines at all."""
    places = [place for place in places if place.end <= total]
    for earlier in occupied:
        places = [place for place in places if place.end <= earlier.start or earlier.end <= place.start]
    last_end = occupied[-1].end if occupied else 0
    return [place for place in places if place.start >= last_end] or places


def _choose(body: SearchedText, total: int, hunk: PatchHunk, candidates: list[_HunkPlace], name: str) -> _HunkPlace:
    """The one that is meant: the only one, the one at the end, below its anchors, or where a unified diff says."""
    if len(candidates) == 1:
        return candidates[0]
    if hunk.at_end and candidates[-1].end >= total:
        return candidates[-1]
    if hunk.hint is not None:
        hint = hunk.hint
        return min(candidates, key=lambda place: abs(place.start + 1 - hint))
    anchors = _find_anchor_ends(body, hunk.anchors)
    below = {place for at in anchors for place in [place for place in candidates if place.start >= at][:1]}
    if len(below) == 1:
        return below.pop()
    numbers = ", ".join(str(place.start + 1) for place in candidates[:_LINES_NAMED])
    more = f" and {len(candidates) - _LINES_NAMED} more places" if len(candidates) > _LINES_NAMED else ""
    raise EditError(
        f"{name}: its lines occur {len(candidates)} times, beginning in lines {numbers}{more}. Add more lines that "
        "stay around the change, or an @@ line with the function or class above it."
    )


def _find_anchor_ends(body: SearchedText, anchors: tuple[str, ...]) -> list[int]:
    ends: list[int] = []
    for depth, anchor in enumerate(anchors):
        at = _find_anchor_lines(body, anchor)
        ends = at if not depth else sorted({i for end in ends if (i := next((i for i in at if i > end), -1)) >= 0})
    return ends


def _find_anchor_lines(body: SearchedText, anchor: str) -> list[int]:
    """Lines that are the anchor, or else begin with it, or else contain it."""
    anchor = anchor.strip()
    lines = [line.strip() for line in body.lines]
    for fits in (anchor.__eq__, lambda line: line.startswith(anchor), lambda line: anchor in line):
        if indexes := [i for i, line in enumerate(lines) if fits(line)]:
            return indexes
    return []


def _locate_insertion(body: SearchedText, total: int, hunk: PatchHunk, name: str) -> _HunkPlace:
    """A hunk that only adds goes below its anchors, where a unified diff says, or to the end."""
    lines = _trim_empty_lines(hunk.lines)
    if hunk.at_end or (not hunk.anchors and hunk.hint is None):
        return _HunkPlace(total, lines)
    if hunk.hint is not None:
        return _HunkPlace(min(hunk.hint, total), lines)
    ends = _find_anchor_ends(body, hunk.anchors)
    if len(ends) == 1:
        return _HunkPlace(ends[0] + 1, lines)
    if not ends:
        raise EditError(f"{name}: the @@ line was not found. {find_nearest(body, hunk.anchors[-1], 'the patch')}")
    numbers = ", ".join(str(end + 1) for end in ends[:_LINES_NAMED])
    raise EditError(
        f"{name}: the @@ line occurs {len(ends)} times, in lines {numbers}. Add lines that stay around the new ones."
    )


def _explain_missing(body: SearchedText, hunk: PatchHunk, name: str) -> str:
    lines = _trim_empty_lines(hunk.lines)
    old, new = ("\n".join(line.text for line in lines if line.mark != excluded_mark) for excluded_mark in "+-")
    there = find_existing_text(body, new) if old != new else 0
    if there:
        return (
            f"{name}: its old lines were not found, but the new ones are already there, beginning in line {there}: "
            "this hunk seems to be already applied. Leave it out."
        )
    return f"{name}: its lines were not found. {find_nearest(body, old, 'the patch')}"
