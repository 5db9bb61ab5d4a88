"""Replacing one piece of a text by another: the pure core of edit_file (T-03). An exact match is tried first, then
matches that ignore ever more small differences. Line endings, byte-order mark and final newline of the file are kept.

A passage that is not found exactly once is an EditError for the model: all its occurrences, the nearest passage as a
small diff, and the usual cause. Votes of rare words find the nearest passage anywhere in a large file; only a few lines
are compared in earnest. All of it takes bounded time, and the texts are bounded, too."""

import difflib
import html
import re
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate, pairwise, takewhile

import msgspec
from msgspec.json import encode

from treadle.adapters.tools.builtin.matching import (
    LOOSE,
    MatchKind,
    SearchedText,
    TextSpan,
    find_offsets,
    simplify_punctuation,
)
from treadle.adapters.tools.builtin.text import BOM
from treadle.errors import EditError

ASIDE: dict[MatchKind, str] = {
    "exact": "",
    "line_endings": "line endings left aside",
    "trailing_space": "space at the ends of lines left aside",
    "punctuation": "typographic quotes, dashes and spaces taken for plain ones",
    "indentation": "its lines indented differently",
    "line_numbers": "the line numbers before its lines left out",
}  # how a match that was not exact was found, in words

_LINES_NAMED = 50
_PLACES_SHOWN = 5
_WAYS_SHOWN = 3
_NUMBERED = re.compile(r"[ \t]*(\d{1,7})(\t|→|[:|│](?! )|[:|│] )")


class Replacement(msgspec.Struct, frozen=True):
    text: str
    match_kind: MatchKind
    count: int


def replace(text: str, old: str, new: str, replace_all: bool = False, line: int = 0) -> Replacement:
    """Replace `old`, which must occur exactly once unless `replace_all`, or once as from this line (from 1)."""
    if not old.removeprefix(BOM):
        raise EditError("old_str is empty. Give the text to replace; to write a whole file use write_file.")
    if old == new:
        raise EditError(
            "old_str and new_str are the same; there is nothing to change. Send the call again with the lines of "
            "the file that are to change in old_str, and with what they shall be in new_str."
        )
    if "\n" not in text and "\r" in text and "\n" in old:  # lines that end in CR alone, as on old Macs
        lf = replace(text.replace("\r", "\n"), _to_lf(old), _to_lf(new), replace_all, line)
        match_kind: MatchKind = "line_endings" if lf.match_kind == "exact" else lf.match_kind
        return Replacement(lf.text.replace("\n", "\r"), match_kind, lf.count)
    made_exact = _replace_exact(text, old, new, replace_all, line)
    if made_exact is not None:
        return made_exact
    bom = BOM if text.startswith(BOM) else ""
    body = SearchedText(text[len(bom) :])
    plain_old, plain_new = old.removeprefix(BOM), new.removeprefix(BOM)
    match = _find_loose(body, plain_old, plain_new, replace_all, plain_old != old)
    match = match or (None if replace_all else _find_unnumbered(body, plain_old, plain_new))
    if match is None:
        raise EditError(_explain_not_found(body, plain_old, plain_new))
    match_kind, spans, plain_old, plain_new = match
    if len(spans) > 1 and not replace_all:
        start = _choose_start(body.text, [span.start for span in spans], plain_old, match_kind, line)
        spans = [span for span in spans if span.start == start]
    parts: list[str] = [bom]
    at = count = 0
    for span in (each for each in spans if each.start >= at):
        piece = plain_new if span.shift is None else "\n".join(map(span.shift.apply, plain_new.split("\n")))
        if span.unended:
            piece = piece.removesuffix("\n").removesuffix("\r")
            if piece and not piece.endswith("\n") and body.text.endswith("\n"):
                piece += "\n"  # `old` had a blank line too many; the file keeps its final newline
        parts += [body.text[at : span.start], _fit_endings(body.text, span.start, span.end, piece)]
        at = span.end
        count += 1
    return Replacement("".join([*parts, body.text[at:]]), match_kind, count)


def _replace_exact(text: str, old: str, new: str, replace_all: bool, line: int) -> Replacement | None:
    first = text.find(old)
    is_halved = (old[0] == "\n" and "\r" + old in text) or (old[-1] == "\r" and old + "\n" in text)
    if first == -1 or is_halved:  # half of a CRLF is not replaced
        return None
    if "\r\n" in text and "\n" in old and "\r" not in old:
        # The same lines may also stand somewhere with CRLF: a model that writes LF does not choose between them.
        spans = SearchedText(text).find(old, "line_endings", every=replace_all)
        if len(spans) > len(find_offsets(text, old, every=replace_all)):
            return None
    if not replace_all and text.find(old, first + 1) != -1:
        first = _choose_start(text, find_offsets(text, old), old, "exact", line)
    if text.startswith(BOM):  # the mark at the beginning of a file is neither lost nor doubled
        new = (BOM if old.startswith(BOM) else "") + new.removeprefix(BOM)
    if _to_lf(old) != _to_lf(new):  # otherwise the line endings are what is to be changed
        new = _fit_endings(text, first, first + len(old), new, keep_mixed="\n" in old)
    if replace_all:
        return Replacement(text.replace(old, new), "exact", text.count(old))
    return Replacement(text[:first] + new + text[first + len(old) :], "exact", 1)


def _choose_start(text: str, starts: list[int], old: str, match_kind: MatchKind, line: int) -> int:
    """Where the only one of several begins that is meant: the one that begins in `line`."""
    chosen = [start for start, at in zip(starts, _find_lines(text, starts, old), strict=True) if at == line]
    if len(chosen) != 1:
        raise EditError(_explain_ambiguous(text, starts, old, match_kind))
    return chosen[0]


_Match = tuple[MatchKind, list[TextSpan], str, str]  # How spans were found, and what is replaced in them by what


def _find_loose(body: SearchedText, old: str, new: str, every: bool, is_marked: bool) -> _Match | None:
    """The levels after the exact one; the first that finds anything decides. `is_marked`: `old` began with a mark."""
    for match_kind in LOOSE:
        spans = body.find(old, match_kind, every=every) if is_marked or body.can_find_more(old, match_kind) else []
        if spans:
            return match_kind, spans, old, new
    spans = _find_shifted(body, old, new)
    return ("indentation", spans, old, new) if spans else None


def _find_shifted(body: SearchedText, old: str, new: str) -> list[TextSpan]:
    """Whole lines at another indentation. A newline at an end of `old` must be one of `new`, too, or none of both."""
    ends_with_newline = old.endswith("\n")
    if old.startswith("\n") or (ends_with_newline and new and not new.endswith("\n")):
        return []
    passage_lines = old.removesuffix("\n").split("\n")
    spans = []
    for first, shift in body.find_shifted(passage_lines, new.split("\n")):
        last = first + len(passage_lines) - 1
        line_end = body.starts[last] + len(body.lines[last].removesuffix("\r"))
        end = body.starts[last + 1] if ends_with_newline else line_end
        is_unended = ends_with_newline and end > len(body.text)
        spans.append(TextSpan(body.starts[first], min(end, len(body.text)), shift, is_unended))
    return spans


def _find_unnumbered(body: SearchedText, old: str, new: str) -> _Match | None:
    """The same without the line numbers of read_file, if there can be no doubt that they are such."""
    bare, new_bare = strip_line_numbers(old), strip_line_numbers(new)
    if bare is None or not bare.text.strip():
        return None
    if new_bare is None and any(map(_NUMBERED.match, new.split("\n"))):
        return None
    bare_new = new if new_bare is None else new_bare.text
    spans = body.find(bare.text, "line_endings")
    if bare.text == bare_new or len(spans) != 1:
        return None
    if not bare.several and body.find_line_number(spans[0].start) + 1 != bare.first:
        return None
    return "line_numbers", spans, bare.text, bare_new


class Bare(msgspec.Struct, frozen=True):
    text: str
    first: int
    several: bool


def strip_line_numbers(text: str) -> Bare | None:
    """The passage without its line numbers, if every line has one and they count up; None otherwise."""
    lines = text.split("\n")
    last = [""] if len(lines) > 1 and not lines[-1] else []
    body = lines[: len(lines) - len(last)]
    matches = [match for line in body if (match := _NUMBERED.match(line)) is not None]
    numbers = [int(match[1]) for match in matches]
    if len(matches) < len(body) or any(b != a + 1 for a, b in pairwise(numbers)):
        return None
    is_spaced = all(
        match[2][0] not in ":|│" or match[2].endswith(" ") or match.end() == len(line.rstrip("\r"))
        for match, line in zip(matches, body, strict=True)
    )
    bare = [line[match.end() if is_spaced else match.end(1) + 1 :] for match, line in zip(matches, body, strict=True)]
    return Bare("\n".join([*bare, *last]), numbers[0], len(numbers) > 1)


def _fit_endings(text: str, start: int, end: int, new: str, *, keep_mixed: bool = False) -> str:
    """Line endings as the file, or each replaced line, has them. With `keep_mixed` the model knows them."""
    if "\n" not in new:
        return new
    if "\r" not in text:
        return _to_lf(new) if "\n" in text else new
    feeds, returns = text.count("\n"), text.count("\r\n")
    if not feeds:
        return _to_lf(new).replace("\n", "\r")
    if returns in (0, feeds):
        return _to_lf(new).replace("\n", "\r\n") if returns else _to_lf(new)
    if keep_mixed:
        return new
    endings = re.findall(r"\r?\n", text[start:end])
    if not endings:  # as the line ends that `start` lies in; for the last one, as the one before it does
        feed = text.find("\n", start)
        feed = text.rfind("\n", 0, start) if feed == -1 else feed
        endings = ["\r\n" if text[feed - 1 : feed] == "\r" else "\n"]
    *pieces, last = _to_lf(new).split("\n")
    return "".join(piece + endings[min(i, len(endings) - 1)] for i, piece in enumerate(pieces)) + last


def _to_lf(text: str) -> str:
    return text.replace("\r\n", "\n")


# -- several occurrences ------------------------------------------------------------------------------------------
def _explain_ambiguous(text: str, starts: list[int], old: str, match_kind: MatchKind) -> str:
    """Every line where it begins, the argument to send word for word, and the first places with the line before."""
    begins = _find_lines(text, starts[:_LINES_NAMED], old)
    numbers = list(dict.fromkeys(begins))
    total = max(len(starts), text.count(old))
    named = f"line{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"
    more = f" and {total - len(begins):,} more places" if total > len(begins) else ""
    aside = f" ({ASIDE[match_kind]})" if ASIDE[match_kind] else ""
    ways = [f'"line": {line}' for line in begins if begins.count(line) == 1]
    advice = f"Send the call again with {' or '.join(ways)}."
    if not ways:
        advice = "Add what stands around the one you mean so that it is unique."
    elif len(ways) > _WAYS_SHOWN:
        advice = f"Send the call again with the line of the one you mean, as in {ways[0]}."
    shown, lines = numbers[:_PLACES_SHOWN], text.split("\n")
    width = len(str(shown[-1]))
    excerpts = [
        "\n".join(f" {at:>{width}}  {_clip(lines[at - 1])}" for at in range(max(1, number - 1), number + 1))
        for number in shown
    ]
    return f"old_str occurs {total:,} times, beginning in {named}{more}{aside}. {advice}\n" + "\n\n".join(excerpts)


def _find_lines(text: str, starts: list[int], old: str) -> list[int]:
    """The lines, from 1, where a passage begins; a leading newline belongs to the line before."""
    shift = len(old) - len(old.lstrip("\r\n"))
    offsets = [0, *(start + shift for start in starts)]
    return [*accumulate((text.count("\n", at, offset) for at, offset in pairwise(offsets)), initial=1)][1:]


# -- no occurrence ------------------------------------------------------------------------------------------------
def _explain_not_found(body: SearchedText, old: str, new: str) -> str:
    if there := find_existing_text(body, new):
        return (
            f"old_str was not found, but new_str is already there, in line {there}: the edit seems to be already "
            "applied."
        )
    without_escapes = old.replace("\\r\\n", "\n").replace("\\n", "\n").replace("\\t", "\t").replace('\\"', '"')
    readings = {
        without_escapes: 'without the backslashes: old_str has the two characters \\n (or \\t, or \\") where the file '
        "has the one that they stand for. Send real line breaks, tabs and quotes: escape once for JSON, not twice.",
        html.unescape(old): "with the characters that &lt;, &gt; or &amp; stand for. Send the characters themselves.",
    }
    for plain, advice in readings.items():
        if plain != old and (spans := body.find(plain, "trailing_space")):
            number = body.find_line_number(spans[0].start) + 1
            return f"old_str was not found as it is, but its text stands in line {number} {advice}"
    bare = strip_line_numbers(old)
    if bare is None:
        return f"old_str was not found. {find_nearest(body, old)}"
    return (
        "old_str was not found. It seems to contain the line numbers that read_file puts before each line; they are "
        f"not part of the file. {find_nearest(body, bare.text)}"
    )


def find_existing_text(body: SearchedText, new: str) -> int:
    """The line, from 1, where the new text already stands; 0 if it does not, or if that means nothing."""
    bare = new.strip()
    spans = body.find(new, "trailing_space") if bare else []
    if not spans or (len(spans) > 1 and len(bare) < 4):
        return 0
    return body.find_line_number(spans[0].start + len(new) - len(new.lstrip("\r\n"))) + 1


_WORD = re.compile(r"\w{2,40}")
_WORDS = 64
_SCANNED = 60_000_000  # Characters that may be searched for words in all
_PLACES_OF_A_WORD = 50
_LINES_SAMPLED = 60
_LINES_COMPARED = 60
_LINES_LIKENED = 12
_LINES_TRIED = 2_000
_ROWS = 24
_WIDTH = 200
_LAST_LINES = 20

_Op = tuple[str, int, int, int, int]


def _clip(line: str) -> str:
    line = line.rstrip("\r")
    return line if len(line) <= _WIDTH else f"{line[:_WIDTH]}…"


def find_nearest(body: SearchedText, old: str, name: str = "old_str") -> str:
    passage_lines = old.replace("\r\n", "\n").strip("\n").split("\n")
    if not old.strip():
        return "It is white space only; add the lines around it."
    at = _find_place(body, passage_lines)
    if at is None:
        advice = "Read the file again, or look for it in another file."
        for line in reversed(body.lines[-_LAST_LINES:]) if name == "old_str" else ():
            anchor = line.rstrip("\r")
            if anchor.strip() and len(anchor) <= _WIDTH and body.text.count(anchor) == 1:
                # How to add what is not there yet: with a line that is there, only once.
                advice = (
                    "If it should be there, read the file again, or look for it in another one. If you want to add "
                    f'something, send the call again with "old_str": {encode(anchor).decode()} and with a new_str that '
                    "begins with this line and has the new ones below it."
                )
                break
        return f"No line of the file resembles it. {advice}"
    first, rows, has_spaces = _compare(body, passage_lines, at)
    spaces = "; · is a space, → a tab" if has_spaces else ""
    return (
        f"The nearest passage begins in line {first + 1} (- is what the file has, + is what {name} has{spaces}):\n"
        + "\n".join(rows)
        + "\nCopy the text exactly as the file has it."
    )


def _find_place(body: SearchedText, passage_lines: list[str]) -> int | None:
    """The line, from 0 (or below, if the passage began before the text), where the passage would begin."""
    best, at = 0.0, None
    for place, _ in _count_votes(body, passage_lines).most_common(4):
        ratios = [
            _compute_likeness(line, body.lines[place + i] if 0 <= place + i < len(body.lines) else "")
            for i, line in [(i, line) for i, line in enumerate(passage_lines) if line.strip()][:_LINES_LIKENED]
        ]
        likeness = sum(ratios) / max(1, len(ratios))
        if likeness > best:
            best, at = likeness, place
    if at is not None and best >= 0.4:
        return at
    # Without a word in common: the line most like the longest one.
    key = max(range(len(passage_lines)), key=lambda i: len(passage_lines[i].strip()))
    matcher = difflib.SequenceMatcher(autojunk=False)
    matcher.set_seq2(passage_lines[key].strip()[:_WIDTH])
    best, at = 0.5, None
    for index, theirs in enumerate(body.lines[:_LINES_TRIED]):
        matcher.set_seq1(theirs.strip()[:_WIDTH])
        if matcher.real_quick_ratio() > best and matcher.quick_ratio() > best and (ratio := matcher.ratio()) > best:
            best, at = ratio, index - key
    return at


def _count_votes(body: SearchedText, passage_lines: list[str]) -> Counter[int]:
    """Each word votes for the places where it stands, the more the rarer it is."""
    sample = [i for i, line in enumerate(passage_lines) if line.strip()]
    if len(sample) > _LINES_SAMPLED:
        sample = sample[: _LINES_SAMPLED // 2] + sample[-_LINES_SAMPLED // 2 :]
    words: dict[str, int] = {}
    for i in sample:
        for word in _WORD.findall(passage_lines[i][:1_000]):
            words.setdefault(word, i)
    votes: Counter[int] = Counter()
    for word in sorted(words, key=len, reverse=True)[: max(8, min(_WORDS, _SCANNED // (len(body.text) + 1)))]:
        offsets: list[int] = []
        at = body.text.find(word)
        while at != -1 and len(offsets) < _PLACES_OF_A_WORD:
            offsets.append(at)
            at = body.text.find(word, at + len(word))
        for line in set(map(body.find_line_number, offsets)):
            votes[line - words[word]] += round(1_000 * len(word) / len(offsets))
    return votes


def _compute_likeness(one: str, second: str) -> float:
    """How like two lines are, 0 to 1, indentation aside."""
    one, second = simplify_punctuation(one.strip()[:_WIDTH]), simplify_punctuation(second.strip()[:_WIDTH])
    return 1.0 if one == second else difflib.SequenceMatcher(None, one, second, autojunk=False).ratio()


def _compare(body: SearchedText, passage_lines: list[str], at: int) -> tuple[int, list[str], bool]:
    """The first line that is shown, the rows, and whether spaces and tabs are drawn in them."""
    pairs = zip(passage_lines, body.lines[at:] if at >= 0 else (), strict=False)
    skipped = max(0, sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1].rstrip("\r"), pairs)) - 2)
    ours = passage_lines[skipped : skipped + _LINES_COMPARED]
    start = max(0, at + skipped)
    theirs = [line.rstrip("\r") for line in body.lines[start : start + len(ours) + 3]]
    ops = _trim(difflib.SequenceMatcher(None, theirs, ours, autojunk=False).get_opcodes(), len(theirs))
    has_spaces = any(
        tag == "replace"
        and any(
            "".join(line.split()) == "".join(mine.split())
            for line, mine in zip(theirs[a:b], ours[c:d], strict=False)
            if line.strip()
        )
        for tag, a, b, c, d in ops
    )
    rows = _draw_rows(theirs, ours, ops, start, has_spaces)
    if len(rows) > _ROWS:
        rows = [*rows[:_ROWS], f"[{len(rows) - _ROWS} more lines are not shown]"]
    return start + ops[0][1], rows, has_spaces


def _trim(ops: Sequence[_Op], most: int) -> Sequence[_Op]:
    """Without lines of the file before or behind what was looked for."""
    while len(ops) > 1 and ops[0][0] == "delete":
        ops = ops[1:]
    while len(ops) > 1 and ops[-1][0] == "delete" and ops[-1][2] == most:
        ops = ops[:-1]
    tag, a, b, c, d = ops[-1]
    if tag == "replace" and b == most and b - a > d - c:
        ops = [*ops[:-1], (tag, a, a + (d - c), c, d)]
    return ops


def _draw_rows(theirs: list[str], ours: list[str], ops: Sequence[_Op], start: int, has_spaces: bool) -> list[str]:
    width = len(str(start + len(theirs)))

    def draw(sign: str, number: int | str, line: str) -> str:
        text = _clip(line)
        text = text.replace("\t", "→").replace(" ", "·") if has_spaces and sign != " " else text
        return f"{sign}{number:>{width}}  {text}"

    rows = []
    for index, (tag, a, b, c, d) in enumerate(ops):
        if tag == "equal":
            lines = range(a, b)
            if len(lines) > 4:  # two lines beside each difference are enough
                lines = range(a if index else b - 2, b if index < len(ops) - 1 else a + 2)
            if len(lines) > 4:
                rows += [draw(" ", start + i + 1, theirs[i]) for i in lines[:2]]
                rows.append(f" {'…':>{width}}")
                lines = lines[-2:]
            rows += [draw(" ", start + i + 1, theirs[i]) for i in lines]
            continue
        rows += [draw("-", start + i + 1, theirs[i]) for i in range(a, b)]
        rows += [draw("+", "", ours[i]) for i in range(c, d)]
    return rows
