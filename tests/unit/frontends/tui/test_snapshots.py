"""How every view looks, in three sizes and two themes: each view in every size and in both themes, each size in both,
not all three at once. When a change is meant: pytest --snapshot-update, and look at what changed."""

import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import Input, OptionList

from tests.unit.frontends.tui.recorded import Recorded, Unused, Worked, asking_log, ended_log, question_log
from treadle.frontends.tui.app import Start, TreadleApp
from treadle.frontends.tui.launch import make_app
from treadle.frontends.tui.screens import Picker, Reading
from treadle.protocol.events import Event

pytestmark = pytest.mark.thorough(one_of=8)

SIZES = [(40, 12), (80, 24), (120, 40)]
THEMES = ("dark", "light")
Compare = Callable[..., bool]
Does = Callable[[Pilot[Any]], Awaitable[None]]


async def nothing(pilot: Pilot[Any]) -> None: ...


async def open_help(pilot: Pilot[Any]) -> None:
    await pilot.press("f1")
    await _until(pilot, lambda: isinstance(pilot.app.screen, Reading))  # the user's own commands are looked for first


async def complete_command(pilot: Pilot[Any]) -> None:
    await pilot.press("/", "r", "e")
    await _until(pilot, lambda: pilot.app.query_one("#offers", OptionList).display)


def open_list(command: str) -> Does:
    """Typed: a list, of which no clock is part."""

    async def does(pilot: Pilot[Any]) -> None:
        await pilot.press("/", *command, "escape", "enter")
        await _until(pilot, lambda: _rows_are_there(pilot))

    return does


def _rows_are_there(pilot: Pilot[Any]) -> bool:
    return any(rows.option_count for rows in pilot.app.screen.query("#rows").results(OptionList))


VIEWS: dict[str, tuple[Callable[[], Sequence[Event]], Does]] = {
    "conversation": (ended_log, nothing),
    "approval": (asking_log, nothing),
    "question": (question_log, nothing),
    "completion": (ended_log, complete_command),
    "list": (ended_log, open_list("model")),
    "chats": (ended_log, open_list("chats")),
    "review": (ended_log, open_list("review")),
    "rewind": (ended_log, open_list("rewind")),
    "jobs": (ended_log, open_list("jobs")),
    "help": (ended_log, open_help),
    "first run": (list, nothing),
}


SCENES: dict[str, type[Recorded]] = {
    **dict.fromkeys(("chats", "review", "rewind", "jobs"), Worked),
    "first run": Unused,
}


def app_of(view: str, theme: str) -> TreadleApp:
    recorded: Any = SCENES.get(view, Recorded)(VIEWS[view][0]())

    async def connect() -> Any:
        return recorded

    chat = "" if view == "first run" else "c_1"
    return make_app(connect, Start("/home/me/project", chat=chat), theme=theme)


async def _until(pilot: Pilot[Any], fact: Callable[[], object], pause: float = 0.02) -> None:
    deadline = time.monotonic() + 60
    while not fact() and time.monotonic() < deadline:
        await pilot.pause(pause)


async def ready(pilot: Pilot[Any]) -> None:
    """All is drawn, nothing is under way, and the cursor does not blink."""
    app = pilot.app
    assert isinstance(app, TreadleApp)
    app.composer.cursor_blink = False

    def is_drawn() -> bool:
        if app.controller is None:
            return False
        if isinstance(app.connection, Unused):
            return isinstance(app.screen, Picker) and _rows_are_there(pilot)
        asks = bool(app.conversation.view.actions)
        looked = bool(app.showing.side.files) or not isinstance(app.connection, Worked)
        return bool(app.conversation.seq and app.transcript._lines and looked and (not asks or app.card.armed))

    await _until(pilot, is_drawn)


async def still(pilot: Pilot[Any]) -> None:
    """Nothing moves any more: the same picture twice."""
    pictures: list[str] = []

    def is_unchanged() -> bool:
        pictures.append(pilot.app.export_screenshot())
        return pictures[-2:-1] == pictures[-1:]

    await _until(pilot, is_unchanged, 0.15)


def cells() -> Iterator[Any]:
    """The themes take turns, as the colours of a chessboard."""
    for row, view in enumerate(VIEWS):
        for column, size in enumerate(SIZES):
            theme = THEMES[(row + column) % 2]
            yield pytest.param(view, size, theme, id=f"{view}-{size[0]}x{size[1]}-{theme}")


@pytest.mark.thorough(one_of=8)
@pytest.mark.parametrize(("view", "size", "theme"), list(cells()))
def test_view(
    snap_compare: Compare, view: str, size: tuple[int, int], theme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    does = VIEWS[view][1]

    async def prepare_view(pilot: Pilot[Any]) -> None:
        await ready(pilot)
        await does(pilot)
        for field in pilot.app.screen.query(Input):
            field.cursor_blink = False
        await still(pilot)

    assert snap_compare(app_of(view, f"textual-{theme}"), terminal_size=size, run_before=prepare_view)
