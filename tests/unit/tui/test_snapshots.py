"""How the main views look, in three sizes and two themes. When a change is meant: pytest --snapshot-update, and look at
what changed."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from textual.pilot import Pilot

from tests.unit.tui.recorded import Recorded, asking_log, ended_log
from treadle.protocol.events import Event
from treadle.tui.app import Start, TreadleApp
from treadle.tui.launch import make_app

SIZES = [(40, 12), (80, 24), (120, 40)]
Compare = Callable[..., bool]


def app_of(log: Sequence[Event], theme: str = "textual-dark") -> TreadleApp:
    recorded: Any = Recorded(log)

    async def connect() -> Any:
        return recorded

    return make_app(connect, Start("/home/me/project", chat="c_1"), theme=theme)


async def ready(pilot: Pilot[Any]) -> None:
    """All is drawn, nothing is under way, and the cursor does not blink."""
    app = pilot.app
    assert isinstance(app, TreadleApp)
    app.composer.cursor_blink = False
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        await pilot.pause(0.05)
        asks = bool(app.conversation.view.actions)
        if app.conversation.seq and app.transcript._lines and (not asks or app.card.armed):
            break
    app._tick = lambda: None  # type: ignore[method-assign]
    await pilot.pause(0.2)


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
def test_conversation(snap_compare: Compare, size: tuple[int, int]) -> None:
    assert snap_compare(app_of(ended_log()), terminal_size=size, run_before=ready)


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
def test_approval(snap_compare: Compare, size: tuple[int, int]) -> None:
    assert snap_compare(app_of(asking_log()), terminal_size=size, run_before=ready)


def test_light(snap_compare: Compare) -> None:
    assert snap_compare(app_of(ended_log(), "textual-light"), terminal_size=(80, 24), run_before=ready)


def test_help(snap_compare: Compare) -> None:
    async def helped(pilot: Pilot[Any]) -> None:
        await ready(pilot)
        await pilot.press("f1")
        await pilot.pause(0.2)

    assert snap_compare(app_of(ended_log()), terminal_size=(80, 24), run_before=helped)
