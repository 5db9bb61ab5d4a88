"""For any event, the command line and `--plain` write nothing that a terminal obeys (S-12, S-22)."""

import io

import pytest

from tests.hostile_text import TEXTS, check_inert, hostile_events
from treadle.frontends.cli.screen import Screen
from treadle.frontends.cli.terminal import Terminal


class Stream(io.StringIO):
    def __init__(self, *, terminal: bool) -> None:
        super().__init__()
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


KINDS = {"terminal": (True, False), "plain": (True, True), "pipe": (False, False)}


@pytest.mark.thorough(one_of=8)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
async def test_no_event_reaches_the_terminal_alive(kind: str, text: str) -> None:  # S-12, S-22
    is_terminal, plain = KINDS[kind]
    styled = is_terminal and not plain
    for envelope in hostile_events(text):
        out, err = Stream(terminal=is_terminal), Stream(terminal=is_terminal)
        screen = Screen(Terminal(out, err, {}, plain=plain), echo=True)
        screen.show_event(envelope)
        screen._end_text()
        for stream in (out, err):
            output = stream.getvalue().replace("\r\x1b[2K", "")  # how the passing line of status is taken away
            check_inert(output, styled=styled)
