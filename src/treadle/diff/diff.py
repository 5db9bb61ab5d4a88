"""The difference of two texts: as a unified diff, as line counts, as hunks numbered from 1 (W-03), and a file change as
shown to people (W-04). Size and time are bounded: equal ends are skipped at memory speed, long texts are first split at
lines that occur in both exactly once, and parts that are still too large to compare count as replaced."""

import difflib
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence

import msgspec
from msgspec.structs import replace

from treadle.errors import ToolError
from treadle.protocol.files import DiffStat, FileChange, FileState, Hunk

CONTEXT = 3  # Equal lines that are shown around a change
_MAX_COMPARED = 1_500  # Changed lines on either side that are still compared line by line; the comparison is quadratic
_SHORT = 4_096  # Texts of so many characters are split as they are

Opcode = tuple[str, int, int, int, int]  # The tag and the ranges i1:i2 (old lines) and j1:j2 (new lines), as in difflib


def cut_middle(old: str, new: str) -> tuple[list[str], list[str], int]:
    """The lines of both around what differs, with enough equal ones for the context, and how many come before."""

    def is_equal_at_end(at: int, size: int) -> bool:
        a, b = len(old) - at, len(new) - at
        return old[a - size : a] == new[b - size : b]

    shorter = min(len(old), len(new))
    common_length = _measure_equal(shorter, lambda at, size: old[at : at + size] == new[at : at + size])
    start = old.rfind("\n", 0, common_length) + 1
    for _ in range(CONTEXT + 1):
        start = old.rfind("\n", 0, max(0, start - 1)) + 1
    tail = _measure_equal(shorter - start, is_equal_at_end)
    tail = _align_tail(old, tail) if tail > 0 else 0
    return (
        split_lines(old[start : len(old) - tail]),
        split_lines(new[start : len(new) - tail]),
        old.count("\n", 0, start),
    )


def split_lines(text: str) -> list[str]:
    """Lines with their ends, split at newlines only."""
    lines = text.split("\n")
    last = lines.pop()
    return [f"{line}\n" for line in lines] + ([last] if last else [])


def compute_opcodes(old_lines: list[str], new_lines: list[str]) -> list[Opcode]:
    """All lines; equal and changed stretches alternate."""
    codes: list[Opcode] = []
    for code in _iterate_pieces(old_lines, new_lines):
        tag, i1, i2, j1, j2 = code
        if codes and (codes[-1][0] == "equal") == (tag == "equal"):
            _, i1, _, j1, _ = codes.pop()
            tag = "equal" if tag == "equal" else "replace" if i1 < i2 and j1 < j2 else "delete" if i1 < i2 else "insert"
        codes.append((tag, i1, i2, j1, j2))
    return codes


def _iterate_pieces(old_lines: list[str], new_lines: list[str]) -> Iterator[Opcode]:
    """The same, in pieces that may have to be joined."""
    start, end = count_equal_ends(old_lines, new_lines)
    i2, j2 = len(old_lines) - end, len(new_lines) - end
    if start:
        yield "equal", 0, start, 0, start
    old, new = old_lines[start:i2], new_lines[start:j2]
    compare = _compare_lines if max(len(old), len(new)) <= _MAX_COMPARED else _compare_between_anchors
    yield from compare(old, new, start, start)
    if end:
        yield "equal", i2, len(old_lines), j2, len(new_lines)


def count_equal_ends(old: Sequence[str], new: Sequence[str]) -> tuple[int, int]:
    """How many lines are equal at the beginning and, of the rest, at the end."""
    start = end = 0
    most = min(len(old), len(new))
    while start < most and old[start] == new[start]:
        start += 1
    while end < most - start and old[-1 - end] == new[-1 - end]:
        end += 1
    return start, end


def _compare_lines(old: list[str], new: list[str], i: int, j: int) -> Iterator[Opcode]:
    if not old or not new:
        if old or new:
            yield "delete" if old else "insert", i, i + len(old), j, j + len(new)
    else:
        for tag, i1, i2, j1, j2 in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
            yield tag, i1 + i, i2 + i, j1 + j, j2 + j


def _compare_between_anchors(old: list[str], new: list[str], i: int, j: int) -> Iterator[Opcode]:
    """Compare long texts between the lines that occur in both exactly once and in the same order. The total cost is
    limited to that of one comparison of the largest allowed size."""
    remaining_cost = _MAX_COMPARED * _MAX_COMPARED
    a = b = 0
    for next_a, next_b in [*find_anchors(old, new), (len(old), len(new))]:
        start, end = count_equal_ends(old[a:next_a], new[b:next_b])
        if start:
            yield "equal", i + a, i + a + start, j + b, j + b + start
        a, b = a + start, b + start
        until_a, until_b = next_a - end, next_b - end
        cost = (until_a - a) * (until_b - b)
        if cost <= remaining_cost:
            remaining_cost -= cost
            yield from _compare_lines(old[a:until_a], new[b:until_b], i + a, j + b)
        else:
            yield "replace", i + a, i + until_a, j + b, j + until_b
        last = next_a < len(old)  # the anchor itself
        if end or last:
            yield "equal", i + until_a, i + next_a + last, j + until_b, j + next_b + last
        a, b = next_a + last, next_b + last


def find_anchors(old: Sequence[Hashable], new: Sequence[Hashable]) -> list[tuple[int, int]]:
    """The most lines that stand in both exactly once and in the same order: where they are in each."""
    counts = Counter(new)
    places = {line: at for at, line in enumerate(new) if counts[line] == 1}
    counts = Counter(old)
    pairs = [(at, places[line]) for at, line in enumerate(old) if counts[line] == 1 and line in places]
    ends: list[int] = []  # by length: the smallest place at which a growing row of that length ends
    tops: list[int] = []
    predecessors: list[int] = []
    for number, (_, place) in enumerate(pairs):
        length = bisect_left(ends, place)
        predecessors.append(tops[length - 1] if length else -1)
        ends[length : length + 1] = [place]
        tops[length : length + 1] = [number]
    row: list[tuple[int, int]] = []
    at = tops[-1] if tops else -1
    while at >= 0:
        row.append(pairs[at])
        at = predecessors[at]
    return row[::-1]


def group_opcodes(codes: list[Opcode]) -> list[list[Opcode]]:
    """Hunks: changes with three lines around them, joined where those overlap."""
    hunks: list[list[Opcode]] = []
    group: list[Opcode] = []
    for index, (tag, i1, i2, j1, j2) in enumerate(codes):
        first, last = index == 0, index == len(codes) - 1
        if tag != "equal" or (not first and not last and i2 - i1 <= 2 * CONTEXT):
            group.append((tag, i1, i2, j1, j2))
            continue
        if not first:
            hunks.append([*group, (tag, i1, min(i2, i1 + CONTEXT), j1, min(j2, j1 + CONTEXT))])
        group = [] if last else [(tag, max(i1, i2 - CONTEXT), i2, max(j1, j2 - CONTEXT), j2)]
    return [*hunks, group] if any(code[0] != "equal" for code in group) else hunks


def _align_tail(text: str, tail: int) -> int:
    """How much of an equal end can be left out: it begins at a line, some lines behind the difference."""
    at = len(text) - tail
    for _ in range(CONTEXT + 2):
        at = text.find("\n", at) + 1
        if not at:
            return 0
    return len(text) - at


def _measure_equal(most: int, equal: Callable[[int, int], bool]) -> int:
    """How far two texts are equal, asked piece by piece: growing ones while they are, then shrinking ones."""
    low, high, step = 0, most, 4_096
    while low < high:
        size = min(step, high - low)
        if equal(low, size):
            low += size
            step *= 2
        elif size == 1:
            break
        else:
            step = max(1, size // 2)
            high = low + size
    return low


_MAX_SHOWN_LINES = 200
_MAX_SHOWN_CHARS = 12_000
_MAX_LINE = 2_000


class Diff(msgspec.Struct, frozen=True):
    text: str
    stat: DiffStat


def diff_texts(path: str, old: str | None, new: str | None) -> Diff:
    """`old` is None for a file that did not exist, `new` for one that is deleted."""
    old_lines, new_lines, line = cut_middle(old or "", new or "")
    codes = compute_opcodes(old_lines, new_lines)
    head = [f"--- {'/dev/null' if old is None else path}", f"+++ {'/dev/null' if new is None else path}"]
    for group in group_opcodes(codes):
        head += [format_header(group, line), *mark_lines(old_lines, new_lines, group)]
    return Diff(shorten_diff("\n".join(head)), _stat(codes))


def count_lines(old: str, new: str) -> DiffStat:
    short = len(old) + len(new) <= _SHORT
    old_lines, new_lines = (_split_told_apart(old), _split_told_apart(new)) if short else cut_middle(old, new)[:2]
    ends = sum(count_equal_ends(old_lines, new_lines))
    removed_count, added_count = len(old_lines) - ends, len(new_lines) - ends
    whole = not removed_count or not added_count
    return DiffStat(added_count, removed_count) if whole else _stat(_iterate_pieces(old_lines, new_lines))


def _split_told_apart(text: str) -> list[str]:
    """Lines that are equal where those of `split` are: only a last one without an end has an end here."""
    lines = text.split("\n")
    last = lines.pop()
    return [*lines, f"{last}\n"] if last else lines


def _stat(codes: Iterable[Opcode]) -> DiffStat:
    changed = [code for code in codes if code[0] != "equal"]
    return DiffStat(sum(j2 - j1 for *_, j1, j2 in changed), sum(i2 - i1 for _, i1, i2, *_ in changed))


def format_header(group: Sequence[Opcode], skipped: int) -> str:
    """The line above a hunk; `skipped` lines come before what was compared."""
    (_, i1, _, j1, _), (_, _, i2, _, j2) = group[0], group[-1]
    return f"@@ -{_format_range(i1 + skipped, i2 + skipped)} +{_format_range(j1 + skipped, j2 + skipped)} @@"


def mark_lines(old_lines: list[str], new_lines: list[str], group: Sequence[Opcode]) -> list[str]:
    lines: list[str] = []
    for tag, a1, a2, b1, b2 in group:
        sides = (" ", old_lines[a1:a2]), ("-", old_lines[a1:a2]), ("+", new_lines[b1:b2])
        for mark, side in sides[:1] if tag == "equal" else sides[1:]:
            for line in side:
                whole = line.endswith("\n")
                lines.append(mark + (line[:-1].removesuffix("\r") if whole else line))
                lines += [] if whole else ["\\ No newline at end of file"]
    return lines


def _format_range(start: int, stop: int) -> str:
    length = stop - start
    return f"{start + 1}" if length == 1 else f"{start + bool(length)},{length}"


def shorten_diff(text: str) -> str:
    """As much of a diff as is shown, and how much is not."""
    lines = text.split("\n")
    shown_lines: list[str] = []
    size = 0
    for line in lines:
        if len(line) > _MAX_LINE:
            line = f"{line[:_MAX_LINE]}… [{len(line) - _MAX_LINE:,} more characters]"
        size += len(line) + 1
        if len(shown_lines) >= _MAX_SHOWN_LINES or size > _MAX_SHOWN_CHARS:
            shown_lines.append(f"[{len(lines) - len(shown_lines):,} more lines of the diff are not shown]")
            break
        shown_lines.append(line)
    return "\n".join(shown_lines)


_HUNK = re.compile(r"@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@")


class Sides(msgspec.Struct, frozen=True):
    """One hunk: the lines before and after, each with its newline."""

    path: str
    old: str
    new: str


def parse_sides(text: str) -> Iterator[Sides]:
    """The hunks of all diffs in a text, which may have other lines around them."""
    path = ""
    lines = iter(text.split("\n"))
    for line in lines:
        if line.startswith(("--- ", "+++ ")):
            name = line[4:].partition("\t")[0]
            path = path if name == "/dev/null" else name.removeprefix("a/" if line[0] == "-" else "b/")
        elif (match := _HUNK.match(line)) is not None:
            old = new = ""
            old_left, new_left = int(match[1] or 1), int(match[2] or 1)  # a line of content may look like a header
            while (old_left > 0 or new_left > 0) and (content := next(lines, None)) is not None:  # else it was cut
                if content[:1] in (" ", "-", ""):
                    old, old_left = f"{old}{content[1:]}\n", old_left - 1
                if content[:1] in (" ", "+", ""):
                    new, new_left = f"{new}{content[1:]}\n", new_left - 1
            yield Sides(path, old, new)


MAX_TEXT = 16 << 20  # Larger texts are not compared


def is_text(data: bytes) -> bool:
    """True if the data can be compared line by line: it has no NUL byte and is not too large."""
    return len(data) <= MAX_TEXT and b"\0" not in data


def list_hunks(old: bytes, new: bytes) -> tuple[Hunk, ...]:
    old_lines, new_lines, skipped = cut_middle(_decode_text(old), _decode_text(new))
    numbered_hunks = []
    for number, group in enumerate(group_opcodes(compute_opcodes(old_lines, new_lines)), 1):
        lines = tuple(map(_replace_broken_bytes, mark_lines(old_lines, new_lines, group)))
        stat = _stat(group)
        numbered_hunks.append(Hunk(number, format_header(group, skipped), lines, stat.added, stat.removed))
    return tuple(numbered_hunks)


def remove_hunks(old: bytes, new: bytes, hunk_numbers: Collection[int]) -> bytes:
    """`new` with these hunks taken back."""
    return _combine_hunks(old, new, set(hunk_numbers), taken_back=True)


def apply_hunks(old: bytes, new: bytes, hunk_numbers: Collection[int]) -> bytes:
    """`old` with these hunks and no other."""
    return _combine_hunks(old, new, set(hunk_numbers), taken_back=False)


def _combine_hunks(old: bytes, new: bytes, hunk_numbers: set[int], *, taken_back: bool) -> bytes:
    text = _decode_text(new)
    old_lines, new_lines, skipped = cut_middle(_decode_text(old), text)
    hunk_groups = group_opcodes(compute_opcodes(old_lines, new_lines))
    if unknown := sorted(hunk_numbers - set(range(1, len(hunk_groups) + 1))):
        names = ", ".join(map(str, unknown))
        raise ToolError(f"There is no hunk {names}: the difference has {len(hunk_groups)}, counted from 1.")
    lines = split_lines(text)
    for number in range(len(hunk_groups), 0, -1):  # from the end, so that what is left keeps its place
        if (number in hunk_numbers) == taken_back:
            for tag, i1, i2, j1, j2 in reversed(hunk_groups[number - 1]):
                if tag != "equal":
                    lines[skipped + j1 : skipped + j2] = old_lines[i1:i2]
    return "".join(lines).encode("utf-8", "surrogateescape")


def _replace_broken_bytes(line: str) -> str:
    return line if line.isascii() else line.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _decode_text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


Texts = tuple[bytes | None, bytes | None]
"""Both ends of a change; None: no text, or one that is no longer to be had. Of nothing: empty."""


class FileDiff(msgspec.Struct, frozen=True):
    """A change with its true counts. `notes` say what no line shows: kinds, modes, targets, bytes."""

    change: FileChange
    hunks: tuple[Hunk, ...] = ()
    notes: tuple[str, ...] = ()


def build_file_diff(change: FileChange, texts: Texts) -> FileDiff:
    states = old_state, new_state = change.before, change.after
    notes: list[str] = []  # nothing about plain files that are still such
    if old_state is None or new_state is None:
        if new_state is not None and new_state.kind != "file":
            notes.append(f"new {_describe_state(new_state)}")
        elif old_state is not None and old_state.kind != "file":
            notes.append(f"{_describe_state(old_state)} removed")
    else:
        if (old_state.kind, old_state.target) != (new_state.kind, new_state.target):
            notes.append(f"{_describe_state(old_state)}, now {_describe_state(new_state)}")
        if old_state.kind == new_state.kind and old_state.mode != new_state.mode:
            notes.append(f"mode {old_state.mode:o}, now {new_state.mode:o}")
    if len({state.digest if state is not None and state.kind == "file" else "" for state in states}) == 1:
        return FileDiff(change, (), tuple(notes))
    old, new = texts
    if old is None or new is None:
        sizes = [f"{0 if state is None else state.size:,}" for state in states]
        return FileDiff(change, (), (*notes, f"no lines to show ({sizes[0]} bytes, now {sizes[1]})"))
    file_hunks = list_hunks(old, new)
    added, removed = sum(each.added for each in file_hunks), sum(each.removed for each in file_hunks)
    return FileDiff(replace(change, added=added, removed=removed), file_hunks, tuple(notes))


def _describe_state(state: FileState) -> str:
    names = {"file": "file", "directory": "folder", "link": "link", "fifo": "FIFO", "other": "socket or device"}
    return f"{names[state.kind]} to {state.target}" if state.kind == "link" else names[state.kind]
