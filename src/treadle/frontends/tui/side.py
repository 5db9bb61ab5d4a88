"""The content of the panel at the side: changed files, the plan, the queue, running commands, cost and place."""

import time
from collections.abc import Callable, Sequence

from treadle.base.inert import inert_line
from treadle.diff.hunks import FileDiff
from treadle.frontends.presentation.names import model_name
from treadle.frontends.presentation.overview import Overview
from treadle.frontends.presentation.rich_text import Drawable, Group, Text
from treadle.frontends.presentation.styled import tail
from treadle.frontends.tui.connection import JobRow
from treadle.frontends.tui.drawing import checklist, numbers
from treadle.frontends.tui.marks import Marks
from treadle.protocol.files import decode_path
from treadle.protocol.options import NetworkChoice
from treadle.protocol.views import ChildView

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
            self._write(Group(*self._sections(view)))

    def _sections(self, view: Overview) -> list[Drawable]:
        width = 34
        parts: list[Drawable] = []
        if self.files:
            parts += [_heading("changed", "/review"), *self._draw_changed_files(width)]
        if view.plan:
            parts += [_heading("plan"), checklist(view.plan, self._marks)]
        if view.queue:
            parts += [_heading("queue", "/queue")]
            parts += [Text(f"  {inert_line(item.content, width - 4)}", "cyan") for item in view.queue[:MOST]]
        if self.children:
            parts += [_heading("sub-agents"), *self._family(width)]
        if running := [job for job in self.jobs if job.status == "running"]:
            parts += [_heading("in the background", "/jobs"), *self._working(running, width)]
        return [*parts, _heading("context"), *self._gauge(view, width), _heading("here"), *self._facts(view, width)]

    def _draw_changed_files(self, width: int) -> list[Drawable]:
        lines: list[Drawable] = []
        for file in self.files[:MOST]:
            count = numbers(file.change.added, file.change.removed)
            name = tail(inert_line(decode_path(file.change.path)), max(8, width - len(count) - 4))
            lines.append(Text.assemble(f"  {name} ", count))
        if len(self.files) > MOST:
            lines.append(Text(f"  … {len(self.files) - MOST} more", "dim"))
        return lines

    def _working(self, jobs: Sequence[JobRow], width: int) -> list[Drawable]:
        lines: list[Drawable] = []
        for job in jobs[:MOST]:
            took = max(0, round(time.time() - job.began_ms / 1000))
            lines.append(Text(f"  {inert_line(job.command, width - 8)} {took} s", "yellow"))
            if job.last_line:
                lines.append(Text(f"    {inert_line(job.last_line, width - 4)}", "dim"))
        return lines

    def _family(self, width: int) -> list[Drawable]:
        lines: list[Drawable] = []
        for child in self.children[:MOST]:
            words, style = ("waits for you", "bold yellow") if child.waits else (child.doing or child.status, "dim")
            if child.ended:
                words, style = child.ended, "green" if child.ended == "done" else "red"
            title = inert_line(child.title or child.chat, max(8, width - len(words) - 2 * child.depth - 1))
            lines.append(Text.assemble("  " * child.depth, title, (f" {inert_line(words, 20)}", style)))
        return lines

    def _gauge(self, view: Overview, width: int) -> list[Drawable]:
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

    def _facts(self, view: Overview, width: int) -> list[Drawable]:
        options = view.options
        facts = {
            "model": model_name(options.model, width - 11),
            "effort": options.reasoning_effort,
            "mode": options.mode,
            "network": network_words(options.network),
            "sandbox": view.sandbox or "not used yet",
            "branch": self.branch or view.branch,
            "project": options.root,
            "world": options.world,
            "runs in": self.place,
        }
        return [
            Text.assemble((f"  {name:8} ", "dim"), tail(inert_line(value), width - 11))
            for name, value in facts.items()
            if value
        ]


def network_words(network: NetworkChoice) -> str:
    if isinstance(network, bool):
        return "all hosts" if network else "none"
    return ", ".join(network)


def _heading(text: str, command: str = "") -> Text:
    return Text.assemble(f"\n{text}", (f"  {command}", "dim"), style="bold")
