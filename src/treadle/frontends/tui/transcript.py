"""The conversation on the screen: a scrolling view that draws only the lines it shows. A block is drawn once for a
width and cached; heights of blocks that were never in view are guessed, and measured when they come into view."""

import re
import time
from bisect import bisect_right
from itertools import accumulate

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.events import Click
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.selection import Selection
from textual.strip import Strip

from treadle.frontends.presentation import conversation as b
from treadle.frontends.tui.drawing import Look, draw_block
from treadle.frontends.tui.marks import Marks

MEASURED = 60
"""Blocks that are measured in one go, from the end, when the width changes; the others wait until they are seen."""
KEPT = 400  # blocks whose lines are kept
READY = 2_000  # lines that are kept as they go to the screen
CODE_LINES = 24  # lines of a code block that are settled together; the colours of a language seldom reach further back
_LINES = re.compile(r"[^\n]*\n|[^\n]+")
_FENCE = re.compile(r"^(```|~~~)[^\n]*\n", re.MULTILINE)
_GOES_ON = "-*+|>"  # characters that may continue a list, a table or a quotation before them


class Transcript(ScrollView, can_focus=True):
    DEFAULT_CSS = """
    Transcript { height: 1fr; padding: 0 1; overflow-x: hidden; scrollbar-size-vertical: 1; scrollbar-gutter: stable;
        scrollbar-background: $background; scrollbar-background-hover: $background; scrollbar-color: $panel; }
    """

    def __init__(self, marks: Marks) -> None:
        super().__init__(id="transcript")
        self._marks = marks
        self.conversation = b.Conversation()
        self.unfolded = False
        self._opened: set[int] = set()
        self._released = 0  # blocks, from the first, that were written to the terminal's scrollback
        self._lines: dict[int, list[Strip]] = {}
        self._heights: list[int] = []
        self._starts: list[int] = [0]
        self._width = 0
        self._finished: tuple[str, int, list[Strip]] = ("", 0, [])
        self._coded: dict[tuple[str, int], list[Strip]] = {}
        """Settled parts of the code block that is coming, by their text and width."""
        self._ready: dict[int, tuple[Strip, Strip]] = {}
        """By line: its drawn strip, and the same strip as it goes to the screen."""
        self._ground: Style | None = None
        self.follows = True  # true if the view stays at the end as it grows

    def show(self, conversation: b.Conversation) -> None:
        """Another conversation, from its end."""
        self.conversation = conversation
        self._opened.clear()
        self._released, self.follows = 0, True
        conversation.take()
        self.rebuild()
        self.call_after_refresh(self.go_to_end)

    def update_blocks(self) -> None:
        """Draw what has changed since the last time."""
        newest_blocks = enumerate(self.conversation.blocks[-30:], self._get_tail_start(30))
        if changed_blocks := self.conversation.take() | {at for at, block in newest_blocks if block.live}:
            self._redraw(changed_blocks)

    def toggle(self) -> None:
        self.unfolded = not self.unfolded
        self._opened.clear()
        self.rebuild()
        if self.follows:
            self.go_to_end()

    # -- lines --------------------------------------------------------------------------------------------------------

    def _get_tail_start(self, length: int) -> int:
        return max(0, len(self.conversation.blocks) - length)

    def rebuild(self) -> None:
        """Everything anew: another width, another conversation, folds."""
        self._lines.clear()
        self._ready.clear()
        self._width = self.scrollable_content_region.width
        blocks = self.conversation.blocks
        self._heights = [_guess(block, self._width) for block in blocks]
        if self._width > 0:
            for at in range(self._get_tail_start(MEASURED), len(blocks)):
                self._heights[at] = len(self._draw_strips(at))
        self._place_blocks()

    def _redraw(self, changed_blocks: set[int]) -> None:
        if self._width <= 0:
            return
        blocks = self.conversation.blocks
        self._heights += [0] * (len(blocks) - len(self._heights))
        top = self.scroll_offset.y
        first, last = (bisect_right(self._starts, line) - 1 for line in (top, top + self.size.height))
        for at in changed_blocks:
            self._lines.pop(at, None)
            is_near = at >= self._get_tail_start(MEASURED) or first <= at <= last
            self._heights[at] = len(self._draw_strips(at)) if is_near else _guess(blocks[at], self._width)
        self._place_blocks()
        if self.follows:
            self.go_to_end()

    def _place_blocks(self) -> None:
        self._starts = [0, *accumulate(self._heights)]
        size = Size(self._width, self._starts[-1])
        if self.show_vertical_scrollbar and size.height > self.size.height and size.width == self.virtual_size.width:
            # Higher than the screen, as before: nothing beside it has to move, and the layout stays as it is.
            self.set_reactive(ScrollView.virtual_size, size)
            self.vertical_scrollbar.window_virtual_size = size.height
        else:
            self.virtual_size = size
            if self.follows:  # how far the end is away is known when it is laid out
                self.call_after_refresh(self.go_to_end)
        self.refresh()

    def _draw_strips(self, at: int) -> list[Strip]:
        if at < self._released:
            return []
        if (cached := self._lines.get(at)) is not None:
            return cached
        block = self.conversation.blocks[at]
        unfolded, dark = self.unfolded != (at in self._opened), self.app.current_theme.dark
        now_ms = time.time_ns() // 1_000_000
        look = Look(max(10, self._width), now_ms, unfolded=unfolded, dark=dark, marks=self._marks)
        strips = self._render_block(block, look)
        if len(self._lines) > KEPT:
            for distant in sorted(self._lines, key=lambda each: -abs(each - at))[: KEPT // 2]:
                del self._lines[distant]
        self._lines[at] = strips
        return strips

    def _render_block(self, block: b.AnyBlock, look: Look) -> list[Strip]:
        if isinstance(block, b.AnswerBlock) and block.live:
            settled_text = find_settled_part(block.text)
            return self._draw_finished(settled_text, look) + self._draw_coming(block.text[len(settled_text) :], look)
        renderable = draw_block(block, look)
        if renderable is None:
            return []
        console = self.app.console
        options = console.options.update_width(look.width).update(height=None, highlight=False)
        lines = Segment.split_lines(console.render(renderable, options))
        strips = [Strip(line).adjust_cell_length(look.width) for line in lines]
        while strips and not strips[-1].text.strip():
            strips.pop()
        return [*strips, Strip.blank(look.width)] if strips else []

    def _draw_finished(self, text: str, look: Look) -> list[Strip]:
        """The settled part of an answer, drawn once; only text that is added to it is drawn."""
        drawn_text, width, strips = self._finished
        if width != look.width or not text.startswith(drawn_text):
            drawn_text, strips = "", []
        if text != drawn_text:
            strips = [*strips, *self._render_block(b.AnswerBlock(text=text[len(drawn_text) :]), look)]
            self._finished = (text, look.width, strips)
            self._coded.clear()
        return strips

    def _draw_coming(self, text: str, look: Look) -> list[Strip]:
        """The end of an answer that is still coming; of a long block of code only its end is drawn again."""
        *settled_parts, last = split_code_parts(text)
        strips: list[Strip] = []
        for part in settled_parts:
            if (part, look.width) not in self._coded:
                self._coded[part, look.width] = self._render_block(b.AnswerBlock(text=part), look)[:-1]
            strips += self._coded[part, look.width]
        return strips + self._render_block(b.AnswerBlock(text=last), look)

    def notify_style_update(self) -> None:
        self._ground = None
        self._ready.clear()
        super().notify_style_update()

    def render_line(self, y: int) -> Strip:
        style = self._ground = self._ground or self.rich_style
        line = self.scroll_offset.y + y
        width = self.scrollable_content_region.width
        if not 0 <= line < self._starts[-1]:
            return Strip.blank(width, style)
        at = bisect_right(self._starts, line) - 1
        strips = self._draw_strips(at)
        inside = line - self._starts[at]
        if len(strips) != self._heights[at]:
            self._correct_height(at, len(strips))
        strip = strips[inside] if inside < len(strips) else Strip.blank(width)
        selection = self.text_selection
        if selection is not None and (span := selection.get_span(line)) is not None:
            drawn = strip.crop_extend(0, width, style).apply_style(style)
            return self._highlight_selection(drawn, span).apply_offsets(0, line)
        cached = self._ready.get(line)
        if cached is None or cached[0] is not strip:
            if len(self._ready) > READY:
                self._ready.clear()
            cached = (strip, strip.crop_extend(0, width, style).apply_style(style).apply_offsets(0, line))
            self._ready[line] = cached
        return cached[1]

    def _highlight_selection(self, strip: Strip, span: tuple[int, int]) -> Strip:
        width = strip.cell_length
        begin, end = span[0], width if span[1] == -1 else span[1]
        style = self.screen.get_component_rich_style("screen--selection")
        parts = list(strip.divide([begin, end, width]))
        if len(parts) > 1:
            parts[1] = Strip([Segment(each.text, (each.style or Style()) + style) for each in parts[1]])
        return Strip.join(parts)

    def _correct_height(self, at: int, height: int) -> None:
        """Correct the guessed height of a block without moving the lines in view."""
        grown = height - self._heights[at]
        self._heights[at] = height

        def settle() -> None:
            top = self.scroll_offset.y
            above = self._starts[at] < top
            self._place_blocks()
            if self.follows:
                self.go_to_end()
            elif above:
                self.scroll_to(y=top + grown, animate=False)

        self.call_later(settle)

    # -- scrolling ----------------------------------------------------------------------------------------------------

    def go_to_end(self) -> None:
        self.follows = True
        self.scroll_to(y=self.max_scroll_y, animate=False, immediate=True)

    def watch_show_vertical_scrollbar(self, shown: bool) -> None:
        if shown and self.follows:  # Textual does not scroll without a scroll bar
            self.go_to_end()

    def watch_scroll_y(self, old: float, new: float) -> None:
        super().watch_scroll_y(old, new)
        if new < old or new >= self.max_scroll_y - 1:  # by hand, or because the end came nearer
            self.follows = new >= self.max_scroll_y - 1

    def on_resize(self) -> None:
        if self.scrollable_content_region.width != self._width:
            self.rebuild()
        if self.follows:
            self.call_after_refresh(self.go_to_end)

    def on_click(self, event: Click) -> None:
        """A click unfolds a block, and folds it again."""
        line = self.scroll_offset.y + event.y
        if 0 <= line < self._starts[-1]:
            at = bisect_right(self._starts, line) - 1
            if isinstance(self.conversation.blocks[at], b.Calls | b.ThoughtBlock | b.UserBlock):
                self._opened ^= {at}
                self._redraw({at})

    # -- copying ------------------------------------------------------------------------------------------------------

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        strips = (self._lines.get(at, [Strip.blank(0)] * height) for at, height in enumerate(self._heights))
        return selection.extract("\n".join(strip.text.rstrip() for lines in strips for strip in lines)), "\n"

    def render_last_lines(self, most: int) -> list[str]:
        """The end of the conversation as it would be written to a terminal, at most so many lines."""
        lines: list[str] = []
        for at in range(len(self.conversation.blocks) - 1, self._released - 1, -1):
            if len(lines) >= most:
                break
            lines = self._render_block_lines(at) + lines
        return lines[-most:]

    def release(self) -> list[str]:
        """The lines of blocks that change no more, for the scrollback. From then on they are not shown here."""
        blocks = self.conversation.blocks
        end = next((at for at in range(self._released, len(blocks)) if blocks[at].live), len(blocks))
        if self.conversation.view.busy:  # a call may be added to the last block
            end = min(end, len(blocks) - 1)
        if end <= self._released:
            return []
        lines = [line for at in range(self._released, end) for line in self._render_block_lines(at)]
        released = set(range(self._released, end))
        self._released = end
        self._redraw(released)
        return lines

    def _render_block_lines(self, at: int) -> list[str]:
        strips = [strip.crop(0, cell_len(strip.text.rstrip())) for strip in self._draw_strips(at)]
        for each in self.app.get_line_filters():
            strips = [strip.apply_filter(each, self.background_colors[1]) for strip in strips]
        return [strip.render(self.app.console) for strip in strips]

    def selection_updated(self, selection: Selection | None) -> None:
        self.refresh()


def _guess(block: b.AnyBlock, width: int) -> int:
    match block:
        case b.EmptyBlock():
            return 0
        case b.UserBlock(text=text) | b.AnswerBlock(text=text):
            return sum(1 + len(line) // max(20, width) for line in text.split("\n")) + 1
        case b.Calls(calls=calls):
            return 1 + sum(1 if call.effect == "read" else 4 for call in calls)
        case _:
            return 2


def find_settled_part(text: str) -> str:
    """The beginning of a Markdown text that nothing behind it can change: whole paragraphs, no open code block, list or
    table at its end."""
    end = fence = 0
    open_with = ""
    for match in _LINES.finditer(text):
        line = match[0]
        mark = line.lstrip()[:3]
        if mark in ("```", "~~~") and (not open_with or mark == open_with):
            open_with = "" if open_with else mark
        elif not open_with and line == "\n":
            fence = match.end()
        elif not open_with and line.endswith("\n") and not line[:1].isspace() and fence == match.start():
            end = fence if line[0] not in _GOES_ON and not line[0].isdecimal() else end
    return text[:end]


def split_code_parts(text: str) -> list[str]:
    """A text in which a code block is open, as texts to be drawn one below the other: all but the last are settled.
    Any other text is one part."""
    match = _FENCE.search(text)
    if match is None or re.search(rf"^{match[1]}", text[match.end() :], re.MULTILINE):
        return [text]
    lines = text[match.end() :].splitlines(keepends=True)
    parts, begin = list[str](), text[: match.end()]
    while True:
        splits = (at for at in range(CODE_LINES, len(lines)) if lines[at - 1].strip() and lines[at].strip())
        if (end := next(splits, 0)) == 0:  # beside an empty line, that line would be lost
            return [*parts, begin + "".join(lines)]
        parts.append(f"{begin}{''.join(lines[:end])}{match[1]}\n")
        lines, begin = lines[end:], match[0]
