"""Replacing one piece of a text by another: the pure core of edit_file (T-03). An exact match is tried first, then
matches that ignore ever more small differences. A passage that is not found exactly once is an EditError that shows
where to look. Line endings, byte-order mark and final newline of the file are kept."""

import re

import msgspec

from treadle.adapters.tools.builtin import mismatch
from treadle.adapters.tools.builtin.matching import LOOSE, How, SearchedText, TextSpan, places
from treadle.adapters.tools.builtin.text import BOM
from treadle.errors import EditError


class Replacement(msgspec.Struct, frozen=True):
    """The new text, how the old piece was matched, and how often it was replaced."""

    text: str
    match_kind: How
    count: int


class OccurrenceChoice(msgspec.Struct, frozen=True):
    """Which occurrence is meant where there are several: all, or the one that begins in a line (from 1)."""

    every: bool = False
    line: int = 0

    def among(self, text: str, starts: list[int], old: str) -> list[int]:
        """The indices of those that are meant. Without a word about it: all, which may be too many."""
        if self.every or not self.line or len(starts) < 2:
            return list(range(len(starts)))
        return [at for at, line in enumerate(mismatch.lines_of(text, starts, old)) if line == self.line]


def replace(text: str, old: str, new: str, replace_all: bool = False, line: int = 0) -> Replacement:
    """Replace `old`, which must occur exactly once unless `replace_all`, or once as from this line."""
    return _replace(text, old, new, OccurrenceChoice(replace_all, line))


def _replace(text: str, old: str, new: str, choice: OccurrenceChoice) -> Replacement:
    if not old.removeprefix(BOM):
        raise EditError("old_str is empty. Give the text to replace; to write a whole file use write_file.")
    if old == new:
        raise EditError(
            "old_str and new_str are the same; there is nothing to change. Send the call again with the lines of "
            "the file that are to change in old_str, and with what they shall be in new_str."
        )
    if "\n" not in text and "\r" in text and "\n" in old:  # lines that end in CR alone, as on old Macs
        lf_replacement = _replace(text.replace("\r", "\n"), _lf(old), _lf(new), choice)
        return Replacement(
            lf_replacement.text.replace("\n", "\r"),
            _at_least(lf_replacement.match_kind, "line_endings"),
            lf_replacement.count,
        )
    made_exact = _exact(text, old, new, choice)
    if made_exact is not None:
        return made_exact
    bom = BOM if text.startswith(BOM) else ""
    body = SearchedText(text[len(bom) :])
    plain_old, plain_new = old.removeprefix(BOM), new.removeprefix(BOM)
    marked = len(plain_old) != len(old)
    replacement = _loose(body, plain_old, plain_new, choice, marked)
    replacement = replacement or _unnumbered(body, plain_old, plain_new, choice)
    if replacement is None:
        raise EditError(mismatch.not_found(body, plain_old, plain_new))
    return msgspec.structs.replace(replacement, text=bom + replacement.text)


def _exact(text: str, old: str, new: str, choice: OccurrenceChoice) -> Replacement | None:
    first = text.find(old)
    if first == -1 or (old[0] == "\n" and "\r" + old in text):  # half of a CRLF is not replaced
        return None
    if _has_more_with_returns(text, old, choice):
        return None
    if not choice.every and text.find(old, first + 1) != -1:
        first = _one(text, places(text, old), old, "exact", choice)
    new = _fit_bom(text, old, new)
    if _lf(old) != _lf(new):  # otherwise the line endings are what is to be changed
        new = _fit_endings(text, first, first + len(old), new, keep_mixed="\n" in old)
    if choice.every:
        return Replacement(text.replace(old, new), "exact", text.count(old))
    return Replacement(text[:first] + new + text[first + len(old) :], "exact", 1)


def _has_more_with_returns(text: str, old: str, selection: OccurrenceChoice) -> bool:
    """True if the same lines also stand somewhere with CRLF: a model that writes LF does not choose between them."""
    if "\r\n" not in text or "\n" not in old or "\r" in old:
        return False
    spans = SearchedText(text).find(old, "line_endings", every=selection.every)
    return len(spans) > len(places(text, old, every=selection.every))


def _one(text: str, starts: list[int], old: str, match_kind: How, choice: OccurrenceChoice) -> int:
    """Where the only one begins that is meant."""
    indexes = choice.among(text, starts, old)
    if len(indexes) != 1:
        raise EditError(mismatch.ambiguous(text, starts, old, match_kind))
    return starts[indexes[0]]


def _loose(body: SearchedText, old: str, new: str, choice: OccurrenceChoice, marked: bool) -> Replacement | None:
    """The levels after the exact one; the first that finds anything decides. `marked`: without its byte-order mark,
    `old` may even be there as it is."""
    for match_kind in LOOSE:
        spans = body.find(old, match_kind, every=choice.every) if marked or body.worth(old, match_kind) else []
        if spans:
            return _replace_spans(body, spans, old, new, match_kind, choice)
    spans = _shifted(body, old, new)
    return _replace_spans(body, spans, old, new, "indentation", choice) if spans else None


def _shifted(body: SearchedText, old: str, new: str) -> list[TextSpan]:
    """Whole lines at another indentation. A newline at an end of `old` must be one of `new`, too, or none of both."""
    if old.startswith("\n") or (old.endswith("\n") and new and not new.endswith("\n")):
        return []
    ends_with_newline = old.endswith("\n")
    passage_lines = (old[:-1] if ends_with_newline else old).split("\n")
    spans = []
    for first, shift in body.find_shifted(passage_lines, new.split("\n")):
        last = first + len(passage_lines) - 1
        end = (
            body.starts[last + 1] if ends_with_newline else body.starts[last] + len(body.lines[last].removesuffix("\r"))
        )
        spans.append(
            TextSpan(body.starts[first], min(end, len(body.text)), shift, ends_with_newline and end > len(body.text))
        )
    return spans


def _replace_spans(
    body: SearchedText, spans: list[TextSpan], old: str, new: str, match_kind: How, choice: OccurrenceChoice
) -> Replacement:
    if len(spans) > 1 and not choice.every:
        start = _one(body.text, [span.start for span in spans], old, match_kind, choice)
        spans = [span for span in spans if span.start == start]
    parts: list[str] = []
    at = count = 0
    for span in spans:
        if span.start < at:
            continue
        piece = new if span.shift is None else "\n".join(span.shift.apply(line) for line in new.split("\n"))
        if span.unended:
            piece = piece.removesuffix("\n").removesuffix("\r")
            if piece and not piece.endswith("\n") and body.text.endswith("\n"):
                piece += "\n"  # `old` had a blank line too many; the file keeps its final newline
        parts += [body.text[at : span.start], _fit_endings(body.text, span.start, span.end, piece)]
        at = span.end
        count += 1
    return Replacement("".join([*parts, body.text[at:]]), match_kind, count)


# -- properties of the file that are kept -------------------------------------------------------------------------


def _fit_bom(text: str, old: str, new: str) -> str:
    """The mark at the beginning of a file is neither lost nor doubled."""
    if not text.startswith(BOM):
        return new
    return BOM + new.removeprefix(BOM) if old.startswith(BOM) else new.removeprefix(BOM)


def _fit_endings(text: str, start: int, end: int, new: str, *, keep_mixed: bool = False) -> str:
    """Line endings as the file has them; where it has both, as the replaced lines have them, one by one. With
    `keep_mixed` the model has shown that it knows them."""
    if "\n" not in new:
        return new
    if "\r" not in text:
        return _lf(new) if "\n" in text else new
    feeds = text.count("\n")
    returns = text.count("\r\n")
    if not feeds:
        return _lf(new).replace("\n", "\r") if "\r" in text else new
    if returns in (0, feeds):
        plain = _lf(new)
        return plain.replace("\n", "\r\n") if returns else plain
    if keep_mixed:
        return new
    endings = re.findall(r"\r?\n", text[start:end]) or [_ending_at(text, start)]
    pieces = _lf(new).split("\n")
    return "".join(
        piece + (endings[min(i, len(endings) - 1)] if i < len(pieces) - 1 else "") for i, piece in enumerate(pieces)
    )


def _ending_at(text: str, at: int) -> str:
    """How the line ends in which `at` lies; for the last one, how the one before it does."""
    feed = text.find("\n", at)
    if feed == -1:
        feed = text.rfind("\n", 0, at)
    return "\r\n" if text[feed - 1 : feed] == "\r" else "\n"


def _lf(text: str) -> str:
    return text.replace("\r\n", "\n")


def _at_least(match_kind: How, least: How) -> How:
    return least if match_kind == "exact" else match_kind


# -- line numbers that were copied along --------------------------------------------------------------------------


def _unnumbered(body: SearchedText, old: str, new: str, choice: OccurrenceChoice) -> Replacement | None:
    """The same without the line numbers of read_file, if there can be no doubt that they are such."""
    bare = mismatch.without_numbers(old)
    if bare is None or not bare.text.strip():
        return None
    new_bare = mismatch.without_numbers(new)
    if new_bare is None and mismatch.some_numbers(new):
        return None
    bare_new = new if new_bare is None else new_bare.text
    if bare.text == bare_new:
        return None
    spans = body.find(bare.text, "line_endings")
    if len(spans) != 1 or choice.every:
        return None
    if not bare.several and body.line_at(spans[0].start) + 1 != bare.first:
        return None
    return _replace_spans(body, spans, bare.text, bare_new, "line_numbers", choice)
