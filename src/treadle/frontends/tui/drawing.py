"""Blocks to Rich renderables, of text that is inert (S-22). Emphasis uses the sixteen colours of terminals, which
themes map, and never colour alone."""

import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby

from rich.padding import Padding
from rich.table import Table

from treadle.base.inert import make_inert, make_inert_line
from treadle.diff.changes import count
from treadle.diff.diff import FileDiff
from treadle.frontends.presentation import conversation as b
from treadle.frontends.presentation.notices import CHANGED, MINUS, format_call_lines
from treadle.frontends.presentation.overview import Overview
from treadle.frontends.presentation.rich_text import Drawable, Group, Text
from treadle.frontends.presentation.styled import format_model_name, shorten_to_tail
from treadle.frontends.tui.connection import JobRow
from treadle.frontends.tui.marks import Marks
from treadle.protocol.content import PlanStep
from treadle.protocol.files import decode_path
from treadle.protocol.options import NetworkChoice
from treadle.protocol.views import ChildView

LIVE_LINES = 6
SHORT = 12  # lines of a message or of thinking that are shown of a long one until it is unfolded
_DONE = {
    "read_file": ("read", "file"),
    "list_directory": ("listed", "folder"),
    "find_files": ("searched", ""),
    "grep_search": ("searched", ""),
    "get_diagnostics": ("checked", "file"),
}


class Look:
    """How things are drawn: for which width, whether unfolded, with which marks, on a light ground or a dark one."""

    def __init__(self, width: int, now_ms: int, *, unfolded: bool = False, dark: bool = True, marks: Marks) -> None:
        self.width = width
        self.now_ms = now_ms
        self.unfolded = unfolded
        self.code_theme = "ansi_dark" if dark else "ansi_light"
        self.marks = marks


def draw_block(block: b.AnyBlock, look: Look) -> Drawable | None:
    """None for what takes no room."""
    match block:
        case b.UserBlock():
            return _draw_message(block, look)
        case b.AnswerBlock(text=text) if text.strip():
            drawable = draw_markdown(text, look)
            return Group(drawable, Text("(cut short)", "dim")) if block.partial else drawable
        case b.ThoughtBlock():
            return _draw_thought(block, look)
        case b.Calls():
            return _draw_calls(block, look)
        case b.Checklist(steps=steps):
            return draw_checklist(steps, look.marks)
        case b.Note(mark="done"):
            return Group(Text(f"{look.marks.completed} done", "bold green"), draw_markdown(block.text, look))
        case b.Note(mark="error"):
            return Text(f"{look.marks.failed} {block.text}", "bold red")
        case b.Note():
            return Text(f"{look.marks.dot} {block.text}", block.colour)
        case b.RunEndBlock(text=text, files=files):
            lines = [Text(f"{look.marks.rule}{look.marks.rule} {make_inert_line(text)}", "dim")]
            lines += [Text(f"   {make_inert_line(file)}", "dim") for file in files]
            return Group(*lines)
        case b.AnswerBlock() | b.EmptyBlock():
            return None


def draw_markdown(text: str, look: Look) -> Drawable:
    from treadle.frontends.tui import code

    return code.render_markdown(make_inert(text), look.code_theme)


def _draw_message(block: b.UserBlock, look: Look) -> Drawable | None:
    text = make_inert(block.text).strip("\n")
    if block.source != "person":
        return Text(f"{look.marks.prompt} ({block.source}) {make_inert_line(block.text, 200)}", "dim")
    lines = text.split("\n")
    if len(lines) > SHORT and not look.unfolded:
        lines = [*lines[:SHORT], f"… {count(len(lines) - SHORT, 'more line')} (Ctrl-O shows all)"]
    message_text = _draw_mark(look.marks.prompt, "bold cyan")
    message_text.append("\n  ".join(lines), "bold")
    if block.images:
        message_text.append(f"\n  [{count(block.images, 'image')}]", "dim")
    return message_text


def _draw_thought(block: b.ThoughtBlock, look: Look) -> Drawable | None:
    if not block.text.strip():
        return None
    until = look.now_ms if block.live else block.ended_ms
    seconds = max(0, until - block.began_ms) / 1000 if block.began_ms else 0.0
    took = f" for {seconds:.0f} s" if seconds >= 1 else ""
    head = Text(f"{look.marks.thinking} {'thinking' if block.live else 'thought'}{took}", "italic dim")
    lines = [line for line in make_inert(block.text).split("\n") if line.strip()]
    if look.unfolded:
        return Group(head, Padding(Text("\n".join(lines), "italic dim"), (0, 0, 0, 2)))
    if block.live:
        head.append(f" … {make_inert_line(lines[-1].strip(), max(10, look.width - len(head) - 4))}")
    return head


def draw_checklist(steps: Iterable[PlanStep], marks: Marks) -> Drawable:
    rows, looks = [], {"done": (marks.completed, "green"), "in_progress": (marks.now, "bold yellow")}
    for step in steps:
        mark, style = looks.get(step.status, (marks.todo, "dim"))
        text = Text(make_inert_line(step.text, 300), "dim" if step.status == "done" else "")
        rows.append((_draw_mark(f"  {mark}", style), text))
    return draw_grid(rows)


def draw_grid(rows: Iterable[Iterable[Drawable]], room: int = 0) -> Drawable:
    table = Table.grid(padding=(0, room))
    for row in rows:
        table.add_row(*row)
    return table


def _draw_calls(block: b.Calls, look: Look) -> Drawable | None:
    drawables: list[Drawable] = []
    for folds, calls in groupby(block.calls, lambda call: not look.unfolded and _can_fold(call)):
        group = list(calls)
        if folds and len(group) > 1:
            drawables.append(_draw_folded_calls(group, look))
        else:
            drawables += [part for call in group for part in _draw_call(call, look)]
    return Group(*drawables) if drawables else None


def _draw_mark(mark: str, style: str) -> Text:
    """A sign in its colour, and room for what stands behind it in no colour."""
    return Text.assemble((f"{mark} ", style))


def draw_key_hints(keys: Iterable[tuple[str, str]], width: int) -> Text:
    """Keys and what they do, in as many lines as it takes; never a key without its words."""
    text, column = Text(), 0
    for key, words in keys:
        length = len(key) + len(words) + 5
        if column and column + length > width:
            text.append("\n")
            column = 0
        text.append(f" {key} ", "bold reverse")
        text.append(f" {words}  ")
        column += length
    return text


def _can_fold(call: b.ShownCall) -> bool:
    """True for a successful call that only read: several such calls are one line."""
    is_success = call.completion is not None and call.completion.success
    return is_success and call.effect == "read" and call.name != "run_command"


def _draw_folded_calls(calls: list[b.ShownCall], look: Look) -> Drawable:
    summary = ", ".join(
        f"{verb} {count(number, noun)}" if noun else f"{verb} {'once' if number == 1 else f'{number} times'}"
        for (verb, noun), number in Counter(_DONE.get(call.name, (call.name, "")) for call in calls).items()
    )
    text = _draw_mark(look.marks.call, "green")
    text.append(summary, "bold")
    names = ", ".join(dict.fromkeys(make_inert_line(call.summary, 60) for call in calls if call.summary))
    text.append(f" {make_inert_line(names, max(10, look.width - len(text) - 2))}", "dim")
    return text


def _draw_call(call: b.ShownCall, look: Look) -> list[Drawable]:
    if call.completion is None:
        return _draw_running_call(call, look)
    if call.completion.diff_stat is not None and not call.completion.effect and "@@" in call.completion.result:
        return _draw_edit(call, look)
    lines: list[Drawable] = []
    for line in format_call_lines(call.name or "call", call.summary, call.completion, look.width):
        spans = ((look.marks.adapt_text(span.text), " ".join(span.colours)) for span in line)
        lines.append(Text.assemble(*spans, no_wrap=True, overflow="ellipsis"))
    if look.unfolded and call.name == "run_command":
        output = make_inert(call.completion.result or call.completion.error).partition(CHANGED)[0].rstrip()
        return [*lines[:1], _draw_bars(output.split("\n"), look)]
    return lines


def _draw_running_call(call: b.ShownCall, look: Look) -> list[Drawable]:
    mark, style = (look.marks.asks, "bold yellow") if call.waits else (look.marks.running, "yellow")
    head = _draw_mark(mark, style)
    head.append(make_inert_line(call.name, 64), "bold")
    seconds = (look.now_ms - call.began_ms) / 1000 if call.began_ms else 0.0
    tail = " waits for you" if call.waits else f" {seconds:.0f} s" if seconds >= 1 else ""
    head.append(f" {make_inert_line(call.summary, max(20, look.width - len(head) - len(tail) - 2))}")
    head.append(tail, "yellow" if call.waits else "dim")
    lines = [line for line in make_inert(call.output).split("\n") if line.strip()]
    return [head, _draw_bars(lines[-LIVE_LINES:], look)] if lines else [head]


def _draw_bars(lines: list[str], look: Look) -> Drawable:
    room = max(10, look.width - 4)
    untabbed = [line.replace("\t", "    ") for line in lines]
    bar_lines = [f"  {look.marks.bar} {line if len(line) <= room else line[: room - 1] + '…'}" for line in untabbed]
    return Text("\n".join(bar_lines), "dim", no_wrap=True, overflow="ellipsis")


def _draw_edit(call: b.ShownCall, look: Look) -> list[Drawable]:
    assert call.completion is not None
    assert call.completion.diff_stat is not None
    stat = call.completion.diff_stat
    touched = f" {make_inert_line(call.summary, max(10, look.width - 30))} "
    mark = (f"{look.marks.call} ", "green")
    name = (make_inert_line(call.name, 64), "bold")
    head = Text.assemble(mark, name, touched, draw_line_counts(stat.added, stat.removed))
    lines = make_inert(call.completion.result).split("\n")
    start = next(at for at, line in enumerate(lines) if line.startswith("@@"))
    return [head, draw_diff(lines[start:], call.summary, look, most=0 if look.unfolded else 16)]


def draw_line_counts(added_lines: int, removed_lines: int) -> Text:
    return Text.assemble((f"+{added_lines:,}", "green"), (f" {MINUS}{removed_lines:,}", "red"))


_HUNK = re.compile(r"@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@")


def draw_diff(lines: list[str], path: str, look: Look, most: int = 0) -> Drawable:
    """A unified diff with line numbers and marks: added lines in the colours of their language, removed ones in red."""
    from treadle.frontends.tui.code import highlight_lines

    rows: list[Text] = []
    coloured = highlight_lines([line[1:] for line in lines], path, look.code_theme)
    old = new = 0
    for line, text in zip(lines, coloured, strict=True):
        if match := _HUNK.match(line):
            old, new = int(match[1]), int(match[2])
            if rows:
                rows.append(Text(f"  {look.marks.bar} ⋮" if look.marks.unicode else "  | :", "dim"))
            continue
        mark = line[:1] if line[:1] in "+-" else " "
        number = old if mark == "-" else new
        style = {"+": "green", "-": "red"}.get(mark, "dim")
        head = (f"  {look.marks.bar} ", "dim"), (f"{number:4} " if line else "     ", "dim")
        sign = (f"{MINUS if mark == '-' and look.marks.unicode else mark} ", f"bold {style}")
        body = text if mark == "+" else (text.plain, style)
        rows.append(Text.assemble(*head, sign, body, no_wrap=True, overflow="ellipsis"))
        old += mark in "- "
        new += mark in "+ "
    hidden_count = len(rows) - most
    if most and hidden_count > 1:
        rows = [*rows[:most], Text(f"  {look.marks.bar} … {count(hidden_count, 'more line')} (Ctrl-O)", "dim")]
    return Group(*rows)


MOST = 12


class Side:
    """`write` puts what it says where the panel is."""

    def __init__(self, marks: Marks, write: Callable[[Drawable], None]) -> None:
        self._marks = marks
        self._write = write
        self.place = ""
        self.files: Sequence[FileDiff] = ()
        self.jobs: Sequence[JobRow] = ()
        self.children: Sequence[ChildView] = ()
        self.branch = ""
        self._last: object = None

    def show(self, view: Overview) -> None:
        shown_state = (view, tuple(self.files), tuple(self.jobs), tuple(self.children), self.branch, self.place)
        if shown_state != self._last:
            self._last = shown_state
            self._write(Group(*self._draw_sections(view)))

    def _draw_sections(self, view: Overview) -> list[Drawable]:
        width = 34
        parts: list[Drawable] = []
        if self.files:
            parts += [_draw_heading("changed", "/review"), *self._draw_changed_files(width)]
        if view.plan:
            parts += [_draw_heading("plan"), draw_checklist(view.plan, self._marks)]
        if view.queue:
            parts += [_draw_heading("queue", "/queue")]
            parts += [Text(f"  {make_inert_line(item.content, width - 4)}", "cyan") for item in view.queue[:MOST]]
        if self.children:
            parts += [_draw_heading("sub-agents"), *self._draw_children(width)]
        if running := [job for job in self.jobs if job.status == "running"]:
            parts += [_draw_heading("in the background", "/jobs"), *self._draw_jobs(running, width)]
        parts += [_draw_heading("context"), *self._draw_gauge(view, width)]
        return [*parts, _draw_heading("here"), *self._draw_facts(view, width)]

    def _draw_changed_files(self, width: int) -> list[Drawable]:
        lines: list[Drawable] = []
        for file in self.files[:MOST]:
            count = draw_line_counts(file.change.added, file.change.removed)
            name = shorten_to_tail(make_inert_line(decode_path(file.change.path)), max(8, width - len(count) - 4))
            lines.append(Text.assemble(f"  {name} ", count))
        if len(self.files) > MOST:
            lines.append(Text(f"  … {len(self.files) - MOST} more", "dim"))
        return lines

    def _draw_jobs(self, jobs: Sequence[JobRow], width: int) -> list[Drawable]:
        lines: list[Drawable] = []
        for job in jobs[:MOST]:
            took = max(0, round(time.time() - job.began_ms / 1000))
            lines.append(Text(f"  {make_inert_line(job.command, width - 8)} {took} s", "yellow"))
            if job.last_line:
                lines.append(Text(f"    {make_inert_line(job.last_line, width - 4)}", "dim"))
        return lines

    def _draw_children(self, width: int) -> list[Drawable]:
        lines: list[Drawable] = []
        for child in self.children[:MOST]:
            words, style = ("waits for you", "bold yellow") if child.waits else (child.doing or child.status, "dim")
            if child.ended:
                words, style = child.ended, "green" if child.ended == "done" else "red"
            title = make_inert_line(child.title or child.chat, max(8, width - len(words) - 2 * child.depth - 1))
            lines.append(Text.assemble("  " * child.depth, title, (f" {make_inert_line(words, 20)}", style)))
        return lines

    def _draw_gauge(self, view: Overview, width: int) -> list[Drawable]:
        spent = view.cost or view.usage.usd
        tokens = view.usage.input + view.usage.output
        cost = f"  {tokens:,} tokens" + (f" · ${spent:.4f}" if spent else "")
        if not view.window:
            return [Text(cost, "dim")]
        share = min(1.0, view.tokens / view.window)
        full = round(share * (width - 10))
        colour = "red" if share > 0.85 else "yellow" if share > 0.6 else "green"
        filled, empty_part = self._marks.full * full, self._marks.full * (width - 10 - full)
        return [Text.assemble("  ", (filled, colour), (empty_part, "dim"), f" {share:4.0%}"), Text(cost, "dim")]

    def _draw_facts(self, view: Overview, width: int) -> list[Drawable]:
        options = view.options
        facts = {
            "model": format_model_name(options.model, width - 11),
            "effort": options.reasoning_effort,
            "mode": options.mode,
            "network": describe_network(options.network),
            "sandbox": view.sandbox or "not used yet",
            "branch": self.branch or view.branch,
            "project": options.root,
            "world": options.world,
            "runs in": self.place,
        }
        rows = [(name, shorten_to_tail(make_inert_line(value), width - 11)) for name, value in facts.items() if value]
        return [Text.assemble((f"  {name:8} ", "dim"), value) for name, value in rows]


def describe_network(network: NetworkChoice) -> str:
    if isinstance(network, bool):
        return "all hosts" if network else "none"
    return ", ".join(network)


def _draw_heading(text: str, command: str = "") -> Text:
    return Text.assemble(f"\n{text}", (f"  {command}", "dim"), style="bold")
