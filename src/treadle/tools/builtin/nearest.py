"""The passage of a text that is most like one that was looked for, as a small diff with line numbers (T-03). Votes of
rare words find the place anywhere in a large file; only a few lines are compared in earnest."""

import difflib
import re
from collections import Counter
from collections.abc import Sequence

from treadle.tools.builtin.matching import Body, plain_punctuation

_WORD = re.compile(r"\w{2,40}")
_WORDS = 64
_SCANNED = 60_000_000
"""Characters that may be searched for words in all."""
_PLACES_OF_A_WORD = 50
_LINES_SAMPLED = 60
_LINES_COMPARED = 60
_LINES_TRIED = 2_000
_ROWS = 24
_WIDTH = 200
_LEGEND = "(- is what the file has, + is what {name} has{spaces})"

_Op = tuple[str, int, int, int, int]


def clip(line: str) -> str:
    line = line.rstrip("\r")
    return line if len(line) <= _WIDTH else f"{line[:_WIDTH]}…"


def nearest(body: Body, old: str, name: str = "old_str") -> str:
    """A sentence, and below it the place that comes nearest; or that there is none."""
    wanted = old.replace("\r\n", "\n").strip("\n").split("\n")
    if not old.strip():
        return "It is white space only; add the lines around it."
    at = _place(body, wanted)
    if at is None:
        return "No line of the file resembles it. Read the file again, or look for it in another file."
    first, rows, spaces = _diff(body, wanted, at)
    legend = _LEGEND.format(name=name, spaces="; · is a space, → a tab" if spaces else "")
    return (
        f"The nearest passage begins in line {first + 1} {legend}:\n" + "\n".join(rows) + "\n"
        "Copy the text exactly as the file has it."
    )


# -- where it is --------------------------------------------------------------------------------------------------


def _place(body: Body, wanted: list[str]) -> int | None:
    """The line, from 0 (or below, if the passage began before the text), where `wanted` would begin."""
    votes = _votes(body, wanted)
    best, at = 0.0, None
    for place, _ in votes.most_common(4):
        likeness = _likeness(body, wanted, place)
        if likeness > best:
            best, at = likeness, place
    if at is not None and best >= 0.4:
        return at
    return _by_letters(body, wanted)


def _votes(body: Body, wanted: list[str]) -> Counter[int]:
    """Each word votes for the places where it stands, the more the rarer it is."""
    sample = [i for i, line in enumerate(wanted) if line.strip()]
    if len(sample) > _LINES_SAMPLED:
        sample = sample[: _LINES_SAMPLED // 2] + sample[-_LINES_SAMPLED // 2 :]
    words: dict[str, int] = {}
    for i in sample:
        for word in _WORD.findall(wanted[i][:1_000]):
            words.setdefault(word, i)
    votes: Counter[int] = Counter()
    affordable = max(8, min(_WORDS, _SCANNED // (len(body.text) + 1)))
    for word in sorted(words, key=len, reverse=True)[:affordable]:
        places: list[int] = []
        at = body.text.find(word)
        while at != -1 and len(places) < _PLACES_OF_A_WORD:
            places.append(at)
            at = body.text.find(word, at + len(word))
        for place in {body.line_at(place) for place in places}:
            votes[place - words[word]] += round(1_000 * len(word) / len(places))
    return votes


def _likeness(body: Body, wanted: list[str], at: int) -> float:
    """How like the lines are on average, 0 to 1, indentation aside; of the first lines that are not blank."""
    total, count = 0.0, 0
    for i, line in enumerate(wanted):
        if not line.strip():
            continue
        theirs = body.lines[at + i] if 0 <= at + i < len(body.lines) else ""
        total += _ratio(line, theirs)
        count += 1
        if count == 12:
            break
    return total / count if count else 0.0


def _ratio(one: str, other: str) -> float:
    one, other = plain_punctuation(one.strip()[:_WIDTH]), plain_punctuation(other.strip()[:_WIDTH])
    if one == other:
        return 1.0
    return difflib.SequenceMatcher(None, one, other, autojunk=False).ratio()


def _by_letters(body: Body, wanted: list[str]) -> int | None:
    """For passages without a word in common: the line most like the longest one."""
    key = max(range(len(wanted)), key=lambda i: len(wanted[i].strip()))
    line = wanted[key].strip()[:_WIDTH]
    matcher = difflib.SequenceMatcher(autojunk=False)
    matcher.set_seq2(line)
    best, at = 0.5, None
    for index, theirs in enumerate(body.lines[:_LINES_TRIED]):
        matcher.set_seq1(theirs.strip()[:_WIDTH])
        if matcher.real_quick_ratio() > best and matcher.quick_ratio() > best and (ratio := matcher.ratio()) > best:
            best, at = ratio, index - key
    return at


# -- how it differs -----------------------------------------------------------------------------------------------


def _diff(body: Body, wanted: list[str], at: int) -> tuple[int, list[str], bool]:
    """The first line that is shown, the rows, and whether spaces and tabs are drawn in them."""
    skipped = _equal_lines(body, wanted, at)
    skipped = max(0, skipped - 2)
    ours = wanted[skipped : skipped + _LINES_COMPARED]
    start = max(0, at + skipped)
    theirs = [line.rstrip("\r") for line in body.lines[start : start + len(ours) + 3]]
    ops = _trimmed(difflib.SequenceMatcher(None, theirs, ours, autojunk=False).get_opcodes(), len(theirs))
    spaces = any(tag == "replace" and _only_spaces(theirs[a:b], ours[c:d]) for tag, a, b, c, d in ops)
    rows = _rows(theirs, ours, ops, start, spaces)
    if len(rows) > _ROWS:
        rows = [*rows[:_ROWS], f"[{len(rows) - _ROWS} more lines are not shown]"]
    return start + ops[0][1], rows, spaces


def _equal_lines(body: Body, wanted: list[str], at: int) -> int:
    """How many lines are equal from the beginning."""
    count = 0
    while count < len(wanted) and 0 <= at + count < len(body.lines):
        if body.lines[at + count].rstrip("\r") != wanted[count]:
            break
        count += 1
    return count


def _trimmed(ops: Sequence[_Op], most: int) -> Sequence[_Op]:
    """Without lines of the file before or behind what was looked for."""
    while len(ops) > 1 and ops[0][0] == "delete":
        ops = ops[1:]
    while len(ops) > 1 and ops[-1][0] == "delete" and ops[-1][2] == most:
        ops = ops[:-1]
    tag, a, b, c, d = ops[-1]
    if tag == "replace" and b == most and b - a > d - c:
        ops = [*ops[:-1], (tag, a, a + (d - c), c, d)]
    return ops


def _rows(theirs: list[str], ours: list[str], ops: Sequence[_Op], start: int, spaces: bool) -> list[str]:
    width = len(str(start + len(theirs)))
    rows = []
    for index, (tag, a, b, c, d) in enumerate(ops):
        if tag == "equal":
            lines = range(a, b)
            if len(lines) > 4:  # two lines beside each difference are enough
                lines = range(a if index else b - 2, b if index < len(ops) - 1 else a + 2)
            if len(lines) > 4:
                rows += [f" {start + i + 1:>{width}}  {clip(theirs[i])}" for i in (lines[0], lines[1])]
                rows.append(f" {'…':>{width}}")
                lines = lines[-2:]
            rows += [f" {start + i + 1:>{width}}  {clip(theirs[i])}" for i in lines]
            continue
        rows += [f"-{start + i + 1:>{width}}  {_drawn(clip(theirs[i]), spaces)}" for i in range(a, b)]
        rows += [f"+{'':>{width}}  {_drawn(clip(ours[i]), spaces)}" for i in range(c, d)]
    return rows


def _only_spaces(theirs: list[str], ours: list[str]) -> bool:
    return any("".join(a.split()) == "".join(b.split()) for a, b in zip(theirs, ours, strict=False) if a.strip())


def _drawn(line: str, spaces: bool) -> str:
    return line.replace("\t", "→").replace(" ", "·") if spaces else line
