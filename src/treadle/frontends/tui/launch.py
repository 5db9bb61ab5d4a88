"""Opening the app: the screen first, and what makes it work behind it."""

import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

from treadle.frontends.tui.app import AppExit, Start, TreadleApp

if TYPE_CHECKING:
    from treadle.frontends.tui.app import Connection, Controlling, Showing


def make_app(
    connect: "Callable[[], Awaitable[Connection]]", start: Start, *, home: Path | None = None, theme: str = ""
) -> TreadleApp:
    return TreadleApp(connect, _show, _make_controller, start, home=home, theme=theme)


async def launch_app(
    connect: "Callable[[], Awaitable[Connection]]", start: Start, *, home: Path | None = None, inline: bool = False
) -> AppExit | None:
    app = make_app(connect, start, home=home)
    exit_state = await app.run_async(inline=inline, mouse=not inline)
    if app.last_screenful:
        # Written as the screen was: its text went through the same filters.
        sys.stdout.write("\n".join(app.last_screenful) + "\n")
    return exit_state


def _show(app: TreadleApp) -> "Showing":
    from treadle.frontends.tui.showing import ChatDisplay

    return ChatDisplay(app)


def _make_controller(app: TreadleApp) -> "Controlling":
    from treadle.frontends.tui.controller import Controller

    return Controller(app)
