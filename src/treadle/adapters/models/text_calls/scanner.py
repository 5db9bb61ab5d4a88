"""Splits a text that arrives in pieces into text to show and calls (P-01). `markup` reads a call; this module decides
where a call may begin, and which part of the text around it stays: spaces before a call are dropped with it.

Markup is not a call where the text only mentions it: in a code span on one line, in a fenced block of another language,
in the model's thinking. From a place where a call may begin, the text is held back until that is decided. To decide,
the held text is read again from that place each time it has grown by half. So the total time is linear for any split
(P-07), and the reader keeps no state between pieces."""

import re
from collections.abc import Callable, Collection
from functools import lru_cache

import msgspec

from treadle.adapters.models.text_calls.markup import CALL_FENCES, read_addressed, read_bare, read_fenced, read_marked
from treadle.adapters.models.text_calls.shapes import (
    ANY_NAME,
    CERTAIN,
    ENDING,
    OPENER,
    THINK,
    THINK_END,
    FoundCalls,
    Missed,
    Result,
    Source,
    TextCall,
    is_partial_ending,
    is_partial_opener,
)

CallFree = Callable[[Source, int], tuple[int, bool]]
"""How far the text belongs to the stretch as far as can be told, and whether the stretch ends there."""


@lru_cache(maxsize=64)
def make_thinking_reader(ends: tuple[str, ...], *, with_end: bool = False) -> CallFree:
    """The model's thinking, up to the first of these words, which is part of it or not."""
    word = re.compile("|".join(map(re.escape, ends)))
    partial_ends = frozenset(end[:length] for end in ends for length in range(1, len(end)))
    longest = max(map(len, ends))

    def find_end(source: Source, at: int) -> tuple[int, bool]:
        text = source.text
        end = word.search(text, at)
        if end is not None:
            return end.end() if with_end else end.start(), True
        sure = len(text)
        if not source.final:
            lengths = range(min(longest - 1, sure - at), 0, -1)
            sure -= next((length for length in lengths if text[sure - length :] in partial_ends), 0)
        return sure, False

    return find_end


@lru_cache(maxsize=64)
def make_fence_reader(run: str) -> CallFree:
    """A block that was opened with these backticks or tildes. It begins with the newline behind its first line."""
    closing = re.compile(rf"\n[ \t]*+{run[0]}{{{len(run)},}}[ \t]*+(?=\n|\Z)")

    def find_end(source: Source, at: int) -> tuple[int, bool]:
        text = source.text
        end = closing.search(text, at)
        if end is not None and (source.final or end.end() < len(text)):
            return end.end(), True
        line = end.start() if end is not None else text.rfind("\n", at)
        arriving = line >= 0 and (end is not None or not text[line:].strip("` ~\t\n"))
        return (line if arriving and not source.final else len(text)), False

    return find_end


class Extraction(msgspec.Struct, frozen=True):
    calls: tuple[TextCall, ...]
    text: str


RETRY = 160  # A place that looked like a call is gone over again, in case another begins within it, if it is not longer
RESCUES = 8  # so often text is gone over again that was read to its end in vain

_MARKUP = r"<(?=[a-zT/|\uff5c]|\Z)|\](?=<\]|<?\Z)|`+|~+"
"""Where something may begin; said so closely that most of what programs are made of is passed over."""
_POINT = re.compile(rf"{_MARKUP}|\[(?=[\s{{T]|[^\W\d]|\Z)|\{{|>(?=>>[^\W\d]|>{{0,2}}\Z)")
_MARKED_POINT = re.compile(rf"{_MARKUP}|\[(?=T|\Z)")
_POINT_OR_LINE = re.compile(rf"{_POINT.pattern}|\n")
_INFO = re.compile(r"[ \t]*+([^`\n]*+)(\n)?")
_JUNK = re.compile(r"(?:[\s},;]|\](?!<\]))*+")
_IN_DATA = re.compile(r"""["'”]:\[*\Z|[}\]],\Z""")
"""Text before JSON that is part of other data: the JSON is the value of a key, or one of several items."""


class Scanner:
    """`feed` returns the text to show, `end` the rest of it and the calls. `tool_names`: only these are calls where no
    markup marks one. With `marked_only` only unmistakable markup is a call. With `freeze` everything from the first
    call on is held until the end."""

    def __init__(
        self, tool_names: Collection[str] | None = None, *, marked_only: bool = False, freeze: bool = False
    ) -> None:
        self._known, self._marked_only, self._freeze = tool_names, marked_only, freeze
        self._frozen = False
        self._held: list[str] = []
        self._size = self._due = 0  # of the held text: its size, and the size at which it is read again
        self._taken = 0  # how many characters lie before the held text
        self._calls: list[TextCall] = []
        self._out: list[str] = []
        self._gap: list[str] = []  # spaces at the end of the shown text: dropped if a call follows
        self._tail = ""  # the last characters that were shown, without spaces; empty as long as nothing is shown
        self._call_free: CallFree | None = None  # the fenced block or the thinking that the text is in
        self._hidden = False  # that stretch is not shown
        # Nothing was read yet: the text may begin with the name of a tool.
        self._fresh = bool(tool_names) and tool_names is not ANY_NAME and not marked_only
        self._run = 0  # the number of backticks of a code span that is open on this line
        self._behind = False  # nothing but markup and spaces has come since the last call
        self._certain = False  # A further call may follow without a mark of its own
        self._depth = 0
        self._fence_run = ""  # the backticks that end the fence around the last call
        self._group = 0  # where the last call began
        self._rescues = RESCUES
        self.dangling = False  # the text ended in markup that was no call yet

    def feed(self, text: str) -> str:
        if not self._held and self._is_plain(text):
            self._append(text)
            return self._take()
        self._held.append(text)
        self._size += len(text)
        if self._size < self._due or self._frozen:
            return ""
        self._read(final=False)
        return self._take()

    def _is_plain(self, text: str) -> bool:
        """True if a piece is plain text that changes no state. Nearly every piece is."""
        if self._call_free is not None or self._run or self._behind or not text or text[-1].isspace():
            return False
        if self._fresh or (self._calls and not self._tail):
            return False
        return (_MARKED_POINT if self._marked_only else _POINT).search(text) is None

    def end(self) -> Extraction:
        self._frozen = self._freeze = False
        self._read(final=True)
        if not self.dangling and not (self._calls and self._behind):
            self._out += self._gap
        self._gap.clear()
        return Extraction(tuple(self._calls), self._take())

    @property
    def held_text(self) -> str:
        return "".join((*self._gap, *self._held))

    @property
    def partial(self) -> int | None:
        """Where a call begins that may not be complete; None if there is none."""
        if self._behind and (self._depth or self._fence_run):
            return self._group
        return self._taken if self._size else None

    def _take(self) -> str:
        visible_text = "".join(self._out)
        self._out.clear()
        return visible_text

    def _append(self, text: str) -> bool:
        """Append to the shown text. Return True if more than spaces was added."""
        stripped = text.rstrip()
        if stripped:
            self._out += self._gap
            self._gap.clear()
            self._out.append(stripped)
            last = "".join(stripped[-16:].split())
            if len(last) < 4 and len(stripped) > 16:
                last = "".join(stripped.split())
            self._tail = (self._tail + last)[-4:]
        if len(stripped) < len(text):
            self._gap.append(text[len(stripped) :])
        return bool(stripped)

    def _show(self, text: str) -> None:
        if self._append(text.lstrip() if self._calls and not self._tail else text):
            self._behind = self._certain = False

    def _read(self, *, final: bool) -> None:
        text = "".join(self._held)
        source = Source(text, self._known, final)
        at = 0
        while at < len(text):
            at = self._step(source, at)
            if at < 0:
                at = ~at
                break
        self._held = [text[at:]] if at < len(text) else []
        self._size = len(text) - at
        self._taken += at
        self._due = self._size + self._size // 2 + 1

    def _step(self, source: Source, at: int) -> int:
        """Go on from a place; the place to go on from next, or `~place` to wait there for more text."""
        if self._call_free is not None:
            upto, over = self._call_free(source, at)
            if not self._hidden:
                self._show(source.text[at:upto])
            if over:
                self._call_free, self._hidden = None, False
            return upto if over or upto == len(source.text) else ~upto
        if self._fresh and not source.text[at].isspace():
            outcome = read_addressed(source, at)
            if outcome is None:
                return ~at
            self._fresh = False
            if isinstance(outcome, FoundCalls):
                return self._accept_calls(source, at, outcome, certain=False)
        if self._behind:
            further = self._skip_call_rest(source, at)
            if further != at:
                return further
        points = _POINT_OR_LINE if self._run else _MARKED_POINT if self._marked_only else _POINT
        point = points.search(source.text, at)
        if point is None:
            self._show(source.text[at:])
            return len(source.text)
        if point.start() > at:
            self._show(source.text[at : point.start()])
            return point.start()  # with what was shown, the state may have changed
        if point[0] == "\n":
            self._run = 0
            self._show("\n")
            return point.end()
        if point[0][0] in "`~":
            return self._read_ticks(source, at, point[0])
        return self._read_candidate(source, at)

    def _read_ticks(self, source: Source, at: int, run: str) -> int:
        """Backticks or tildes: a code span begins or ends, or a fenced block begins."""
        text, end = source.text, at + len(run)
        if end == len(text) and not source.final:
            return ~at
        if self._run:
            if run[0] == "`" and len(run) == self._run:
                self._run = 0
        elif len(run) >= 3:
            info = _INFO.match(text, end)
            if info is not None and info[2]:
                return self._read_fence(source, at, run, info)
            if info is not None and info.end() == len(text) and not source.final:
                return ~at
            self._run = len(run) if run[0] == "`" else 0
        elif run[0] == "`":
            self._run = len(run)
        self._show(run)
        return end

    def _read_fence(self, source: Source, at: int, run: str, info: re.Match[str]) -> int:
        word = info[1].strip().lower()
        if run[0] == "`" and word in CALL_FENCES and not self._marked_only:
            outcome = read_fenced(source, word, info.end())
            if outcome is None:
                return ~at
            if isinstance(outcome, FoundCalls):
                further = self._accept_calls(source, at, outcome, certain=False)
                self._fence_run = run if self._fence_run else ""
                return further
        self._call_free = make_fence_reader(run)
        self._show(source.text[at : info.end() - 1])
        return info.end() - 1

    def _read_candidate(self, source: Source, at: int) -> int:
        text = source.text
        if text[at] == "<" and not self._tail and not self._calls and text.startswith(THINK, at):
            self._call_free = make_thinking_reader((THINK_END,), with_end=True)
            self._show(THINK)
            return at + len(THINK)
        marked = OPENER.match(text, at) is not None
        if marked:
            outcome = read_marked(source, at)
        elif is_partial_opener(text, at) or (self._depth and (ENDING.match(text, at) or is_partial_ending(text, at))):
            return self._read_markup(source, at)
        elif text[at] == ">":
            outcome = read_addressed(source, at)
        elif self._marked_only or text[at] in "<]" or _IN_DATA.search(self._tail):
            outcome = Missed(at)
        else:
            outcome = read_bare(source, at)
        if outcome is None:
            return ~at
        if isinstance(outcome, FoundCalls):
            return self._accept_calls(source, at, outcome, certain=marked)
        if isinstance(outcome, Missed):
            return self._show_missed_call(source, at, outcome, marked)
        if self._freeze or self._run:
            self._show(text[at : outcome.end])
            return outcome.end
        if outcome.until:
            self._call_free, self._hidden = make_thinking_reader(outcome.until), True
        self._depth += text[at] == "<"
        self._gap.clear()
        return outcome.end

    def _read_markup(self, source: Source, at: int) -> int:
        """The end of a call that was not followed by it at once, or the beginning of a word that has not all come."""
        text = source.text
        ending = ENDING.match(text, at) if self._depth else None
        if ending is not None:
            self._depth -= 1
            return ending.end()
        if not source.final:
            return ~at
        if len(text) - at >= CERTAIN:
            self.dangling = True
        else:
            self._show(text[at:])
        return len(text)

    def _show_missed_call(self, source: Source, at: int, missed: Missed, marked: bool) -> int:
        text, end = source.text, missed.end
        if missed.is_cut_off:
            if marked and OPENER.search(text, at + 1) is None:
                self.dangling = True
                return end
            if self._rescues:
                self._rescues -= 1
                end = at
        if end - at <= RETRY:
            end = at + 1
        self._show(text[at:end])
        return end

    def _accept_calls(self, source: Source, at: int, found_calls: FoundCalls, *, certain: bool) -> int:
        if self._run and (further := self._close_span(source, at, found_calls.end)) is not None:
            return further
        if self._freeze:
            self._frozen = True
            return ~at
        if found_calls.begin > at:
            self._show(source.text[at : found_calls.begin])
            at = found_calls.begin
        if not self._behind:
            self._group = self._taken + at
        self._calls += found_calls.calls
        self._gap.clear()
        self._run = 0
        self._behind, self._certain = True, certain
        self._depth = found_calls.depth + (1 if self._depth and source.text[at : at + 2] in ("<|", "<\uff5c") else 0)
        if found_calls.fenced:
            self._fence_run = "```"
        return found_calls.end

    def _close_span(self, source: Source, at: int, end: int) -> int | None:
        """The end of the code span around the call, closed by the same backticks on the same line. None if there is
        none; `~at` if more text is needed to decide."""
        text = source.text
        line = text.find("\n", end)
        closing = re.compile(rf"(?<!`)`{{{self._run}}}(?!`)").search(text, end, len(text) if line < 0 else line)
        if not source.final and line < 0 and (closing is None or closing.end() == len(text)):
            return ~at
        if closing is None:
            return None
        self._run = 0
        self._show(text[at : closing.end()])
        return closing.end()

    def _skip_call_rest(self, source: Source, at: int) -> int:
        """Take away what is left of a call's markup; the same place when something else stands there."""
        text = source.text
        junk = _JUNK.match(text, at)
        stop = junk.end() if junk else at
        clean = not text[at:stop].strip()
        if stop == len(text):
            if clean:
                self._show(text[at:])
                return stop
            if not source.final:
                return ~at
            return stop if not text[at:].strip("}] \t\r\n") else self._leave(at)
        ending = ENDING.match(text, stop)
        if ending is not None:
            self._depth = max(0, self._depth - 1)
            self._certain = False
            self._gap.clear()
            return ending.end()
        if self._fence_run and text.startswith(self._fence_run, stop):
            stop += len(self._fence_run)
            self._fence_run, self._certain = "", False
            self._gap.clear()
            return stop
        next_chars = text[stop : stop + len(self._fence_run) + 1]  # of a long text no more than tells
        arriving = is_partial_ending(text, stop) or self._fence_run.startswith(next_chars)
        if not source.final and (arriving or (not clean and is_partial_opener(text, stop))):
            return ~at
        if self._certain and text[stop] in "{[" and OPENER.match(text, stop) is None:
            # A further call behind one that was marked: any name will do, but it must be readable.
            is_open = is_partial_opener(text, stop) and not source.final
            outcome: Result = None if is_open else source.read_value(stop, border=None)
            if outcome is None:
                return ~at
            if isinstance(outcome, FoundCalls):
                return self._accept_calls(source, stop, outcome, certain=True)
            return self._leave(at)
        if clean and stop > at:
            self._show(text[at:stop])
            return stop
        if not clean and OPENER.match(text, stop) is not None:
            self._gap.clear()
            return stop
        return self._leave(at)

    def _leave(self, at: int) -> int:
        self._behind = self._certain = False
        return at
