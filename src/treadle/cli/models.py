"""`treadle models fetch`: gets models that run on this machine."""

import os
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from treadle.cli.session import configured
from treadle.cli.terminal import Terminal
from treadle.errors import InvalidInput
from treadle.models.local.weights import KNOWN, Weights, locate

if TYPE_CHECKING:
    from rich.progress import Progress

QUARTERS = 4
"""Without a terminal, progress is told so many times."""


def fetch_model(name: str) -> int:
    from treadle.models.local.fetch import fetch

    name = name.removeprefix("local:")
    weights = KNOWN.get(name)
    if weights is None:
        raise InvalidInput(f"there is no model {name!r} to fetch; there are {', '.join(KNOWN)}")
    home = configured().home
    terminal = Terminal()
    if (there := locate(weights, home)) is not None:
        terminal.note(f"{weights.info.ref} is here already: {there}")
        return 0
    terminal.note(f"fetching {weights.title}, {weights.size / 1e6:,.0f} MB")
    told = Told(weights, terminal)
    with told.shown():
        path = fetch(weights, home, told)
    terminal.note(f"verified and kept in {path}")
    terminal.line(f"Use it with: treadle run --model {weights.info.ref} PROMPT")
    return 0


class Told:
    """Shows how far a download is: as a bar where someone sees it, else in a few lines."""

    def __init__(self, weights: Weights, terminal: Terminal) -> None:
        self._weights = weights
        self._terminal = terminal
        self._bar: Progress | None = None
        self._quarter = 0

    def shown(self) -> AbstractContextManager[object]:
        if not os.isatty(2):
            return nullcontext()
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
        self._bar = Progress(*columns, console=Console(stderr=True))
        self._bar.add_task(self._weights.name, total=self._weights.size)
        return self._bar

    def __call__(self, done: int) -> None:
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=done)
            return
        quarter = done * QUARTERS // self._weights.size
        if quarter > self._quarter:
            self._terminal.note(f"{done / 1e6:,.0f} of {self._weights.size / 1e6:,.0f} MB")
        self._quarter = quarter
