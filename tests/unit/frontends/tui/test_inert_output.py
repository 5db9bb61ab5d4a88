"""Whatever an event, a chat, a job or a command of a project holds, the terminal app draws nothing that a terminal
obeys (S-12, S-22). What is checked is what would be sent to the terminal: the strips of the whole screen."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from rich.console import Console
from textual.pilot import Pilot
from textual.widgets import OptionList

from tests.hostile_text import HOSTILE, TEXTS, check_inert, hostile, hostile_events
from tests.unit.frontends.tui.recorded import Recorded
from treadle.diff.diff import FileDiff
from treadle.frontends.presentation.conversation import Conversation
from treadle.frontends.presentation.rich_text import RichText, Text
from treadle.frontends.tui.app import Start, TreadleApp
from treadle.frontends.tui.connection import ChatRow, JobRow, ModelRow
from treadle.frontends.tui.drawing import Look, draw_block
from treadle.frontends.tui.launch import make_app
from treadle.frontends.tui.marks import Marks
from treadle.frontends.tui.screens import Confirm, Reading
from treadle.library.skills.reading import OwnCommand
from treadle.protocol import events as e
from treadle.protocol.files import FileChange, Hunk

pytestmark = pytest.mark.thorough(one_of=8)

LISTS = ("model", "chats", "review", "rewind", "jobs")


class Hostile(Recorded):
    """A connection to a place where everything is called something hostile."""

    place = HOSTILE

    async def list_chat_rows(self, *_query: Any, **_more: Any) -> list[Any]:
        return [hostile(ChatRow, HOSTILE)]

    async def list_job_rows(self) -> list[Any]:
        return [hostile(JobRow, HOSTILE)]

    async def list_model_rows(self) -> list[ModelRow]:
        return [hostile(ModelRow, HOSTILE)]

    async def list_file_diffs(self, **_more: Any) -> list[Any]:
        return [FileDiff(hostile(FileChange, HOSTILE), (hostile(Hunk, HOSTILE),), (HOSTILE,))]

    async def preview_back(self, seq: int) -> list[str]:
        return [HOSTILE]

    async def list_resource_names(self, _root: str, _chat: str = "") -> Sequence[str]:
        return (HOSTILE,)

    async def list_own_commands(self, _root: str, _chat: str = "") -> dict[str, Any]:
        return {f"re{HOSTILE}": hostile(OwnCommand, HOSTILE)}


@pytest.mark.thorough(one_of=8)
@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_no_event_is_drawn_alive(text: str) -> None:  # S-12, S-22
    console = Console(force_terminal=True, color_system="truecolor", width=100, record=False)
    for envelope in hostile_events(text):
        conversation = Conversation()
        conversation.apply(e.Envelope(1, envelope.chat, envelope.time_ms, envelope.data))
        for block in conversation.blocks:
            for unfolded in (False, True):
                renderable = draw_block(block, Look(100, 10_000, unfolded=unfolded, marks=Marks()))
                if renderable is not None:
                    with console.capture() as capture:
                        console.print(renderable)
                    check_inert(capture.get(), styled=True)


async def until(pilot: Pilot[Any], fact: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not fact():
        assert time.monotonic() < deadline
        await pilot.pause(0.02)


def check_screen(app: TreadleApp) -> None:
    for strip in app.screen._compositor.render_strips():
        check_inert(strip.render(app.console), styled=True)


def app_with(log: list[e.Event]) -> TreadleApp:
    recorded: Any = Hostile(log)

    async def connect() -> Any:
        return recorded

    return make_app(connect, Start(HOSTILE, chat="c_1"))


@pytest.mark.thorough(one_of=8)
async def test_no_view_of_the_app_draws_anything_alive() -> None:  # S-12, S-22
    log = [each.data for each in hostile_events(HOSTILE) if each.seq and not isinstance(each.data, e.Live)]
    app = app_with(log)
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: app.controller is not None and app.conversation.seq == len(log))
        check_screen(app)
        for y in range(0, int(app.transcript.virtual_size.height), 20):
            app.transcript.scroll_to(y=y, animate=False)
            await pilot.pause()
            check_screen(app)
        app.action_unfold()
        await pilot.pause()
        check_screen(app)
        app.tell(HOSTILE)
        app.notify(HOSTILE, title=HOSTILE, markup=False)
        app.say_status(HOSTILE)
        await pilot.pause(0.1)
        check_screen(app)
        app.composer.insert(HOSTILE)
        await pilot.pause()
        check_screen(app)
        app.composer.clear_all()
        for screen in (
            Reading(HOSTILE, Text(HOSTILE)),
            Reading(HOSTILE, RichText(HOSTILE)),
            Confirm(HOSTILE, HOSTILE, HOSTILE),
        ):
            app.push_screen(screen)
            await pilot.pause(0.1)
            check_screen(app)
            app.pop_screen()
        for line in app.transcript.render_last_lines(10_000):  # what stays on the terminal
            check_inert(line, styled=True)
        app.leave()
        assert app.last_screenful


@pytest.mark.thorough(one_of=8)
@pytest.mark.parametrize("command", [*LISTS, "help", ""])
async def test_no_list_of_the_app_draws_anything_alive(command: str) -> None:  # S-12, S-22
    app = app_with([e.SessionCreated(hostile(e.ChatOptions, HOSTILE)), e.UserMessage(HOSTILE), e.RunEnd("done")])
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: app.controller is not None and app.conversation.seq == 3)
        if command == "help":
            await pilot.press("f1")
            await until(pilot, lambda: isinstance(app.screen, Reading))
        elif command:
            await pilot.press("/", *command, "escape", "enter")
            await until(pilot, lambda: any(each.option_count for each in app.screen.query("#rows").results(OptionList)))
        else:
            await pilot.press("/", "r", "e")
            await until(pilot, lambda: app.query_one("#offers", OptionList).display)
        await pilot.pause(0.2)
        check_screen(app)
        app.leave()
